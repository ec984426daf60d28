"""Fixtures of the tests of tokenizer files."""

import pytest

import tokjax
from tests.conftest import CORPUS
from tokjax.trainer import train_bpe, train_sentencepiece, train_wordpiece


@pytest.fixture(scope="session")
def all_files(tmp_path_factory):
    """Returns a directory with tokenizer files of all formats."""
    directory = tmp_path_factory.mktemp("all")
    bpe = train_bpe(CORPUS, vocab_size=300, special_tokens=["<|endoftext|>"], progress=False).tokenizer
    pieces = train_sentencepiece(CORPUS, vocab_size=150, progress=False).tokenizer
    for format_ in ("tokjax", "huggingface", "gpt2", "tiktoken"):
        tokjax.formats.export_tokenizer(bpe, directory, format_)
    tokjax.formats.export_tokenizer(pieces, directory, "sentencepiece")
    wordpiece = train_wordpiece(CORPUS, vocab_size=200, progress=False).tokenizer
    tokjax.formats.export_tokenizer(wordpiece, directory, "wordpiece")
    # The settings of BERT, without its class and its tokens, which are not those of the other files.
    (directory / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    (directory / "encoder.json").write_bytes((directory / "vocab.json").read_bytes())
    (directory / "vocab.bpe").write_bytes((directory / "merges.txt").read_bytes())
    return directory
