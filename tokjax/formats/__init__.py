"""Tokenizer files, in and out."""

from tokjax.formats.adapters import from_sentencepiece, from_tiktoken
from tokjax.formats.chat_templates import load_chat_template
from tokjax.formats.clip_merges import read_clip
from tokjax.formats.detection import DetectedTokenizer, detect_tokenizer_files, detect_tokenizer_format
from tokjax.formats.exporting import export_tokenizer
from tokjax.formats.gpt2_files import read_gpt2
from tokjax.formats.huggingface.adapter import HuggingFaceTokenizer
from tokjax.formats.huggingface.tokenizer_json import from_huggingface, read_huggingface
from tokjax.formats.loading import load_tokenizer, read_sentencepiece
from tokjax.formats.tiktoken_ranks import read_tiktoken
from tokjax.formats.tokjax_json import read_tokjax, save_tokenizer
from tokjax.formats.wordpiece_vocab import read_wordpiece

__all__ = [
    "DetectedTokenizer",
    "HuggingFaceTokenizer",
    "detect_tokenizer_files",
    "detect_tokenizer_format",
    "export_tokenizer",
    "from_huggingface",
    "from_sentencepiece",
    "from_tiktoken",
    "load_chat_template",
    "load_tokenizer",
    "read_clip",
    "read_gpt2",
    "read_huggingface",
    "read_sentencepiece",
    "read_tiktoken",
    "read_tokjax",
    "read_wordpiece",
    "save_tokenizer",
]
