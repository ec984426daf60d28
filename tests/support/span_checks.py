"""Checks of the offsets contract against libraries whose own spans may overlap."""

import numpy as np

import tokjax


def find_overlapping_runs(spans):
    """Yields slices of spans: runs that overlap one another, or single spans."""
    first = 0
    for i in range(1, len(spans) + 1):
        if i == len(spans) or max(stop for _, stop in spans[:i]) <= min(start for start, _ in spans[i:]):
            yield slice(first, i)
            first = i


def assert_contract(text, spans):
    """Asserts the offsets contract, for sorted spans without overlaps."""
    assert tokjax.offsets.validate_offsets_contract(text, spans)
    assert tokjax.offsets.offsets_are_nonoverlapping(spans), spans
    assert spans == sorted(spans)


def assert_spans_agree(text, spans, expected):
    """Asserts that spans equal those of a library, except where the library's spans overlap.

    Spans of an overlapping run must divide the bytes that the library's spans cover. Whitespace at the ends
    may be left out.

    Args:
        text: text of the spans.
        spans: our spans, 1-based half-open byte spans.
        expected: the library's spans, 0-based half-open character spans.
    """
    assert_contract(text, spans)
    within = np.minimum(np.array(expected, int).reshape(-1, 2), len(text))  # some end after the text
    expected = tokjax.offsets.char_to_byte_spans(text, within).tolist()
    for run in find_overlapping_runs(expected):
        ours, theirs = spans[run], expected[run]
        if len(theirs) == 1:
            assert ours == theirs
            continue
        first, last = min(start for start, _ in theirs), max(stop for _, stop in theirs)
        covered = {byte for start, stop in ours for byte in range(start, stop)}
        uncovered = sorted({*range(first, last)} - covered)
        assert covered <= {*range(first, last)}, (ours, theirs)
        assert not bytes(text.encode()[byte - 1] for byte in uncovered).decode().strip(), (ours, theirs)
