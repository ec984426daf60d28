"""SentencePiece models of all types, trained on the corpus of the tests, and texts that they normalize."""

import io
from functools import cache

import sentencepiece as library
from hypothesis import strategies as st

import tokjax
from tests.conftest import CORPUS
from tests.support.text_strategies import any_strings, byte_strings, hard_texts
from tokjax.trainer import train_sentencepiece

TRAINING_OPTIONS = {
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
LIBRARY_TRAINING_OPTIONS = {
    "suffixes": {"treat_whitespace_as_suffix": True, "vocab_size": 300, "byte_fallback": False},
    "all roles": {"vocab_size": 300, "pad_id": 3},
}
NAMES = [*TRAINING_OPTIONS, *LIBRARY_TRAINING_OPTIONS, "plain spaces"]
ESCAPES_NO_SPACES = b"\x1a\x02\x28\x00"  # a second `normalizer_spec`, which is merged with the first


def train_by_library(**options):
    model = io.BytesIO()
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 3),
        model_writer=model,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


@cache
def train_sentencepiece_models():
    tokenizers = {
        name: train_sentencepiece(CORPUS * 3, progress=False, **options).tokenizer
        for name, options in TRAINING_OPTIONS.items()
    }
    protos = {name: train_by_library(**options) for name, options in LIBRARY_TRAINING_OPTIONS.items()}
    protos["plain spaces"] = tokenizers["unigram"].model_proto + ESCAPES_NO_SPACES
    return tokenizers | {name: tokjax.sentencepiece(proto) for name, proto in protos.items()}


changed_text = st.sampled_from(
    ["½", "…", "ﬃ", "㌔", "ｶﾞ", "e\u0301", "™", "<call>", "½a", "\u2581", "  ", "\n", "\x01", "Ⅷ", "<0x41>"]
)
fuzz = st.one_of(
    st.lists(st.one_of(changed_text, hard_texts), max_size=8).map("".join), any_strings, byte_strings
)
