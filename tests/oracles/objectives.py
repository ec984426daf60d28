"""Oracles of training objectives: Python loops over lists, written from their definitions."""

import numpy as np

from tests.oracles.batching import shift_labels

IGNORED = -100


def draw_integer(draw):
    """Returns the 24 random bits of a draw as an integer."""
    return int(float(draw) * 2**24)


def draw_below(draw, limit):
    return min(int(np.float32(draw) * np.float32(limit)), limit - 1)


def group_words(word_ids, sequence_ids):
    """Returns the token positions of each word, as one list per word."""
    words = []
    for i, word in enumerate(word_ids):
        follows = i > 0 and word_ids[i - 1] == word and sequence_ids[i - 1] == sequence_ids[i]
        if word >= 0 and follows:
            words[-1].append(i)
        elif word >= 0:
            words.append([i])
    return words


def mask_row(ids, draws, eligible, words, options):
    """Returns the ids and labels of masked language modelling.

    Args:
        ids: ids of the row.
        draws: three lists of random numbers, one number per token each.
        eligible: whether each token can be chosen.
        words: lists of token positions, which are chosen together.
        options: mask id, probabilities and replacement ids.
    """
    choice_draws, action_draws, id_draws = draws
    result, labels = list(ids), [IGNORED] * len(ids)
    for word in words:
        if choice_draws[word[-1]] >= np.float32(options["probability"]):
            continue
        for i in (i for i in word if eligible[i]):
            labels[i] = ids[i]
            if action_draws[i] < np.float32(options["mask_share"]):
                result[i] = options["mask_id"]
            elif action_draws[i] < np.float32(options["mask_share"] + options["random_share"]):
                pool = options["pool"]
                result[i] = pool[draw_below(id_draws[i], len(pool))]
    return result, labels


def count_noise(length, density, mean_span):
    """Returns the number of noise tokens and of noise spans, as T5 computes them."""
    if length < 2 or density == 0:
        return 0, 0
    noise = int(np.round(np.float32(length) * np.float32(density)))
    noise = min(max(noise, 1), length - 1)
    spans = int(np.round(np.float32(noise) / np.float32(mean_span)))
    return noise, min(max(spans, 1), noise, length - noise)


def draw_segment_lengths(draws, items, segments):
    """Returns the lengths of random segments.

    A segment starts at the first item, and at the other items with the smallest draws.
    """
    if segments == 0:
        return []
    others = sorted(range(1, items), key=lambda i: (draw_integer(draws[i]), i))
    starts = sorted([0, *others[: segments - 1]])
    return [stop - start for start, stop in zip(starts, [*starts[1:], items], strict=True)]


def compute_noise_mask(draws, length, density, mean_span):
    noise, spans = count_noise(length, density, mean_span)
    if spans == 0:
        return [False] * length
    noise_lengths = draw_segment_lengths(draws, noise, spans)
    clean_lengths = draw_segment_lengths(draws[::-1], length - noise, spans)
    mask = []
    for clean_length, noise_length in zip(clean_lengths, noise_lengths, strict=True):
        mask += [False] * clean_length + [True] * noise_length
    return mask


def replace_with_sentinels(tokens, hidden, sentinels):
    result, used = [], 0
    for i, token in enumerate(tokens):
        if not hidden[i]:
            result.append(token)
        elif i == 0 or not hidden[i - 1]:
            result.append(sentinels[used])
            used += 1
    return result


def corrupt_row(tokens, draws, density, mean_span, sentinels, eos, mode=None):
    """Returns inputs and targets, without padding. Both are empty for a row without tokens."""
    if not tokens:
        return [], []
    mask = compute_noise_mask(draws, len(tokens), density, mean_span)
    inputs = replace_with_sentinels(tokens, mask, sentinels)
    targets = replace_with_sentinels(tokens, [not noise for noise in mask], sentinels)
    return [mode] * (mode is not None) + inputs + [eos], [*targets, eos]


def recombine(inputs, targets, sentinels, eos):
    """Reconstructs the original tokens from inputs and targets."""
    assert inputs[-1] == targets[-1] == eos
    spans, current = {}, None
    for token in targets[:-1]:
        if token in sentinels:
            current = spans.setdefault(token, [])
        else:
            current.append(token)
    return [t for token in inputs[:-1] for t in (spans[token] if token in sentinels else [token])]


