"""Tests of chunks of text."""

from tokjax.bpe import chunks
from tokjax.bpe.chunks import as_segments


def test_long_non_ascii_document_is_split():
    text = "слово ещё\n" * 100_000
    pieces = list(chunks.group_segments(as_segments([text]), 1 << 18, chunks.find_split_before_space))
    assert len(pieces) == 4
    assert "".join(part for piece in pieces for part in piece.texts) == text
    assert [ends for piece in pieces for ends in piece.ends_segment] == [False, False, False, True]
