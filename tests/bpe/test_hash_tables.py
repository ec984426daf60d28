"""Tests of the hash tables."""

import numpy as np
from hypothesis import given, strategies as st

from tokjax.bpe.hash_tables import ABSENT, HashTable

numbers = st.integers(0, 2**64 - 1)


@given(
    st.dictionaries(
        st.tuples(st.integers(1, 2**64 - 1), numbers, numbers), st.integers(-(2**40), 2**40), max_size=60
    ),
    st.integers(1, 3),
)
def test_hash_table_equals_dictionary(entries, columns):
    entries = {key[:columns]: value for key, value in entries.items()}
    table = HashTable(columns, capacity=1)
    expected = {}
    keys = np.array(list(entries), np.uint64).reshape(-1, columns)
    values = np.array(list(entries.values()), np.int64)
    for start in range(0, len(keys), 7):
        part = np.arange(start, min(start + 7, len(keys)))
        table.add(keys[np.concatenate([part, part])], np.concatenate([values[part], values[part] + 1]))
        table.add(keys[part], np.zeros(len(part), np.int64))  # existing keys keep their values
        expected |= dict(list(entries.items())[start : start + 7])
        assert table.find(keys).tolist() == [expected.get(key, ABSENT) for key in entries]
    assert len(table) == len(expected)


def test_hash_slots_differ_per_table():
    keys = np.arange(1, 100, dtype=np.uint64)[:, None]
    orders = set()
    for _ in range(3):
        table = HashTable(1)
        table.add(keys, np.zeros(99, np.int64))
        orders.add(tuple(np.flatnonzero(table._slots.rows[:, 0]).tolist()))
    assert len(orders) == 3
