"""Tests of packed blocks and their loss masks, against an oracle."""

from functools import partial

import jax
import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.oracles import packing as oracle
from tests.support.numpy_jax_agreement import assert_agrees, assert_agrees_in_jax, assert_same
from tests.support.rejections import rejects
from tests.support.variants import mark_slow_except

STRATEGIES = ["concat", "first_fit", "best_fit"]

id_rows = st.lists(st.lists(st.integers(0, 9), max_size=9), max_size=7)


@given(
    id_rows,
    st.integers(1, 8),
    st.sampled_from(STRATEGIES),
    st.sampled_from(["split", "truncate"]),
    st.one_of(st.none(), st.integers(0, 3)),
    st.sampled_from([None, 77]),
    st.sampled_from(["segment", "document"]),
)
def test_blocks_agree_with_an_oracle(rows, size, strategy, overlong, seed, eos_id, positions):
    ragged = tokjax.ragged_from_rows(rows)
    plan = tokjax.packing.plan_packing(
        ragged.lengths, size, strategy, overlong=overlong, seed=seed, separators=eos_id is not None
    )
    blocks = oracle.get_pieces(plan)
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
    """Checks that the pieces cover each document once, and that blocks are in order and not overfull."""
    slot_counts = [len(row) + (eos_id is not None) for row in rows]
    covered = [(document, start + i) for block in blocks for document, start, n in block for i in range(n)]
    assert len(set(covered)) == len(covered)
    covered_counts = [sum(document == row for document, _ in covered) for row in range(len(rows))]
    expected_counts = slot_counts if overlong == "split" else [min(n, size) for n in slot_counts]
    missing = [a - b for a, b in zip(expected_counts, covered_counts, strict=True)]
    allowed = [0] * len(rows)
    if eos_id is not None and strategy == "concat" and rows:
        # The last document has no separator. With a seed, any document can be the last.
        last = missing.index(1) if 1 in missing else len(rows) - 1
        allowed[last] = missing[last]
        assert sum(missing) == 1 or (sum(missing) == 0 and overlong == "truncate")
        assert seed is not None or last == len(rows) - 1
    assert missing == allowed
    assert all(sum(n for *_, n in block) <= size for block in blocks)
    assert all(n > 0 for block in blocks for *_, n in block)
    if strategy == "concat":
        assert len(blocks) == max(1, -(-len(covered) // size))
    firsts = [block[0][:2] for block in blocks if block]
    if seed is None:
        assert firsts == sorted(firsts)
        assert all(block == sorted(block) for block in blocks)
    if strategy != "concat":
        assert all(start % size == 0 for block in blocks for _, start, _ in block)


def test_all_kinds_of_results_are_accepted():
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
    with rejects(r"tokjax\.ragged_from_rows\(rows\)"):
        tokjax.packing.apply_packing(plan, [[1, 2, 3], [4]], pad_id=0)


def test_surplus_ids_after_the_last_row():
    """Tests rows as `fill_in_the_middle(size=...)` returns them."""
    rows = tokjax.Ragged(np.array([1, 2, 3, 4, 0, 0], np.int32), np.array([0, 3, 4], np.int32))
    plan = tokjax.packing.plan_packing([3, 1], 2)
    pack = partial(tokjax.packing.apply_packing, plan, pad_id=0)
    assert pack(rows).ids.tolist() == [[1, 2], [3, 4]]
    assert jax.jit(pack)(rows._replace(ids=rows.ids[:4])).ids.tolist() == [[1, 2], [3, 4]]
    with rejects("these rows have 6; .* remove ids that belong to no row"):
        jax.jit(pack)(rows)


def test_plans_for_other_rows_are_rejected():
    plan = tokjax.packing.plan_packing([2, 2], 4)
    for rows, message in (
        ([[1, 2, 3]], "rows of 4 tokens in total, and these rows have 3"),
        ([[1, 2, 3, 4]], "refers to document 1, and there are 1 rows"),
        ([[], [1, 2, 3, 4]], "made for longer rows"),
    ):
        with rejects(message):
            tokjax.packing.apply_packing(plan, tokjax.ragged_from_rows(rows), pad_id=0, eos_id=5)
    other = tokjax.ragged_from_rows([[1, 2, 3], [4]])
    with rejects("made for longer rows"):
        tokjax.packing.apply_packing(tokjax.packing.plan_packing([1, 3], 4), other, pad_id=0, eos_id=5)
    with rejects("positions must be 'segment' or 'document'"):
        tokjax.packing.apply_packing(plan, tokjax.ragged_from_rows([[1, 2]] * 2), pad_id=0, positions="block")
    with rejects("the plan has 1 blocks; first=0, stop=2"):
        plan.part(0, 2)
    with rejects("blocks 0 to 0 have 2 pieces, more than 1"):
        plan.part(0, 1, num_pieces=1)


class TestLossMasks:
    ROWS = ([3, 6, 7], [8], [], [9, 5, 5, 2])
    MASKS = ([0, 1, 1], [1], [], [0, 0, 1, 0])

    @pytest.mark.parametrize("strategy", STRATEGIES)
    @pytest.mark.parametrize("eos_id", [None, 1])
    def test_mask_values_move_with_their_tokens(self, strategy, eos_id):
        """Packs token numbers in place of ids. A separator has the mask of the token before it."""
        pack = partial(tokjax.pack_blocks, block_size=5, pad_id=0, eos_id=eos_id, strategy=strategy)
        ragged = tokjax.ragged_from_rows(self.ROWS)
        flat = np.concatenate(self.MASKS).astype(np.int32)
        blocks = pack(ragged, loss_mask=self.MASKS)
        numbered = pack(ragged._replace(ids=np.arange(1, 9, dtype=np.int32)), eos_id=eos_id and -1).ids
        mask_by_number = dict(enumerate(flat.tolist(), 1)) | {0: 0}
        expected, previous = [], 0
        for number in numbered.reshape(-1).tolist():
            previous = previous if number == -1 else mask_by_number[number]
            expected.append(previous)
        present = blocks.segment_ids > 0
        is_first = np.diff(blocks.segment_ids, prepend=0, axis=1) != 0
        actual = np.where(is_first, 0, blocks.loss_mask)  # the first token of a segment is never a target
        assert actual.tolist() == np.where(is_first, 0, np.reshape(expected, numbered.shape)).tolist()
        assert not blocks.loss_mask[~present].any()
        assert blocks.causal_lm_labels().tolist() == (
            pack(ragged).causal_lm_labels(loss_mask=blocks.loss_mask).tolist()
        )
        for mask in (flat, flat > 0, tokjax.ragged_from_rows(self.MASKS)):
            assert pack(ragged, loss_mask=mask).loss_mask.tolist() == blocks.loss_mask.tolist()

    @pytest.mark.parametrize("eos_id", mark_slow_except([None, 1], [1]))
    def test_numpy_and_jax_agree(self, eos_id):
        """The plan is an argument, too."""
        ragged, mask = tokjax.ragged_from_rows(self.ROWS), np.concatenate(self.MASKS).astype(np.int32)
        ragged = ragged._replace(row_splits=ragged.row_splits.astype(np.int32))
        plan = tokjax.packing.plan_packing(ragged.lengths, 5, separators=eos_id is not None)

        def pack(plan, ragged, mask):
            return tokjax.packing.apply_packing(plan, ragged, pad_id=0, eos_id=eos_id, loss_mask=mask)

        arrays = plan, ragged, mask
        assert_agrees_in_jax(pack, pack(*arrays), arrays)

    def test_chats_bring_their_assistant_masks(self, tokenizer):
        template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
        messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
        conversations = [messages * n for n in (1, 2, 1)]
        chats = [tokjax.encode_chat(tokenizer, each, template) for each in conversations]
        blocks = tokjax.pack_blocks(chats, block_size=100, pad_id=0)
        masks = [chat.assistant_mask for chat in chats]
        together = tokjax.encode_chats(tokenizer, conversations, template)
        packed = tokjax.pack_blocks(together, block_size=100, pad_id=0)
        assert all(np.array_equal(left, right) for left, right in zip(blocks, packed, strict=True))
        for padded in (tokjax.collate_padded_batch(each, pad_id=0) for each in (chats, together)):
            assert padded.loss_mask.sum() == blocks.loss_mask.sum()
        from_results = tokjax.pack_blocks(
            [c.result for c in chats], block_size=100, pad_id=0, loss_mask=masks
        )
        assert all(np.array_equal(left, right) for left, right in zip(blocks, from_results, strict=True))
        assert blocks.loss_mask.sum() == sum(map(sum, masks))
        assert (blocks.causal_lm_labels() != -100).sum() == blocks.loss_mask.sum()
        huggingface = blocks.to_huggingface()
        assert ((huggingface["labels"] != -100) == (blocks.loss_mask == 1)).all()
        assert (blocks.to_levanter()["loss_weight"] > 0).sum() == blocks.loss_mask.sum()
        assert (blocks.to_maxtext()["targets_segmentation"] > 0).sum() == blocks.loss_mask.sum()
        unmasked = [chat._replace(assistant_mask=None) for chat in chats]
        assert tokjax.pack_blocks(unmasked, block_size=100, pad_id=0).loss_mask is None
        with rejects("chat 0 was encoded without an assistant mask, and"):
            tokjax.pack_blocks([*unmasked[:1], *chats], block_size=100, pad_id=0)
        assert tokjax.pack_blocks(chats, block_size=100, pad_id=0, loss_mask=masks[::1]).loss_mask is not None

    @pytest.mark.parametrize(
        ("mask", "message"),
        [
            (np.ones(7, int), r"loss_mask has shape \(7,\), and the flat ids of all rows have \(8,\)"),
            ([[1, 1, 1], [1]], "loss_mask has 2 rows, and there are 4 rows of ids; pass the values of each"),
            ([[1, 1, 1], [1, 1], [], [1, 1, 1]], "row 1 of loss_mask has 2 entries, and row 1 has 1 ids"),
            ([1, 1, 1, 1, 1, 1, 1, 1], "or a list with the values of each row"),
        ],
    )
    def test_mismatched_masks_are_rejected(self, mask, message):
        with rejects(message):
            tokjax.pack_blocks(tokjax.ragged_from_rows(self.ROWS), block_size=5, pad_id=0, loss_mask=mask)


def test_packing_rejects_invalid_arguments():
    ragged = tokjax.ragged_from_rows([[1, 2], [3]])
    plan = tokjax.packing.plan_packing(ragged.lengths, 2, separators=True)
    with rejects("pass eos_id"):
        tokjax.packing.apply_packing(plan, ragged, pad_id=0)
    for rows in ([[1]], [[1, 2], [3, 4]]):
        other = tokjax.ragged_from_rows(rows)
        with rejects("made for rows of 3 tokens in total"):
            jax.jit(lambda r: tokjax.packing.apply_packing(plan, r, pad_id=0, eos_id=1))(other)
    with rejects("more than int32 can count"):
        tokjax.packing.plan_packing([2**62] * 4, 4)
    with rejects("more than int32 can count"):
        tokjax.packing.plan_packing([0], 2**31)
