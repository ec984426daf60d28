"""SentencePiece models of every kind, trained on the tests' corpus; and texts that they change."""

import io
from functools import cache

import sentencepiece as library
from hypothesis import strategies as st

import tokjax
from tests.conftest import CORPUS
from tests.support.text_strategies import any_strings, byte_strings, hard_texts
from tokjax.trainer import train_sentencepiece

RULES = {
    "unigram": {"vocab_size": 300},
    "unigram with bytes": {"vocab_size": 480, "byte_fallback": True, "user_defined_symbols": ["<call>"]},
    "bpe": {"vocab_size": 300, "model_type": "bpe", "user_defined_symbols": ["<call>", "½a"]},
    "bpe with bytes": {"vocab_size": 480, "model_type": "bpe", "byte_fallback": True},
    "char": {"vocab_size": 100, "model_type": "char"},
    "word": {"vocab_size": 60, "model_type": "word"},
    "identity": {
        "vocab_size": 300,
        "normalization": "identity",
        "add_dummy_prefix": False,
        "remove_extra_whitespaces": False,
    },
    "case folded": {"vocab_size": 270, "normalization": "nfkc_cf"},
    "identity, bytes": {
        "vocab_size": 480,
        "model_type": "bpe",
        "byte_fallback": True,
        "normalization": "identity",
        "remove_extra_whitespaces": False,
    },
}
FOREIGN = {
    "suffixes": {"treat_whitespace_as_suffix": True, "vocab_size": 300, "byte_fallback": False},
    "all roles": {"vocab_size": 300, "pad_id": 3},
}
NAMES = [*RULES, *FOREIGN, "plain spaces"]
ESCAPES_NO_SPACES = b"\x1a\x02\x28\x00"  # more of a `normalizer_spec`, which is merged with what there is


def train_by_library(**options):
    written = io.BytesIO()
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 3),
        model_writer=written,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return written.getvalue()


@cache
def train_sentencepiece_models():
    made = {
        name: train_sentencepiece(CORPUS * 3, progress=False, **options).tokenizer
        for name, options in RULES.items()
    }
    protos = {name: train_by_library(**options) for name, options in FOREIGN.items()}
    protos["plain spaces"] = made["unigram"].model_proto + ESCAPES_NO_SPACES
    return made | {name: tokjax.sentencepiece(proto) for name, proto in protos.items()}


changed_text = st.sampled_from(
    ["½", "…", "ﬃ", "㌔", "ｶﾞ", "e\u0301", "™", "<call>", "½a", "\u2581", "  ", "\n", "\x01", "Ⅷ", "<0x41>"]
)
fuzz = st.one_of(
    st.lists(st.one_of(changed_text, hard_texts), max_size=8).map("".join), any_strings, byte_strings
)
