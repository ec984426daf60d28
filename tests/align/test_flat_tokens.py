"""Tests of processing flat tokens in blocks."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.token_strategies import LABELS
from tokjax.align import flat_tokens, offset_trimming

TOKENIZER = tokjax.byte_level()


@pytest.mark.filterwarnings("ignore:text .*whitespace")
@given(
    st.lists(st.text("ab é", min_size=1, max_size=9), min_size=1, max_size=5), st.integers(1, 7), st.data()
)
def test_block_size_does_not_change_labels(texts, size, data):
    batch = tokjax.encode_batch_result(TOKENIZER, texts)
    spans = []
    for text in texts:
        ends = [
            k for k in range(1, len(text.encode()) + 2) if tokjax.offsets.is_valid_string_boundary(text, k)
        ]
        bounds = sorted(data.draw(st.sets(st.sampled_from(ends), min_size=2, max_size=4)))
        spans.append([(*pair, LABELS[0]) for pair in zip(bounds[::2], bounds[1::2], strict=False)])
    for optional_texts in (None, texts):
        in_one_block = tokjax.align.align_spans(batch, spans, labels=LABELS, texts=optional_texts)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(flat_tokens, "BLOCK", size)
            patched.setattr(offset_trimming, "BLOCK", size)
            in_small_blocks = tokjax.align.align_spans(batch, spans, labels=LABELS, texts=optional_texts)
        assert in_small_blocks.labels.tolist() == in_one_block.labels.tolist()
        assert in_small_blocks.token_counts.tolist() == in_one_block.token_counts.tolist()


def test_unordered_tokens_are_rejected_across_blocks(monkeypatch):
    monkeypatch.setattr(flat_tokens, "BLOCK", 2)
    offsets = np.array([[1, 2], [2, 3], [1, 2], [4, 5]])
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="must be in the order of their text"):
        tokjax.align.align_spans(offsets, [(1, 3, LABELS[0])], labels=LABELS)
