"""Oracle of the metrics of a vocabulary report: loops over ids and characters."""

import heapq
import math
import re
from fractions import Fraction

NAN = float("nan")


def divide(dividend, divisor):
    return dividend / divisor if divisor else NAN


def compute_text_size(texts):
    documents = nbytes = characters = words = 0
    for text in texts:
        if not text:
            continue
        documents += 1
        if isinstance(text, bytes):
            nbytes += len(text)
            readable = text.decode("utf-8", "surrogateescape")
            characters += len(readable)
        else:
            readable = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            nbytes += len(readable.encode("utf-8"))
            characters += len(text)
        words += len(re.findall(r"\S+", readable))
    return {"documents": documents, "nbytes": nbytes, "characters": characters, "words": words}


def compute_huffman_length(counts):
    """Returns the mean code length: each joined token is one bit longer than its parts, found by a heap."""
    heap = [(n, i, {i: 0}) for i, n in enumerate(counts) if n]
    if not heap:
        return NAN
    heapq.heapify(heap)
    while len(heap) > 1:
        (n, i, left), (m, _, right) = heapq.heappop(heap), heapq.heappop(heap)
        heapq.heappush(heap, (n + m, i, {token: bits + 1 for token, bits in (left | right).items()}))
    lengths = heap[0][2]
    return sum(counts[token] * bits for token, bits in lengths.items()) / sum(counts)


def compute_renyi_efficiency(counts, order):
    """Returns the Rényi efficiency, in rational arithmetic up to the power for whole orders."""
    total = sum(counts)
    if not total or len(counts) < 2:
        return NAN
    entropy = math.log2(sum(Fraction(n, total) ** order for n in counts if n)) / (1 - order)
    return entropy / math.log2(len(counts))


def compute_token_use(texts, rows, vocabulary):
    """Computes all metrics of a `TokenUse`.

    Args:
        texts: texts.
        rows: token ids of each text.
        vocabulary: vocabulary of the tokenizer.
    """
    size = compute_text_size(texts)
    times = dict.fromkeys(vocabulary.bytes_by_id, 0)
    for row in rows:
        for id_ in row:
            times[id_] += 1
    tokens = sum(times.values())
    ordinary = sorted((id_, token) for token, id_ in vocabulary.ordinary.items())
    entropy = sum(-n / tokens * math.log2(n / tokens) for n in times.values() if n) if tokens else NAN
    columns = [times.get(id_, 0) for id_ in range(max(vocabulary.bytes_by_id) + 1)]
    huffman = compute_huffman_length(columns)
    single = {id_ for id_, token in ordinary if len(token) == 1}
    fallback = {id_ for id_, token in ordinary if token in {b"<0x%02X>" % i for i in range(256)}}
    if len(fallback) == 256:
        single |= fallback
    longest = max((len(token) for _, token in ordinary), default=-1)
    return {
        "tokens": tokens,
        "vocab_size": max(vocabulary.bytes_by_id) + 1,
        "num_ordinary": len(ordinary),
        "num_special": len(vocabulary.special),
        "bytes_per_token": divide(size["nbytes"], tokens),
        "characters_per_token": divide(size["characters"], tokens),
        "tokens_per_word": divide(tokens, size["words"]),
        "bits_per_token": entropy,
        "bits_per_byte": divide(entropy * tokens, size["nbytes"]),
        "huffman_bits_per_token": huffman,
        "huffman_bits_per_byte": divide(huffman * tokens, size["nbytes"]),
        "renyi_efficiency": compute_renyi_efficiency(columns, 2.5),
        "unused_share": divide(sum(times[id_] == 0 for id_, _ in ordinary), len(ordinary)),
        "single_use_share": divide(sum(times[id_] == 1 for id_, _ in ordinary), len(ordinary)),
        "unknown_share": divide(times.get(vocabulary.get_role_id("unk"), 0), tokens),
        "single_byte_share": divide(sum(times[id_] for id_ in single), tokens),
        "vocabulary_lengths": [sum(len(token) == n for _, token in ordinary) for n in range(longest + 1)],
        "used_lengths": [
            sum(times[id_] for id_, token in ordinary if len(token) == n) for n in range(longest + 1)
        ],
        "longest": [
            (id_, len(token), times[id_]) for id_, token in sorted(ordinary, key=lambda t: (-len(t[1]), t[0]))
        ][:20],
        "most_frequent": sorted(
            ((id_, n) for id_, n in times.items() if n), key=lambda item: (-item[1], item[0])
        )[:20],
    }
