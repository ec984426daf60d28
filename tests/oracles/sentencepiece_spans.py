"""Byte spans of SentencePiece pieces, computed one byte of normalized text at a time."""

from tokjax.core.utf8 import count_bytes


def compute_piece_spans(processor, source, *, mark="\u2581", prefix=True):
    """Computes 0-based half-open byte spans of pieces.

    Args:
        processor: the library's processor.
        source: text in UTF-8.
        mark: character that replaces a space in normalized text.
        prefix: whether the model adds a space before texts.
    """
    normalized, origins = processor.normalize(source, with_offsets=True)
    origins = origins or [0]
    prefix_nbytes = len(mark.encode()) if prefix and normalized.startswith(mark.encode()) else 0
    groups = []  # runs of positions in the normalized text with the same origin
    for position in range(len(normalized)):
        if position in (0, prefix_nbytes) or origins[position] != origins[position - 1]:
            groups.append([])
        groups[-1].append(position)
    span_by_position = {}
    for group in groups:
        first, last = origins[group[0]], origins[group[-1] + 1]
        is_unchanged = source[first : first + len(group)] == normalized[group[0] : group[-1] + 1]
        for i, position in enumerate(group):
            span_by_position[position] = (first, last)
            if is_unchanged and first + len(group) <= last:
                stop = last if i == len(group) - 1 else first + i + 1
                span_by_position[position] = (first + i, stop)
    spans, start = [], 0
    ids = processor.encode(source, out_type=int)
    for id_, piece in zip(ids, processor.encode(source, out_type=str), strict=True):
        stop = start + (1 if processor.is_byte(id_) else count_bytes(piece))
        spans.append((span_by_position[start][0], span_by_position[stop - 1][1]))
        start = stop
    assert start == len(normalized)
    return spans
