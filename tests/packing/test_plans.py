"""Plans of all strategies against loops, and blocks against their pieces."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.oracles import packing as oracle
from tests.support.numpy_jax_agreement import assert_agrees, assert_agrees_in_jax, assert_same
from tokjax.packing import bin_packing

STRATEGIES = ["concat", "first_fit", "best_fit"]
lengths_below = st.integers(1, 12).flatmap(
    lambda size: st.tuples(st.lists(st.integers(1, size), max_size=40), st.just(size))
)
id_rows = st.lists(st.lists(st.integers(0, 9), max_size=9), max_size=7)


def get_pieces(plan):
    """The pieces of each block, as tuples."""
    pieces = list(zip(plan.documents.tolist(), plan.starts.tolist(), plan.lengths.tolist(), strict=True))
    splits = plan.block_splits.tolist()
    return [pieces[a:b] for a, b in zip(splits, splits[1:], strict=False)]


@given(lengths_below, st.integers(1, 5))
def test_first_fit(given_lengths, max_pieces):
    lengths, size = given_lengths
    found = bin_packing.first_fit(np.array(lengths, np.int64), size, max_pieces)
    assert found.tolist() == oracle.first_fit(lengths, size, max_pieces)


@given(lengths_below)
def test_best_fit(given_lengths):
    lengths, size = given_lengths
    found = bin_packing.best_fit(np.array(lengths, np.int64), size, 2**31).tolist()
    expected = oracle.best_fit(lengths, size, 2**31)
    assert oracle.compute_free_space(lengths, found, size) == oracle.compute_free_space(
        lengths, expected, size
    )


@given(lengths_below, st.integers(1, 5))
def test_best_fit_keeps_to_the_number_of_pieces(given_lengths, max_pieces):
    lengths, size = given_lengths
    found = bin_packing.best_fit(np.array(lengths, np.int64), size, max_pieces)
    if lengths:
        assert np.bincount(found).max() <= max_pieces
        assert min(oracle.compute_free_space(lengths, found.tolist(), size)) >= 0
        assert sorted(set(found.tolist())) == list(range(found.max() + 1))


def test_many_blocks_and_chunks():
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(4, 1, 6_000), 1, 512).astype(np.int64)
    for size in (512, 4096):
        expected = oracle.first_fit(lengths.tolist(), size, 9)
        assert bin_packing.first_fit(lengths, size, 9).tolist() == expected
        best = bin_packing.best_fit(lengths, size, 2**31).tolist()
        slow = oracle.best_fit(lengths.tolist(), size, 2**31)
        assert oracle.compute_free_space(lengths, best, size) == oracle.compute_free_space(
            lengths, slow, size
        )


@given(
    id_rows,
    st.integers(1, 8),
    st.sampled_from(STRATEGIES),
    st.sampled_from(["split", "truncate"]),
    st.one_of(st.none(), st.integers(0, 3)),
    st.sampled_from([None, 77]),
    st.sampled_from(["segment", "document"]),
)
def test_blocks(rows, size, strategy, overlong, seed, eos_id, positions):
    ragged = tokjax.ragged_from_rows(rows)
    plan = tokjax.packing.plan_packing(
        ragged.lengths, size, strategy, overlong=overlong, seed=seed, separators=eos_id is not None
    )
    blocks = get_pieces(plan)
    check_pieces(rows, blocks, size, strategy, overlong, seed, eos_id)
    packed = assert_agrees(
        lambda p, r: tokjax.packing.apply_packing(p, r, pad_id=99, eos_id=eos_id, positions=positions),
        plan,
        ragged,
    )
    expected = oracle.apply(blocks, rows, size, 99, eos_id, true_positions=positions == "document")
    assert [column.tolist() for column in packed[:5]] == expected
    assert int(packed.total_tokens) == plan.total_tokens == sum(map(sum, expected[1]))
    assert plan.fill_rate == plan.total_tokens / (plan.num_blocks * size)
    assert plan.assignments.tolist() == [b for b, pieces in enumerate(blocks) for _ in pieces]
    assert_same(
        packed,
        tokjax.pack_blocks(
            ragged,
            block_size=size,
            pad_id=99,
            eos_id=eos_id,
            strategy=strategy,
            overlong=overlong,
            seed=seed,
            positions=positions,
        ),
        np.ndarray,
    )


def check_pieces(rows, blocks, size, strategy, overlong, seed, eos_id):
    """Each place of each document stands in one piece, whole documents in one block."""
    needed = [len(row) + (eos_id is not None) for row in rows]
    seen = [(document, start + i) for block in blocks for document, start, n in block for i in range(n)]
    assert len(set(seen)) == len(seen)
    indices = [sum(document == each for document, _ in seen) for each in range(len(rows))]
    wanted = needed if overlong == "split" else [min(n, size) for n in needed]
    without_last_separator = [a - b for a, b in zip(wanted, indices, strict=True)]
    allowed = [0] * len(rows)
    if eos_id is not None and strategy == "concat" and rows:
        last = without_last_separator.index(1) if 1 in without_last_separator else len(rows) - 1
        allowed[last] = without_last_separator[last]
        assert sum(without_last_separator) <= 1
        assert seed is not None or last == len(rows) - 1
    assert without_last_separator == allowed
    assert all(sum(n for *_, n in block) <= size for block in blocks)
    assert all(n > 0 for block in blocks for *_, n in block)
    firsts = [block[0][:2] for block in blocks if block]
    if seed is None:
        assert firsts == sorted(firsts)
        assert all(block == sorted(block) for block in blocks)
    if strategy != "concat":
        assert all(start % size == 0 for block in blocks for _, start, _ in block)


def test_a_seed_shuffles():
    plans = [tokjax.packing.plan_packing([3] * 50, 7, "best_fit", seed=seed) for seed in (0, 0, 1)]
    assert np.array_equal(plans[0].documents, plans[1].documents)
    assert not np.array_equal(plans[0].documents, plans[2].documents)
    assert sorted(plans[0].documents.tolist()) == list(range(50))


@given(id_rows, st.integers(1, 6), st.sampled_from(STRATEGIES), st.data())
def test_parts(rows, size, strategy, data):
    ragged = tokjax.ragged_from_rows(rows)
    plan = tokjax.packing.plan_packing(ragged.lengths, size, strategy, overlong="split")
    first = data.draw(st.integers(0, plan.num_blocks - 1))
    stop = data.draw(st.integers(first + 1, plan.num_blocks))
    full = tokjax.packing.apply_packing(plan, ragged, pad_id=99)
    for num_pieces in (None, len(plan.lengths) + 2):
        part = plan.part(first, stop, num_pieces=num_pieces)
        packed = assert_agrees(lambda p, r: tokjax.packing.apply_packing(p, r, pad_id=99), part, ragged)
        for column, of_part in zip(full[:5], packed[:5], strict=True):
            assert column[first:stop].tolist() == of_part.tolist()
        assert int(packed.total_tokens) == part.total_tokens


def test_parts_of_one_shape_compile_once():
    ragged = jax.tree.map(jnp.asarray, tokjax.ragged_from_rows([[1] * n for n in (3, 1, 4, 1, 5, 2, 6)]))
    plan = tokjax.packing.plan_packing(ragged.lengths, 6, "best_fit", max_segments=3)
    traces = []

    @jax.jit
    def apply(part, ragged):
        traces.append(part)
        return tokjax.packing.apply_packing(part, ragged, pad_id=0)

    for block in range(plan.num_blocks):
        apply(plan.part(block, block + 1, num_pieces=3), ragged)
    assert len(traces) == 1
    assert repr(traces[0]) == "PackingPlan(1 blocks of 6, traced)"


def test_results_of_any_kind_are_packed():
    tokenizer = tokjax.byte_level()
    batch = tokjax.encode_batch_result(tokenizer, ["abc", "d"])
    plan = tokjax.packing.plan_packing([3, 1], 4)
    expected = tokjax.packing.apply_packing(plan, batch.ragged, pad_id=0).ids.tolist()
    for results in (batch, list(batch)):
        assert tokjax.packing.apply_packing(plan, results, pad_id=0).ids.tolist() == expected
        middles = tokjax.objectives.fill_in_the_middle(
            results, np.zeros((2, 4), np.float32), prefix_id=256, middle_id=257, suffix_id=258
        )
        assert middles.lengths.tolist() == [6, 1]
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=r"tokjax\.ragged_from_rows\(rows\)"):
        tokjax.packing.apply_packing(plan, [[1, 2, 3], [4]], pad_id=0)


def test_rows_with_padding_after_them():
    """As `fill_in_the_middle(size=)` makes them."""
    rows = tokjax.Ragged(np.array([1, 2, 3, 4, 0, 0], np.int32), np.array([0, 3, 4], np.int32))
    plan = tokjax.packing.plan_packing([3, 1], 2)
    pack = partial(tokjax.packing.apply_packing, plan, pad_id=0)
    assert pack(rows).ids.tolist() == [[1, 2], [3, 4]]
    assert jax.jit(pack)(rows._replace(ids=rows.ids[:4])).ids.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="these rows have 6; .* remove ids that belong to no row"
    ):
        jax.jit(pack)(rows)


@pytest.mark.parametrize(("first", "stop"), [(0, "1"), (0.0, 1)])
def test_invalid_parts(first, stop):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="(first|stop) must be an integer"):
        tokjax.packing.plan_packing([1], 1).part(first, stop)


def test_a_full_plan_says_so():
    plan = tokjax.packing.plan_packing([3, 2, 4, 1], 5, "best_fit")
    assert repr(plan) == "PackingPlan(2 blocks of 5, 4 pieces, 10 tokens, 100.00% full)"
    assert tokjax.packing.plan_packing([], 4).total_tokens == 0
    assert tokjax.packing.plan_packing([0, 0], 4, "best_fit").num_blocks == 1


def test_more_than_int32_tokens_can_be_planned():
    plan = tokjax.packing.plan_packing([2**20] * 4096, 2**19, "best_fit", overlong="split")
    assert plan.total_tokens == 2**32
    rows = tokjax.Ragged(np.zeros(0, np.int32), np.arange(4097) * 2**20)
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match=r"more than int32 can count; apply plan\.part"
    ):
        tokjax.packing.apply_packing(plan, rows, pad_id=0)


def test_no_separator_follows_the_last_document_of_a_stream():
    plan = tokjax.packing.plan_packing([4, 3], 8, "concat", separators=True)
    assert get_pieces(plan) == [[(0, 0, 5), (1, 0, 3)]]
    assert len(get_pieces(tokjax.packing.plan_packing([4, 3], 8, "best_fit", separators=True))) == 2


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_many_pieces_of_a_block_are_in_the_order_of_documents(strategy):
    lengths = np.random.default_rng(0).integers(1, 5, 5000)
    blocks = get_pieces(tokjax.packing.plan_packing(lengths, 300, strategy))
    assert all(block == sorted(block) for block in blocks)
    assert [block[0] for block in blocks] == sorted(block[0] for block in blocks)


def test_blocks_are_not_empty():
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="block_size must be at least 1"):
        tokjax.packing.plan_packing([1], 0)


@pytest.mark.parametrize(
    ("lengths", "options", "message"),
    [
        ([3, 9], {"strategy": "best_fit"}, "document 1 has 9 tokens, more than a block of 8 holds"),
        (
            [8],
            {"strategy": "first_fit", "separators": True},
            "document 0 has 8 tokens and its separator, more",
        ),
        (
            [1, 1, 1],
            {"max_segments": 2},
            "block 0 would hold 3 segments, more than max_segments=2; strategy=",
        ),
        ([1], {"strategy": "worst_fit"}, "strategy must be one of 'concat', 'first_fit', 'best_fit', not 'w"),
        ([1], {"overlong": "drop"}, "overlong must be one of 'error', 'split', 'truncate', not 'drop'"),
        ([1], {"max_segments": 0}, "max_segments must be at least 1"),
        ([1], {"seed": 0.5}, "seed must be an integer"),
        ([[1]], {}, r"lengths must be non-negative integers, shape \(documents,\)"),
    ],
)
def test_plans_reject_invalid_arguments(lengths, options, message):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        tokjax.packing.plan_packing(lengths, 8, **options)


def test_plans_for_other_rows():
    plan = tokjax.packing.plan_packing([2, 2], 4)
    for rows, message in (
        ([[1, 2, 3]], "rows of 4 tokens in total, and these rows have 3"),
        ([[1, 2, 3, 4]], "refers to document 1, and there are 1 rows"),
        ([[], [1, 2, 3, 4]], "made for longer rows"),
    ):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            tokjax.packing.apply_packing(plan, tokjax.ragged_from_rows(rows), pad_id=0, eos_id=5)
    other = tokjax.ragged_from_rows([[1, 2, 3], [4]])
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="made for longer rows"):
        tokjax.packing.apply_packing(tokjax.packing.plan_packing([1, 3], 4), other, pad_id=0, eos_id=5)
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="positions must be 'segment' or 'document'"):
        tokjax.packing.apply_packing(plan, tokjax.ragged_from_rows([[1, 2]] * 2), pad_id=0, positions="block")
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="the plan has 1 blocks; first=0, stop=2"):
        plan.part(0, 2)
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="blocks 0 to 0 have 2 pieces, more than 1"):
        plan.part(0, 1, num_pieces=1)


class TestLossMasks:
    ROWS = ([3, 6, 7], [8], [], [9, 5, 5, 2])
    MASKS = ([0, 1, 1], [1], [], [0, 0, 1, 0])

    @pytest.mark.parametrize("strategy", STRATEGIES)
    @pytest.mark.parametrize("eos_id", [None, 1])
    def test_they_go_with_their_tokens(self, strategy, eos_id):
        """As ids of their own would, and separators count if the token before them does."""
        pack = partial(tokjax.pack_blocks, block_size=5, pad_id=0, eos_id=eos_id, strategy=strategy)
        ragged = tokjax.ragged_from_rows(self.ROWS)
        flat = np.concatenate(self.MASKS).astype(np.int32)
        blocks = pack(ragged, loss_mask=self.MASKS)
        numbered = pack(ragged._replace(ids=np.arange(1, 9, dtype=np.int32)), eos_id=eos_id and -1).ids
        known = dict(enumerate(flat.tolist(), 1)) | {0: 0}
        expected, before = [], 0
        for number in numbered.reshape(-1).tolist():
            before = before if number == -1 else known[number]
            expected.append(before)
        counted = blocks.segment_ids > 0
        is_first = np.diff(blocks.segment_ids, prepend=0, axis=1) != 0
        found = np.where(is_first, 0, blocks.loss_mask)  # (the first of a segment is no target in any case)
        assert found.tolist() == np.where(is_first, 0, np.reshape(expected, numbered.shape)).tolist()
        assert not blocks.loss_mask[~counted].any()
        assert blocks.causal_lm_labels().tolist() == (
            pack(ragged).causal_lm_labels(loss_mask=blocks.loss_mask).tolist()
        )
        for given_mask in (flat, flat > 0, tokjax.ragged_from_rows(self.MASKS)):
            assert pack(ragged, loss_mask=given_mask).loss_mask.tolist() == blocks.loss_mask.tolist()

    @pytest.mark.parametrize("eos_id", [None, 1])
    def test_they_are_the_same_in_jax(self, eos_id):
        ragged, mask = tokjax.ragged_from_rows(self.ROWS), np.concatenate(self.MASKS).astype(np.int32)
        ragged = ragged._replace(row_splits=ragged.row_splits.astype(np.int32))
        plan = tokjax.packing.plan_packing(ragged.lengths, 5, separators=eos_id is not None)
        pack = partial(tokjax.packing.apply_packing, plan, pad_id=0, eos_id=eos_id)
        assert_agrees_in_jax(lambda r, m: pack(r, loss_mask=m), pack(ragged, loss_mask=mask), (ragged, mask))

    def test_conversations(self, tokenizer):
        template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
        talk = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
        chats = [tokjax.encode_chat(tokenizer, talk * n, template) for n in (1, 2, 1)]
        blocks = tokjax.pack_blocks(chats, block_size=100, pad_id=0)
        masks = [chat.assistant_mask for chat in chats]
        alone = tokjax.pack_blocks([c.result for c in chats], block_size=100, pad_id=0, loss_mask=masks)
        assert all(np.array_equal(left, right) for left, right in zip(blocks, alone, strict=True))
        assert blocks.loss_mask.sum() == sum(map(sum, masks))
        assert (blocks.causal_lm_labels() != -100).sum() == blocks.loss_mask.sum()
        huggingface = blocks.to_huggingface()
        assert ((huggingface["labels"] != -100) == (blocks.loss_mask == 1)).all()
        assert (blocks.to_levanter()["loss_weight"] > 0).sum() == blocks.loss_mask.sum()
        assert (blocks.to_maxtext()["targets_segmentation"] > 0).sum() == blocks.loss_mask.sum()
        without = [chat._replace(assistant_mask=None) for chat in chats]
        assert tokjax.pack_blocks(without, block_size=100, pad_id=0).loss_mask is None
        with pytest.raises(
            tokjax.errors.InvalidArgumentError,
            match="chat 0 was encoded without an assistant mask, and",
        ):
            tokjax.pack_blocks([*without[:1], *chats], block_size=100, pad_id=0)
        assert tokjax.pack_blocks(chats, block_size=100, pad_id=0, loss_mask=masks[::1]).loss_mask is not None

    @pytest.mark.parametrize(
        ("mask", "message"),
        [
            (np.ones(7, int), r"loss_mask has shape \(7,\), and the flat ids of all rows have \(8,\)"),
            ([[1, 1, 1], [1]], "loss_mask has 2 rows, and there are 4 rows of ids; pass one mask"),
            ([[1, 1, 1], [1, 1], [], [1, 1, 1]], "row 1 of loss_mask has 2 entries, and row 1 has 1 ids"),
            ([1, 1, 1, 1, 1, 1, 1, 1], "or a list with a mask for each row"),
        ],
    )
    def test_masks_that_do_not_fit(self, mask, message):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            tokjax.pack_blocks(tokjax.ragged_from_rows(self.ROWS), block_size=5, pad_id=0, loss_mask=mask)
