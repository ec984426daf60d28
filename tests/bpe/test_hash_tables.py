"""Tests of the hash tables."""

import numpy as np
from hypothesis import example, given, strategies as st

from tokjax.bpe.hash_tables import (
    ABSENT,
    HashTable,
    HashTables,
    LongPretokens,
    make_pretokens,
)

numbers = st.integers(0, 2**64 - 1)
pretokens = st.builds(
    lambda part, times, end: (part * times + end)[:130],
    st.sampled_from([b"a", b"ab", b"abcdefgh", b"\xff\xfe", b"\0", b"a\0\7"]),
    st.integers(1, 70),
    st.binary(max_size=3),
)


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
        orders.add(tuple(np.flatnonzero(table._rows[:, 0]).tolist()))
    assert len(orders) == 3


@given(st.lists(pretokens, max_size=40), st.lists(pretokens, max_size=20))
def test_tables_equal_dictionary(known, others):
    """Of several equal pre-tokens, the first value counts."""
    tables = HashTables(make_pretokens([b"\n"]), np.array([-7]))
    expected = {b"\n": -7}
    for start in range(0, len(known), 9):
        part = known[start : start + 9]
        tables.add(make_pretokens(part), np.arange(start, start + len(part)))
        for i, pretoken in enumerate(part, start):
            expected.setdefault(pretoken, i)
    sought = [*known, *others, b"\n"]
    assert tables.find(make_pretokens(sought)).tolist() == [expected.get(each, ABSENT) for each in sought]


@given(st.lists(pretokens, max_size=40))
@example([b"\0" * length for length in range(1, 20)])
@example([b"abc\0\0\0\0\4", b"abc"])
def test_unique_pretokens(sought):
    tables = HashTables(make_pretokens([b"\n"]), np.array([0]))
    examples, inverse = tables.unique(make_pretokens(sought))
    assert [sought[examples[group]] for group in inverse.tolist()] == sought
    assert len(examples) == len(set(sought))


def test_equal_hashes_of_long_pretokens_are_told_apart():
    """A pre-token whose hash is taken is not found, so it is never confused with the other one."""
    table = LongPretokens()
    read_words = table._read_words

    def read_words_with_one_hash(part):
        words, num_words, hashes = read_words(part)
        return words, num_words, np.ones_like(hashes)

    table._read_words = read_words_with_one_hash
    texts = [b"a" * 20, b"a" * 19 + b"b", b"a" * 21]
    table.add(make_pretokens(texts[:1]), np.array([5]))
    table.add(make_pretokens(texts[1:]), np.array([6, 7]))
    assert table.find(make_pretokens(texts)).tolist() == [5, ABSENT, ABSENT]
    examples, inverse = table.unique(make_pretokens(texts * 2))
    assert [(texts * 2)[examples[group]] for group in inverse.tolist()] == texts * 2
