"""Checks of the offsets contract, also against libraries whose own spans may overlap."""

import numpy as np

import tokjax
from tokjax.core.utf8 import to_utf8


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
    may be left out. Spans may include characters beside them that are in no span of the library, because the
    normalizer made one character of several.

    Args:
        text: text of the spans.
        spans: our spans, 1-based half-open byte spans.
        expected: the library's spans, 0-based half-open character spans.
    """
    assert_contract(text, spans)
    within = np.minimum(np.array(expected, int).reshape(-1, 2), len(text))  # some end after the text
    expected = tokjax.offsets.char_to_byte_spans(text, within).tolist()
    in_library = {byte for start, stop in expected for byte in range(start, stop)}
    for run in find_overlapping_runs(expected):
        ours = [leave_out(span, in_library) for span in spans[run]]
        theirs = expected[run]
        if len(theirs) == 1:
            assert ours == theirs
            continue
        first, last = min(start for start, _ in theirs), max(stop for _, stop in theirs)
        covered = {byte for start, stop in ours for byte in range(start, stop)}
        uncovered = sorted({*range(first, last)} - covered)
        assert covered <= {*range(first, last)}, (ours, theirs)
        assert not bytes(text.encode()[byte - 1] for byte in uncovered).decode().strip(), (ours, theirs)


def leave_out(span, in_library):
    """Returns a span without the characters at its ends that are in no span of the library."""
    kept = sorted(in_library.intersection(range(*span)))
    return [kept[0], kept[-1] + 1] if kept else span


def find_uncovered(text, spans):
    """Returns the characters of a text that are in no span, whitespace left out."""
    data = to_utf8(text)
    covered = np.zeros(len(data), bool)
    for start, stop in spans:
        covered[start - 1 : stop - 1] = True
    uncovered = bytes(byte for byte, is_covered in zip(data, covered, strict=True) if not is_covered)
    return uncovered.decode("utf-8", "replace").split()


def get_view(tokenizer, text, result):
    in_text = result.metadata.offsets_reference == "input_text"
    return text if in_text else tokjax.tokenization_view(tokenizer, text)


def check_result(tokenizer, texts, result, *, at_boundaries=False):
    """Checks the contract for one result.

    Args:
        tokenizer: the tokenizer.
        texts: the text, or the two texts of a pair.
        result: the result.
        at_boundaries: whether spans start and stop between characters.
    """
    assert len(result.offsets) == len(result.ids) == len(result.sequence_ids) == len(result.word_ids)
    inserted = result.sequence_ids == -1
    assert (result.offsets[inserted] == 0).all()
    assert (result.special_tokens_mask[inserted] == 1).all()
    for number, text in enumerate(texts):
        from_text = result.sequence_ids == number
        spans, view = result.offsets[from_text], get_view(tokenizer, text, result)
        assert (spans >= 1).all()
        assert_contract(view, spans.tolist())
        if at_boundaries:
            tokjax.offsets.assert_offsets_contract(view, spans, require_string_boundaries=True)
        mapped = tokjax.map_offsets_to_input(tokenizer, text, spans)
        tokjax.offsets.assert_offsets_contract(text, mapped)
        is_special = (result.special_tokens_mask == 1) & from_text
        unknown = tokjax.get_vocabulary(tokenizer).get_role_id("unk")
        found = result.offsets[is_special & (result.ids != unknown)]
        assert (found[:, 1] > found[:, 0]).all()
