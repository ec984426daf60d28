"""Tests of the segmentation of many words, against a naive one and against the library."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tokenizers import Tokenizer, models

from tests.oracles.unigram import segment_naively
from tokjax.models import unigram_viterbi as viterbi
from tokjax.models.unigram_viterbi import UnigramModel

CHARACTERS = "ab▁é日🙂"
words = st.text(st.sampled_from(CHARACTERS + "cx"), min_size=1, max_size=12)
word_lists = st.lists(words, max_size=12)
equal_scores = st.sampled_from([-1.0, -2.0, -3.0])
scores = st.one_of(
    equal_scores, st.floats(-20, 0), st.sampled_from([-0.1, -0.2, -0.30000000000000004, 0.0, 30.0])
)


@st.composite
def vocabularies(draw):
    """Draws pieces, scores and the id of the unknown piece. Many segmentations have equal sums.

    The lowest score is not above 0.
    """
    texts = st.text(st.sampled_from(CHARACTERS), min_size=1, max_size=5)
    pieces = ["<unk>", *draw(st.lists(texts, max_size=25, unique=True))]
    column = draw(st.sampled_from([equal_scores, scores]))
    drawn = draw(st.lists(column, min_size=len(pieces), max_size=len(pieces)))
    drawn[0] = min(drawn[0], 0.0)
    return pieces, drawn, draw(st.integers(0, len(pieces) - 1))


def segment(model, texts):
    """Returns the ids and the characters of the tokens of each word."""
    codes = np.frombuffer("".join(texts).encode("utf-32-le"), "<u4")
    ids, lengths, counts = model.segment(codes, np.array([*map(len, texts)], np.int64))
    assert (ids.dtype, lengths.dtype, counts.dtype) == (np.int32, np.int64, np.int64)
    bounds = [0, *itertools.accumulate(lengths.tolist())]
    joined = "".join(texts)
    tokens = iter(zip(ids.tolist(), (joined[a:b] for a, b in itertools.pairwise(bounds)), strict=True))
    return [list(itertools.islice(tokens, count)) for count in counts.tolist()]


def make_library(pieces, piece_scores, unknown_id):
    """Returns the library's tokenizer, and the scores as it parsed them."""
    model = {
        "type": "Unigram",
        "vocab": list(zip(pieces, piece_scores, strict=True)),
        "unk_id": unknown_id,
        "byte_fallback": False,
    }
    definition = json.loads(Tokenizer(models.Unigram()).to_str()) | {"model": model}
    library = Tokenizer.from_str(json.dumps(definition))
    return library, [score for _, score in json.loads(library.to_str())["model"]["vocab"]]


@given(vocabularies(), word_lists, st.sampled_from([1, 3, 100]), st.sampled_from([2, 1 << 13]))
def test_tokens_equal_a_naive_search(vocabulary, texts, few_words, batch):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(viterbi, "FEW_WORDS", few_words)
        patch.setattr(viterbi, "_CHARACTERS_PER_PIECE", -1)
        patch.setattr(viterbi, "_WORDS_PER_BATCH", batch)
        tokens = segment(UnigramModel(*vocabulary), texts)
    assert tokens == [segment_naively(text, *vocabulary) for text in texts]


@given(vocabularies(), word_lists)
def test_ids_equal_the_library(vocabulary, texts):
    pieces, piece_scores, unknown_id = vocabulary
    library, parsed_scores = make_library(pieces, piece_scores, unknown_id)
    tokens = segment(UnigramModel(pieces, parsed_scores, unknown_id), texts)
    assert [[id_ for id_, _ in row] for row in tokens] == [library.encode(text).ids for text in texts]


def test_long_words():
    vocabulary = ["<unk>", "a", "ab", "bab" * 50], [0.0, -3.0, -4.0, -5.0], 0
    texts = ["ab" * 300, "a", "b" + "bab" * 50]
    assert segment(UnigramModel(*vocabulary), texts) == [segment_naively(text, *vocabulary) for text in texts]
