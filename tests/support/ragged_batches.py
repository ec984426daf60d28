"""Ragged batches for tests."""

import numpy as np

import tokjax


def make_full_ragged(rows):
    """Makes a ragged batch with all columns."""
    n = sum(map(len, rows))
    stops = np.arange(2, n + 2)
    return tokjax.make_ragged(
        [i for row in rows for i in row],
        np.cumsum([0, *map(len, rows)]),
        offsets=np.stack([stops - 1, stops], axis=1),
        special_tokens_mask=np.arange(n) % 2,
        token_type_ids=np.arange(n) % 3,
        word_ids=np.arange(n),
        sequence_ids=-(np.arange(n) % 2),
    )
