"""The offsets contract for tokenizers of another library, whose own spans may overlap."""

import numpy as np

import tokjax


def find_overlapping_runs(spans):
    """Slices of spans that are in order without overlaps among one another."""
    first = 0
    for i in range(1, len(spans) + 1):
        if i == len(spans) or max(stop for _, stop in spans[:i]) <= min(start for start, _ in spans[i:]):
            yield slice(first, i)
            first = i


def assert_contract(text, spans):
    assert tokjax.offsets.validate_offsets_contract(text, spans)
    assert tokjax.offsets.offsets_are_nonoverlapping(spans), spans
    assert spans == sorted(spans)


def assert_spans_agree(text, spans, expected):
    """Spans are the library's, but where those overlap: there they part what the library's cover.

    White space that is trimmed may be left out.

    Args:
        text: the text.
        spans: ours, 1-based, in bytes.
        expected: the library's, 0-based, in characters.
    """
    assert_contract(text, spans)
    within = np.minimum(np.array(expected, int).reshape(-1, 2), len(text))  # (some reach beyond the text)
    expected = tokjax.offsets.char_to_byte_spans(text, within).tolist()
    for run in find_overlapping_runs(expected):
        ours, theirs = spans[run], expected[run]
        if len(theirs) == 1:
            assert ours == theirs
            continue
        first, last = min(start for start, _ in theirs), max(stop for _, stop in theirs)
        covered = {byte for start, stop in ours for byte in range(start, stop)}
        left = sorted({*range(first, last)} - covered)
        assert covered <= {*range(first, last)}, (ours, theirs)
        assert not bytes(text.encode()[byte - 1] for byte in left).decode().strip(), (ours, theirs)
