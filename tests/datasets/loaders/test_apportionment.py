"""Tests of the apportionment of rows to sources, against exact fractions."""

from fractions import Fraction

from hypothesis import given, strategies as st

from tokjax.datasets.loaders.schedules import Apportionment

weights = st.lists(st.one_of(st.integers(1, 10), st.integers(1, 10**9)), min_size=1, max_size=12)


def normalize(values):
    return [Fraction(value, sum(values)) for value in values]


@given(weights, st.one_of(st.integers(0, 100), st.integers(0, 10**15)))
def test_counts_follow_the_shares_and_never_decrease(values, start):
    shares = normalize(values)
    counter = Apportionment(list(range(len(shares))), [0], [shares])
    before = counter.count(start)
    for rows in range(start + 1, start + 40):
        counts = counter.count(rows)
        assert sum(counts) == rows
        assert all(old <= new for old, new in zip(before, counts, strict=True))
        worst = max(abs(count - rows * share) for count, share in zip(counts, shares, strict=True))
        assert worst < (1 if len(shares) <= 3 else 2)
        before = counts


@given(weights, st.integers(1, 1000))
def test_whole_numbers_of_rows_are_exact(values, periods):
    counter = Apportionment(list(range(len(values))), [0], [normalize(values)])
    assert counter.count(periods * sum(values)) == [periods * value for value in values]


@given(
    st.lists(st.tuples(st.integers(1, 50), st.lists(st.integers(0, 9), min_size=3, max_size=3)), min_size=1),
)
def test_errors_of_periods_do_not_add_up(periods):
    periods = [(length, values if any(values) else [1, 1, 1]) for length, values in periods]
    starts = [sum(length for length, _ in periods[:i]) for i in range(len(periods))]
    counter = Apportionment([0, [1, 2]], starts, [normalize(values) for _, values in periods])
    due, before, rows = [Fraction(0)] * 3, [0, 0, 0], 0
    for length, values in periods:
        for _ in range(length):
            rows += 1
            due = [a + b for a, b in zip(due, normalize(values), strict=True)]
            counts = counter.count(rows)
            assert sum(counts) == rows
            assert all(old <= new for old, new in zip(before, counts, strict=True))
            assert all(abs(count - each) < 2 for count, each in zip(counts, due, strict=True))
            before = counts


def test_groups_share_the_rows_of_their_group():
    half = Fraction(1, 2)
    counter = Apportionment([0, [1, [2, 3]]], [0], [[half, half / 2, half / 4, half / 4]])
    assert counter.count(8) == [4, 2, 1, 1]
