"""Tests of the offsets contract for all tokenizer types and formats, on texts that are hard to map back."""

import unicodedata
from functools import lru_cache

import numpy as np
import pytest
import sentencepiece
import tiktoken
from hypothesis import given

import tokjax
from tests.support.edge_case_texts import EDGE_CASES, LONG_TEXT, UNUSUAL_TEXTS
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.sentencepiece_models import train_sentencepiece_models
from tests.support.span_checks import check_result, find_uncovered, get_view
from tests.support.text_strategies import byte_strings, hard_texts
from tests.support.tokenizers import ALL_TOKENIZERS, ALL_VARIANTS, make_tokenizer
from tests.support.variants import mark_slow_except
from tokjax.core.utf8 import to_utf8
from tokjax.pretokenize.bytes_to_unicode import ALPHABET

TEXTS = [*EDGE_CASES, *UNUSUAL_TEXTS]


def make_trimmed_bpe():
    ids = {bytes([i]): i for i in range(256)} | {b" low": 300, b"  ": 301, b"\xe6\x97": 302, b"a zzz": 303}
    return tokjax.byte_level_bpe(
        ids, add_prefix_space=True, trim_offsets="all", added_tokens=["a zzz"], special_tokens={"<s>": 304}
    )


def split_characters(text):
    return [(i, i + 1) for i in range(len(text))]


def load_clip():
    transformers = pytest.importorskip("transformers", minversion="5")
    merges = [("l", "o"), ("lo", "w</w>"), ("t", "h"), ("th", "e</w>")]
    forms = [*ALPHABET, *(f"{character}</w>" for character in ALPHABET), *map("".join, merges)]
    forms += ["<|startoftext|>", "<|endoftext|>"]
    vocab = {form: id_ for id_, form in enumerate(forms)}
    return tokjax.load_tokenizer(transformers.CLIPTokenizer(vocab=vocab, merges=merges))


def load_sentencepiece(name):
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(train_sentencepiece_models()[name].model_proto)
    return tokjax.formats.from_sentencepiece(processor)


def load_tiktoken():
    ranks = {bytes([i]): i for i in range(256)} | {b" t": 256, b"he": 257, b" the": 258}
    expression = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
    encoding = tiktoken.Encoding(
        "test", pat_str=expression, mergeable_ranks=ranks, special_tokens={"<s>": 300}
    )
    return tokjax.formats.from_tiktoken(encoding)


OTHERS = {
    "byte-level BPE, trimmed": make_trimmed_bpe,
    "callable, spans": lambda: tokjax.models.from_callable(split_characters, ["[UNK]", "a", "é"]),
    "CLIP": load_clip,
    "from_sentencepiece": lambda: load_sentencepiece("unigram with bytes"),
    "from_tiktoken": load_tiktoken,
}
FILES = {
    "GPT-2 files": ("byte-level BPE", "gpt2"),
    "tokjax files": ("byte-level BPE", "tokjax"),
    "WordPiece files": ("WordPiece", "wordpiece"),
    "SentencePiece files": ("unigram", "sentencepiece"),
}
"""Tokenizers that are exported, and loaded from the files."""
NAMES = [*ALL_TOKENIZERS, *OTHERS, *FILES]
EXACT = ["byte-level BPE", "byte-level BPE, NFC", "bytes", "from_tiktoken", "GPT-2 files"]
EXACT += ["characters", "callable, spans"]
"""Tokenizers whose spans have exactly the bytes of their tokens, or of an unknown character."""
AT_BOUNDARIES = [
    "characters",
    "callable",
    "callable, spans",
    "WordPiece",
    "WordPiece files",
    "word level",
    *(name for name in ALL_TOKENIZERS if name.startswith("SentencePiece,") and "bytes" not in name),
    *(f"tokenizer.json, {name}" for name in ("unigram", "BERT", "words")),
]
"""Tokenizers whose spans do not end inside characters."""


def is_removed_by_bert(tokenizer, character):
    if tokenizer.normalizer.is_identity:
        return False
    removes_marks = tokenizer.normalizer.strip_accents and unicodedata.category(character) == "Mn"
    return removes_marks or character == "\ufffd" or unicodedata.category(character).startswith("C")


def is_removed_by_sentencepiece(tokenizer, character):
    """Returns whether a character is removed, or becomes a space, which may be merged with others."""
    normalized = tokenizer.processor.normalize(f"a{character}b")
    return normalized.strip("\u2581 ") in ("ab", "a\u2581b", "a b")


def is_removed_by_nothing(tokenizer, character):
    return False


REMOVED = {
    tokjax.models.WordPieceTokenizer: is_removed_by_bert,
    tokjax.models.WordBPE: is_removed_by_bert,
    tokjax.models.SentencePieceTokenizer: is_removed_by_sentencepiece,
    # The library's spans leave out characters that a normalizer joins with others.
    tokjax.formats.HuggingFaceTokenizer: lambda tokenizer, _: tokenizer.normalization is not None,
}
"""By type: test of characters that normalization removes. Other types remove whitespace only."""


