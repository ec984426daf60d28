"""Tokenizer files: loading, saving, export to other formats, and conversion of objects of other libraries."""

from tokjax.formats.adapters import from_sentencepiece, from_tiktoken
from tokjax.formats.chat_templates import load_chat_template
from tokjax.formats.detection import DetectedTokenizer, detect_tokenizer_files, detect_tokenizer_format
from tokjax.formats.exporting import export_tokenizer
from tokjax.formats.huggingface.adapter import HuggingFaceTokenizer
from tokjax.formats.huggingface.tokenizer_json import from_huggingface
from tokjax.formats.loading import LoadOptions, load_tokenizer
from tokjax.formats.tokjax_json import save_tokenizer

__all__ = [
    "DetectedTokenizer",
    "HuggingFaceTokenizer",
    "LoadOptions",
    "detect_tokenizer_files",
    "detect_tokenizer_format",
    "export_tokenizer",
    "from_huggingface",
    "from_sentencepiece",
    "from_tiktoken",
    "load_chat_template",
    "load_tokenizer",
    "save_tokenizer",
]