def t5_random_spans_helper(inputs_length, density, mean_span, number):
    """Returns the lengths of tokens and targets for a length of inputs, as the function of T5 does.

    Args:
        inputs_length: length of the inputs.
        density: fraction of tokens that are noise.
        mean_span: mean length of noise spans.
        number: type of the numbers that are rounded, `float` or `np.float32`.
    """

    def compute_lengths(tokens_length):
        noise = round(number(tokens_length) * number(density))
        spans = round(number(noise) / number(mean_span))
        return tokens_length - noise + spans + 1, noise + spans + 1

    tokens_length = inputs_length
    while compute_lengths(tokens_length + 1)[0] <= inputs_length:
        tokens_length += 1
    inputs_length, targets_length = compute_lengths(tokens_length)
    if density == 0.5 and targets_length > inputs_length:
        return tokens_length - 1, targets_length - 1
    return tokens_length, targets_length


def split_row(ids, mask, draw):
    """Returns the labels, prefix mask and prefix length of one row."""
    valid = [i for i in range(len(ids)) if mask[i]]
    split = min(len(valid), 1 + draw_below(draw, max(len(valid) - 1, 1)))
    prefix = [int(i in valid[:split]) for i in range(len(ids))]
    suffix = [int(i in valid[split:]) for i in range(len(ids))]
    return shift_labels([ids], [mask], IGNORED, None, [suffix])[0], prefix, split


def reorder_middle_last(document, draws, rate, spm_rate, prefix_id, middle_id, suffix_id):
    if len(document) < 3 or draws[0] >= np.float32(rate):
        return document
    low, high = sorted(draw_below(draw, len(document) + 1) for draw in draws[2:])
    prefix, middle, suffix = document[:low], document[low:high], document[high:]
    if draws[1] < np.float32(spm_rate):
        return [prefix_id, suffix_id, *suffix, middle_id, *prefix, *middle]
    return [prefix_id, *prefix, suffix_id, *suffix, middle_id, *middle]


def compute_assistant_mask(ids, start, end):
    def find_template(template):
        return [i for i in range(len(ids)) if ids[i : i + len(template)] == template]

    mask = []
    for index in range(len(ids)):
        opened = max((i + len(start) for i in find_template(start) if i + len(start) <= index), default=None)
        if opened is None:
            mask.append(0)
            continue
        closing = min((i for i in find_template(end) if i >= opened), default=len(ids))
        opening = min((i for i in find_template(start) if i >= opened), default=len(ids))
        stop = opening if opening < closing else closing + len(end)
        mask.append(int(index < stop))
    return mask


def add_mask_noise(ids, draws, rates, maskable, mask_id):
    """Returns ids, labels and weights of masked diffusion. All arguments have one entry per token."""
    result, labels, weights = [], [], []
    for id_, draw, rate, can_mask in zip(ids, draws, rates, maskable, strict=True):
        masked = can_mask and draw < rate
        result.append(mask_id if masked else id_)
        labels.append(id_ if masked else IGNORED)
        weights.append(float(np.float32(1) / rate) if masked else 0.0)
    return result, labels, weights


def hash_ngram(tokens, multipliers, size, combine):
    """Returns the row of an n-gram, in unbounded integers; the last token comes first."""
    value = 0
    for token, multiplier in zip(tokens, multipliers, strict=False):
        product = token * multiplier % 2**64
        value = value ^ product if combine == "xor" else (value + product) % 2**64
    return value % size


def hash_ngrams(ids, tables, multipliers, pad_id, segments, combine):
    """Returns the rows of the n-grams of one row of ids: one list per position."""
    rows = []
    for position in range(len(ids)):
        earlier = [ids[position]]
        for i in range(position - 1, -1, -1):
            if segments is not None and segments[i] != segments[position]:
                break
            earlier.append(ids[i])
        earlier += [pad_id] * len(multipliers)
        rows.append([hash_ngram(earlier[:n], multipliers, size, combine) for n, size in tables])
    return rows


def fold_sum(values):
    """Adds the second half of float32 numbers to the first half, until one is left."""
    while len(values) > 1:
        half = len(values) // 2
        tail = values[len(values) - half :]
        values = [np.float32(a + b) for a, b in zip(values, tail, strict=False)] + values[
            half : len(values) - half
        ]
    return values[0] if values else np.float32(0)
