"""Tests of schedules and of the rows of each step, against exact fractions and a loop over all steps."""

from fractions import Fraction

import numpy as np
from hypothesis import given, strategies as st

from tests.support.rejections import rejects
from tokjax.datasets.loaders.schedules import (
    Apportionment,
    RowSchedule,
    as_fraction,
    merge_schedules,
    parse_schedule,
)

sizes = st.integers(1, 7)
SHARES = [
    (Fraction(1, 2), Fraction(1, 2)),
    (Fraction(3, 4), Fraction(1, 4)),
    (Fraction(0), Fraction(1)),
    (Fraction(2, 7), Fraction(5, 7)),
]


def scheduled(values):
    """Strategy for schedules in phases, as `parse_schedule` returns them."""
    return st.dictionaries(st.integers(1, 30), values, max_size=4).flatmap(
        lambda phases: values.map(lambda first: {0: first, **phases})
    )


@given(scheduled(sizes), scheduled(st.sampled_from([8, 16])), scheduled(st.sampled_from(SHARES)))
def test_rows_of_each_step(batch_sizes, block_sizes, shares):
    schedule = RowSchedule(merge_schedules(batch_sizes, block_sizes, shares), [0, 1])
    next_positions = {(size, source): 0 for size in (8, 16) for source in (0, 1)}
    for step in range(45):

        def at(phases, step=step):
            return phases[max(first for first in phases if first <= step)]

        assert schedule.count_rows(step) == {
            size: [next_positions[size, 0], next_positions[size, 1]] for size in set(block_sizes.values())
        }
        block_size, sources, positions = schedule.locate(step)
        assert block_size == at(block_sizes)
        assert len(sources) == len(positions) == at(batch_sizes)
        for source in (0, 1):
            rows = positions[sources == source].tolist()
            first = next_positions[block_size, source]
            assert rows == list(range(first, first + len(rows)))
            next_positions[block_size, source] += len(rows)
            if not at(shares)[source]:
                assert len(rows) <= 1  # what was due before may be rounded up after the change
    total = sum(next_positions.values())
    assert schedule.count_total_rows(45) == total
    assert schedule.find_first_step(lambda step: schedule.count_total_rows(step) >= total) == 45
    assert schedule.find_first_step(lambda step: step < 0) is None


def test_rows_of_a_source_are_spread_over_the_batch():
    schedule = RowSchedule(merge_schedules({0: 8}, {0: 4}, {0: (Fraction(3, 4), Fraction(1, 4))}), [0, 1])
    assert schedule.locate(0)[1].tolist() == [0, 0, 1, 0, 0, 0, 1, 0]


class TestParseSchedule:
    def test_forms_of_schedules(self):
        assert parse_schedule("size", 3, int, None) == {0: 3}
        assert parse_schedule("size", {5: 4, 0: 3, 9: 4}, int, None) == {0: 3, 5: 4}
        assert parse_schedule("size", lambda step: step // 4, int, 10) == {0: 0, 4: 1, 8: 2}
        assert parse_schedule("size", {np.int64(0): 3}, int, None) == {0: 3}
        assert parse_schedule("weights", {"a": 1}, dict, None) == {0: {"a": 1}}

    def test_errors(self):
        def parse(schedule):
            return parse_schedule("batch_size", schedule, int, None)

        with rejects("batch_size starts at step 5, and the first step is 0; add a value for step 0"):
            parse({5: 1})
        with rejects("a step of batch_size must be at least"):
            parse({0: 1, -5: 1})
        with rejects("batch_size is a function of the step, so the length of the run must be known; pass"):
            parse(lambda _: 1)


def test_weights_are_the_fractions_they_are_written_as():
    assert as_fraction("weight", 0.1) == Fraction(1, 10)
    assert as_fraction("weight", np.float32(0.5)) == Fraction(1, 2)
    for integer in (3, 2**53 + 1, 10**400, np.uint64(2**64 - 1)):
        assert as_fraction("weight", integer) == int(integer)
    assert as_fraction("weight", Fraction(1, 3)) == Fraction(1, 3)
    for wrong in (-1, float("nan"), float("inf"), "1", True, None):
        with rejects("weight must be a number of at least 0, not"):
            as_fraction("weight", wrong)


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
