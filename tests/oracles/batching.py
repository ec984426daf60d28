"""Reference implementations of batching as Python loops over lists."""


def pad_rows(rows, length, pad_id, pad_side="right", truncation="right"):
    ids, mask = [], []
    for row in rows:
        truncated = row[:length] if truncation == "right" else row[max(len(row) - length, 0) :]
        padding = length - len(truncated)
        if pad_side == "right":
            ids.append(truncated + [pad_id] * padding)
            mask.append([1] * len(truncated) + [0] * padding)
        else:
            ids.append([pad_id] * padding + truncated)
            mask.append([0] * padding + [1] * len(truncated))
    return ids, mask


def shift_labels(ids, mask, ignore_index=-100, segments=None, loss_mask=None):
    labels = []
    for r, row in enumerate(ids):
        valid = [i for i in range(len(row)) if mask[r][i]]
        out = [ignore_index] * len(row)
        for position, target in zip(valid, valid[1:], strict=False):
            if segments is not None and segments[r][position] != segments[r][target]:
                continue
            if loss_mask is not None and not loss_mask[r][target]:
                continue
            out[position] = row[target]
        labels.append(out)
    return labels


def find_boundaries(ids, eos):
    boundaries, start = [], 0
    for i, id_ in enumerate(ids):
        if id_ == eos:
            boundaries.append((start, i + 1))
            start = i + 1
    if start < len(ids):
        boundaries.append((start, len(ids)))
    return boundaries


def look_ahead(ids, mask, count, ignore_index=-100, segments=None, loss_mask=None):
    """Returns the labels of multi-token prediction of one row: one list for each distance."""
    labels = [[ignore_index] * len(ids) for _ in range(count)]
    for start in range(len(ids)):
        position = start if mask[start] else None
        for distance in range(count):
            later = [] if position is None else [i for i in range(position + 1, len(ids)) if mask[i]]
            target = later[0] if later else None
            if target is None or (segments is not None and segments[target] != segments[start]):
                break
            if loss_mask is None or loss_mask[target]:
                labels[distance][start] = ids[target]
            position = target
    return labels


def reorder_for_devices(tokens, cp_size, strategy):
    """Returns the tokens of device 0, then those of device 1, and so on."""
    if strategy == "striped":
        return [token for r in range(cp_size) for token in tokens[r::cp_size]]
    size = len(tokens) // (2 * cp_size)
    chunks = [tokens[i * size : (i + 1) * size] for i in range(2 * cp_size)]
    return [token for r in range(cp_size) for token in chunks[r] + chunks[2 * cp_size - 1 - r]]
