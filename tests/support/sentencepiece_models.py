"""SentencePiece models of all types, trained on the corpus of the tests, and texts that they normalize."""

import io
import struct
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


def match_symbols(tokenizer):
    """Returns options with which all user-defined symbols are matched in texts, as by the library."""
    return {"allowed_special": tokenizer.vocabulary.unmatched_names, "disallowed_special": ()}


NORMAL, UNKNOWN, USER_DEFINED, UNUSED, BYTE = 1, 2, 4, 5, 6


def build_bpe_model(pieces, symbols=(), *, scores=None, unused=(), byte_fallback=False, adds_space=True):
    """Returns a serialized BPE model without a normalizer; earlier pieces have higher scores."""
    scores = range(0, -len(pieces), -1) if scores is None else scores
    typed = [
        ("<unk>", 0, UNKNOWN),
        *((piece, score, NORMAL) for piece, score in zip(pieces, scores, strict=True)),
    ]
    typed += [(symbol, 0, USER_DEFINED) for symbol in symbols] + [(piece, -99, UNUSED) for piece in unused]
    typed += [(f"<0x{byte:02X}>", 0, BYTE) for byte in range(256 * byte_fallback)]
    encoded = [
        _encode_field(1, piece.encode()) + b"\x15" + struct.pack("<f", score) + bytes([3 << 3, piece_type])
        for piece, score, piece_type in typed
    ]
    trainer = bytes([3 << 3, 2]) + b"\x98\x02" + bytes([byte_fallback])  # fields 3 and 35
    options = bytes([3 << 3, adds_space, 4 << 3, 0])  # does not merge spaces
    normalizer = _encode_field(1, b"identity") + options
    return b"".join(_encode_field(1, piece) for piece in encoded) + b"".join(
        _encode_field(number, spec) for number, spec in ((2, trainer), (3, normalizer))
    )


def _encode_field(number, value):
    """Returns a field of a protocol buffer whose value has fewer than 128 bytes."""
    return bytes([number << 3 | 2, len(value)]) + value


changed_text = st.sampled_from(
    ["½", "…", "ﬃ", "㌔", "ｶﾞ", "e\u0301", "™", "<call>", "½a", "\u2581", "  ", "\n", "\x01", "Ⅷ", "<0x41>"]
)
fuzz = st.one_of(
    st.lists(st.one_of(changed_text, hard_texts), max_size=8).map("".join), any_strings, byte_strings
)