@pytest.fixture(scope="module")
def get_tokenizer(tmp_path_factory):
    @lru_cache
    def make(name):
        if name in FILES:
            original, file_format = FILES[name]
            directory = tmp_path_factory.mktemp("files")
            paths = tokjax.formats.export_tokenizer(make_tokenizer(original), directory, file_format)
            return tokjax.load_tokenizer(paths[:2] if file_format == "gpt2" else paths[0], file_format)
        return OTHERS[name]() if name in OTHERS else make_tokenizer(name)

    return make


VARIANTS = ALL_VARIANTS | (FILES.keys() - {"GPT-2 files"})
any_tokenizer = pytest.mark.parametrize("name", mark_slow_except(NAMES, set(NAMES) - VARIANTS))


@any_tokenizer
class TestContract:
    def test_single_texts(self, get_tokenizer, name):
        tokenizer, texts = get_tokenizer(name), [*TEXTS, LONG_TEXT]
        plain = tokjax.encode_batch_result(tokenizer, texts, disallowed_special=())
        with_special = tokjax.encode_batch_result(tokenizer, texts, allowed_special="all")
        for text, *results in zip(texts, plain, with_special, strict=True):
            for result in results[: 1 + (results[0] != results[1])]:
                check_result(tokenizer, [text], result, at_boundaries=name in AT_BOUNDARIES)
            check_coverage(tokenizer, text, results[0])

    def test_special_tokens_in_texts(self, get_tokenizer, name):
        tokenizer = get_tokenizer(name)
        for token in tokjax.special_tokens(tokenizer):
            if token == tokjax.get_vocabulary(tokenizer).roles.get("unk"):
                continue
            text = f"é {token}{token} ½a {token}"
            result = tokjax.encode_result(tokenizer, text, allowed_special="all")
            check_result(tokenizer, [text], result)
            found = (result.ids == tokjax.token_to_id(tokenizer, token)) & (result.sequence_ids == 0)
            view = get_view(tokenizer, text, result)
            parts = [tokjax.try_span_substring(view, span) for span in result.offsets[found]]
            assert [part.strip() for part in parts] == [token] * 3

    def test_pairs(self, get_tokenizer, name):
        """The spans of both texts are those of single texts."""
        tokenizer = get_tokenizer(name)
        alone = tokjax.encode_batch_result(tokenizer, TEXTS, disallowed_special=())
        spans = [result.offsets[result.sequence_ids == 0].tolist() for result in alone]
        batch = tokjax.encode_batch_result(tokenizer, TEXTS, TEXTS[::-1], disallowed_special=())
        for result, *expected in zip(batch, spans, spans[::-1], strict=True):
            assert [result.offsets[result.sequence_ids == number].tolist() for number in (0, 1)] == expected
            inserted = result.sequence_ids == -1
            assert (result.offsets[inserted] == 0).all()
            assert (result.special_tokens_mask[inserted] == 1).all()

    def test_windows(self, get_tokenizer, name):
        tokenizer = get_tokenizer(name)
        options = {"max_length": 9, "stride": 2, "disallowed_special": ()}
        texts = TEXTS[::3]
        windows = tokjax.encode_windows(tokenizer, texts, **options)
        for number, result in zip(windows.text_ids.tolist(), windows.batch, strict=True):
            check_result(tokenizer, [texts[number]], result)

    def test_words(self, get_tokenizer, name):
        tokenizer = get_tokenizer(name)
        words = [text.split(" ") for text in EDGE_CASES]
        batch = tokjax.encode_batch_result(tokenizer, words, is_pretokenized=True, disallowed_special=())
        for text, result in zip(EDGE_CASES, batch, strict=True):
            check_result(tokenizer, [text], result)
            word_ids = result.word_ids[result.sequence_ids == 0]
            assert (np.diff(word_ids) >= 0).all()


@any_tokenizer
@get_max_examples(60)
@given(text=hard_texts | byte_strings)
def test_contract_of_random_texts(get_tokenizer, name, text):
    tokenizer = get_tokenizer(name)
    result = tokjax.encode_result(tokenizer, text, disallowed_special=())
    check_result(tokenizer, [text], result, at_boundaries=name in AT_BOUNDARIES)
    if isinstance(text, str):
        check_coverage(tokenizer, text, result)


def check_coverage(tokenizer, text, result):
    """Checks that a token spans each character that is neither whitespace nor removed by normalization."""
    spans = result.offsets[result.sequence_ids == 0]
    is_removed = REMOVED.get(type(tokenizer), is_removed_by_nothing)
    uncovered = "".join(find_uncovered(text, tokjax.map_offsets_to_input(tokenizer, text, spans)))
    assert [character for character in uncovered if not is_removed(tokenizer, character)] == []


@pytest.mark.parametrize("name", EXACT)
@given(text=hard_texts | byte_strings)
def test_spans_have_the_bytes_of_tokens(get_tokenizer, name, text):
    tokenizer = get_tokenizer(name)
    result = tokjax.encode_result(tokenizer, text, add_special_tokens=False, disallowed_special=())
    view = get_view(tokenizer, text, result)
    spans = [tokjax.offsets.span_bytes(view, span) for span in result.offsets]
    unknown = tokjax.unk_id(tokenizer)
    for span, id_ in zip(spans, result.ids.tolist(), strict=True):
        assert id_ == unknown or span == tokjax.id_to_bytes(tokenizer, id_)
    assert b"".join(spans) == to_utf8(view)
