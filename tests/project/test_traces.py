"""Tests of the traces that the documentation shows."""

import tokjax
from docs.traces.engine import compute_merge_bounds, iter_merging_rounds
from docs.traces.packing import iter_best_fit_steps
from docs.traces.training import iter_training_steps
from tests.conftest import CORPUS
from tests.oracles.naive_bpe import train_naively
from tokjax.bpe.batched_merging import BatchMerger
from tokjax.bpe.hash_tables import make_pretokens
from tokjax.bpe.sequential_merging import merge_bytes
from tokjax.trainer import count_pretokens, train_bpe

WORDS = [b" lowest", b" widely", b" understanding", "naïve".encode()]


def train_rules():
    return train_bpe(CORPUS * 3, vocab_size=320, progress=False).tokenizer.rules


def test_merging_rounds_end_with_the_tokens():
    *_, last = iter_merging_rounds(BatchMerger(train_rules()), make_pretokens(WORDS))
    expected = [merge_bytes(pretoken, train_rules()) for pretoken in WORDS]
    shown = [
        [part.decode("utf-8", "backslashreplace").replace(" ", "␣") for part in pretoken]
        for pretoken in expected
    ]
    assert [pretoken.split("·") for pretoken in last] == shown


def test_safe_pair_has_lowest_adjacent_rank():
    merge_bounds = compute_merge_bounds(BatchMerger(train_rules()), b"lower lower")
    ranks = [{"never": 10**9}.get(bound.rank, bound.rank) for bound in merge_bounds]
    around = [
        min(10**9 if selected == "never" else selected for selected in (bound.left_bound, bound.right_bound))
        for bound in merge_bounds
    ]
    safe = [bound.is_safe for bound in merge_bounds]
    assert any(safe)
    assert all(rank <= other for rank, other, is_safe in zip(ranks, around, safe, strict=True) if is_safe)


def test_training_steps_equal_sequential_merges():
    pretokens = ["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3
    steps = list(iter_training_steps(count_pretokens(pretokens, progress=False), 100, width=3))
    merged = [pair for step in steps for pair in step.merges]
    naive = train_naively([pretoken.encode() for pretoken in pretokens], 100)
    assert merged == ["·".join(map(bytes.decode, pair)) for pair in naive]
    assert len(steps) < len(merged)


def test_training_trace_stops_at_the_limit():
    counts = count_pretokens(CORPUS, progress=False)
    assert sum(len(step.merges) for step in iter_training_steps(counts, 7)) == 7


def test_packing_trace_ends_like_the_plan():
    lengths = [10, 8, 6, 6, 5, 3, 2, 2]
    steps = list(iter_best_fit_steps(lengths, 14))
    plan = tokjax.packing.plan_packing(lengths, 14, "best_fit")
    assert [step.block for step in steps] == [0, 1, 1, 2, 2, 2, 0, 0]
    assert steps[-1].free_slots == [0, 0, 0]
    assert plan.num_blocks == 3
    assert [step.length for step in steps] == lengths
