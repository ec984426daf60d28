"""Labels and noise at the edges: where blocks of tokens meet, words without labels, draws that are equal."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.token_strategies import LABELS
from tokjax.align import flat_tokens as tokens_module, offset_trimming
from tokjax.objectives.noise_spans import sample_noise

TOKENIZER = tokjax.byte_level()


@pytest.mark.filterwarnings("ignore:text .*white space")
@given(
    st.lists(st.text("ab é", min_size=1, max_size=9), min_size=1, max_size=5), st.integers(1, 7), st.data()
)
def test_blocks_of_tokens_of_any_size_give_the_same(texts, size, data):
    batch = tokjax.encode_batch_result(TOKENIZER, texts)
    spans = []
    for text in texts:
        ends = [
            k for k in range(1, len(text.encode()) + 2) if tokjax.offsets.is_valid_string_boundary(text, k)
        ]
        bounds = sorted(data.draw(st.sets(st.sampled_from(ends), min_size=2, max_size=4)))
        spans.append([(*pair, LABELS[0]) for pair in zip(bounds[::2], bounds[1::2], strict=False)])
    for given_texts in (None, texts):
        complete = tokjax.align.align_spans(batch, spans, labels=LABELS, texts=given_texts)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(tokens_module, "BLOCK", size)
            patched.setattr(offset_trimming, "BLOCK", size)
            parts = tokjax.align.align_spans(batch, spans, labels=LABELS, texts=given_texts)
        assert parts.labels.tolist() == complete.labels.tolist()
        assert parts.token_counts.tolist() == complete.token_counts.tolist()


def test_tokens_out_of_order_are_found_where_blocks_meet(monkeypatch):
    monkeypatch.setattr(tokens_module, "BLOCK", 2)
    offsets = np.array([[1, 2], [2, 3], [1, 2], [4, 5]])
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="must be in the order of their text"):
        tokjax.align.align_spans(offsets, [(1, 3, LABELS[0])], labels=LABELS)


def test_trailing_space_is_outside_the_word():
    offsets, word_ids = np.array([[1, 3], [3, 4], [4, 5], [5, 6]]), np.array([0, 0, 1, 1])
    tagset = tokjax.align.TagSet(LABELS)
    tags = tagset.get_ids([f"B-{LABELS[0]}", "O", "O", "O"])
    options = {"first_subword_only": True, "word_ids": word_ids, "texts": ["ab cd"]}
    assert tokjax.align.spans_from_labels(offsets, tags, tagset, **options) == [(1, 3, LABELS[0])]


def test_words_without_labels_and_labels_without_words():
    ids = np.array([-1, 0, 1])
    assert tokjax.align.labels_from_words(ids, np.array([5])).tolist() == [-100, 5, -100]
    no_words = np.zeros((0, 2), np.int32)
    assert tokjax.align.word_ids_from_spans(np.array([[1, 2], [2, 3]]), no_words).tolist() == [-1, -1]


@pytest.mark.parametrize("least", [0.5, 0.1])
def test_equal_draws_give_one_span(least):
    draws, lengths = np.full((1, 12), 0.5, np.float32), np.array([12], np.int32)
    draws[0, [1, -2]] = least
    tokens, spans = np.array([6], np.int32), np.array([3], np.int32)
    [noise] = sample_noise(draws, lengths, tokens, spans, max_counts=(12, 12)).tolist()
    assert sum(noise) == 6
    assert sum(now and not before for before, now in zip([False, *noise], noise, strict=False)) == 3
    assert (noise[0], noise[-1]) == (False, True)


def test_exact_lengths_are_accepted():
    ids, draws = np.ones((1, 20), np.int32), np.full((1, 20), 0.3, np.float32)
    options = {"sentinel_ids": [9, 8, 7], "eos_id": 2, "pad_id": 0, "noise_density": 0.5}
    found = tokjax.objectives.span_corruption(ids, ids, draws, **options)
    (_, inputs), (_, targets) = found.inputs.shape, found.targets.shape
    same = tokjax.objectives.span_corruption(
        ids, ids, draws, **options, inputs_length=inputs, targets_length=targets
    )
    assert same.inputs.tolist() == found.inputs.tolist()
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match=f"inputs_length is {inputs - 1}, and .* can need"
    ):
        tokjax.objectives.span_corruption(ids, ids, draws, **options, inputs_length=inputs - 1)
