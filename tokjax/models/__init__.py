"""Built-in tokenizer types, and segmentation sampling with SentencePiece models."""

from tokjax.models.byte_bpe import ByteLevelBPE
from tokjax.models.byte_level import ByteTokenizer
from tokjax.models.char_level import CharTokenizer
from tokjax.models.custom_splitter import CallableTokenizer
from tokjax.models.metaspace_bpe import MetaspaceBPE
from tokjax.models.sentencepiece import SentencePieceTokenizer
from tokjax.models.sentencepiece_sampling import nbest_encode, sample_encode
from tokjax.models.word_level import WordLevelTokenizer
from tokjax.models.wordpiece import WordPieceTokenizer

__all__ = [
    "ByteLevelBPE",
    "ByteTokenizer",
    "CallableTokenizer",
    "CharTokenizer",
    "MetaspaceBPE",
    "SentencePieceTokenizer",
    "WordLevelTokenizer",
    "WordPieceTokenizer",
    "nbest_encode",
    "sample_encode",
]
