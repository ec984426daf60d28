"""Oracle of packing: Python loops that place one piece at a time, and look at every block."""


def sort_longest_first(lengths):
    return sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))


def first_fit(lengths, block_size, max_pieces):
    """Returns the block of each piece."""
    free_space, counts, block_of = [], [], [0] * len(lengths)
    for piece in sort_longest_first(lengths):
        fitting = [
            b for b, space in enumerate(free_space) if space >= lengths[piece] and counts[b] < max_pieces
        ]
        block_of[piece] = _put_in_block(
            fitting[0] if fitting else None, lengths[piece], free_space, counts, block_size
        )
    return block_of


def best_fit(lengths, block_size, max_pieces):
    """Returns the block of each piece. Of blocks with equal free space, it chooses the first."""
    free_space, counts, block_of = [], [], [0] * len(lengths)
    for piece in sort_longest_first(lengths):
        fitting = [
            b for b, space in enumerate(free_space) if space >= lengths[piece] and counts[b] < max_pieces
        ]
        tightest = min(fitting, key=lambda b: free_space[b], default=None)
        block_of[piece] = _put_in_block(tightest, lengths[piece], free_space, counts, block_size)
    return block_of


def compute_free_space(lengths, block_of, block_size):
    """Returns the free space of all blocks, sorted."""
    free_space = [block_size] * (max(block_of, default=-1) + 1)
    for length, block in zip(lengths, block_of, strict=True):
        free_space[block] -= length
    return sorted(free_space)


def get_pieces(plan):
    """Returns the pieces of each block, as lists of `(document, start, length)`."""
    pieces = list(zip(plan.documents.tolist(), plan.starts.tolist(), plan.lengths.tolist(), strict=True))
    splits = plan.block_splits.tolist()
    return [pieces[a:b] for a, b in zip(splits, splits[1:], strict=False)]


def apply(blocks, rows, block_size, pad_id, eos_id, *, true_positions=False):
    """Returns the columns of packed blocks, as lists of rows.

    Args:
        blocks: pieces `(document, start, length)` of each block.
        rows: ids of each document.
        block_size: number of slots per block.
        pad_id: id on padding.
        eos_id: id of separators.
        true_positions: whether positions count from the start of documents, not of segments.
    """
    columns = [[], [], [], [], []]
    for pieces in blocks:
        ids, mask, segments, positions, documents = [], [], [], [], []
        for number, (document, start, length) in enumerate(pieces, 1):
            with_separator = [*rows[document], eos_id]
            ids += with_separator[start : start + length]
            mask += [1] * length
            segments += [number] * length
            first = start if true_positions else 0
            positions += range(first, first + length)
            documents += [document] * length
        rest = block_size - len(ids)
        row = (ids + [pad_id] * rest, mask + [0] * rest, segments + [0] * rest)
        for column, values in zip(
            columns, (*row, positions + [0] * rest, documents + [-1] * rest), strict=True
        ):
            column.append(values)
    return columns


def _put_in_block(block, length, free_space, counts, block_size):
    if block is None:
        block = len(free_space)
        free_space.append(block_size)
        counts.append(0)
    free_space[block] -= length
    counts[block] += 1
    return block
