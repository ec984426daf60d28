"""Corpus readers: file formats, documents, chunks and annotated text."""

from tokjax.corpus.annotated_text import AnnotatedText, read_conll, read_spacy
from tokjax.corpus.chunk_boundaries import find_chunk_boundaries
from tokjax.corpus.files import TextFiles, text_files
from tokjax.corpus.sources import read_documents

__all__ = [
    "AnnotatedText",
    "TextFiles",
    "find_chunk_boundaries",
    "read_conll",
    "read_documents",
    "read_spacy",
    "text_files",
]
