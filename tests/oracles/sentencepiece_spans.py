"""Which bytes each piece came from, found one byte of normalised text at a time."""

from tokjax.core.utf8 import count_bytes


def compute_piece_spans(processor, source, *, mark="\u2581", prefix=True):
    """0-based spans in `source` (bytes); `prefix` says whether the model puts a space before a text."""
    normalized, origins = processor.normalize(source, with_offsets=True)
    origins = origins or [0]
    spaces = len(mark.encode()) if prefix and normalized.startswith(mark.encode()) else 0
    groups = []  # of places in the normalised text
    for position in range(len(normalized)):
        if position in (0, spaces) or origins[position] != origins[position - 1]:
            groups.append([])
        groups[-1].append(position)
    span_by_position = {}
    for group in groups:
        first, last = origins[group[0]], origins[group[-1] + 1]
        same = source[first : first + len(group)] == normalized[group[0] : group[-1] + 1]
        for i, position in enumerate(group):
            span_by_position[position] = (first, last)
            if same and first + len(group) <= last:
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
