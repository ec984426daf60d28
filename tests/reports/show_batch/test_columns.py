"""Tests of the columns that `show_batch` reads: names, types of batches, padding, segments, errors."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.reports.show_batch.test_show import BYTES, PAD, get_lines, make_labels, make_rows

UNKNOWN_PADDING = "padding unknown: the batch has no attention mask and no segment ids"


@pytest.fixture
def packed():
    return tokjax.pack_blocks(make_rows("ab c", "de", "f\n"), block_size=7, pad_id=PAD)


def render_batch(batch, **options):
    """Returns the rendered rows and the notes, without the title."""
    shown = tokjax.show_batch(batch, BYTES, **options)
    return [([piece.text for piece in row.pieces], row.padding_text) for row in shown.rows], shown.notes


packings = st.builds(
    lambda texts, block_size, strategy: tokjax.pack_blocks(
        tokjax.ragged_from_rows([list(text.encode()) for text in texts]),
        block_size=block_size,
        pad_id=PAD,
        strategy=strategy,
    ),
    st.lists(st.text("abc", max_size=5), max_size=6),
    st.integers(5, 9),
    st.sampled_from(["concat", "best_fit"]),
)


@given(packings)
def test_packed_blocks_in_formats_of_other_libraries(packed):
    labels = make_labels(packed)
    assert render_batch(packed.to_maxtext()) == render_batch(packed, labels=labels)
    assert render_batch(packed.to_levanter()) == render_batch(packed, loss_mask=labels != -100)
    for feature in ("tokens", "text", "targets", "ids"):
        assert render_batch(packed.to_grain(feature)) == render_batch(packed)


@given(packings)
def test_segments_are_derived_from_positions(packed):
    columns = {
        "input_ids": packed.ids,
        "position_ids": packed.positions,
        "attention_mask": packed.attention_mask,
    }
    assert render_batch(columns) == render_batch(packed)


def test_position_jumps_begin_segments():
    batch = {
        "ids": np.array([[97, 98, 99, 100, 101]] * 2),
        "attention_mask": np.array([[0, 1, 1, 1, 0], [1] * 5]),
        "positions": np.array([[0, 0, 1, 5, 0], [4, 5, 0, 0, 1]]),
    }
    assert get_lines(batch, BYTES)[2:4] == ["0 ▯ 1│b c 2│d ▯ 2 of 5", "1 1│a b 2│c 3│d e 0 of 5"]


def test_column_names_of_transformers(packed):
    assert get_lines(packed.to_huggingface(), BYTES) == [
        "dict: 2 rows of 7 positions",
        "row tokens padding",
        "0 1│⟨a⟩ b ␣ c </s> 2│⟨d⟩ e ? of 7",
        "1 1│⟨</s>⟩ 2│⟨f⟩ ↵ </s> 3│⟨<pad>⟩ 4│⟨<pad>⟩ 5│⟨<pad>⟩ ? of 7",
        UNKNOWN_PADDING,
        "labels not ignored: 7 of 14 positions",
        "n│ segment n ⟨x⟩ label ignored",
    ]


def test_results_of_transformers_tokenizers():
    transformers = pytest.importorskip("transformers")
    padded = transformers.BatchEncoding(
        {"input_ids": [[97, 98], [99, 0]], "attention_mask": [[1, 1], [1, 0]]}
    )
    assert get_lines(padded, BYTES) == [
        "BatchEncoding: 2 rows of 2 positions",
        "row tokens padding",
        "0 a b 0 of 2",
        "1 c ▯ 1 of 2",
        "padding: 1 of 4 positions (25.0%)",
        "▯ padding",
    ]
    unequal = transformers.BatchEncoding({"input_ids": [[97, 98], [99]], "labels": [[-100, 98], [99]]})
    assert get_lines(unequal, BYTES)[2:4] == ["0 ⟨a⟩ b 0 of 2", "1 c 0 of 1"]
    one = transformers.BatchEncoding({"input_ids": [97, 98], "attention_mask": [1, 1]})
    assert get_lines(one, BYTES)[2] == "0 a b 0 of 2"


@pytest.mark.parametrize("make_array", [np.asarray, jnp.asarray])
def test_arrays_of_ids(make_array):
    assert get_lines(make_array([[97, 98], [99, 0]]), BYTES) == [
        "array: 2 rows of 2 positions",
        "row tokens padding",
        "0 a b ? of 2",
        r"1 c \x00 ? of 2",
        UNKNOWN_PADDING,
    ]
    assert get_lines(make_array([97, 98]), BYTES, labels=[98, -100])[2] == "0 a ⟨b⟩ ? of 2"


def test_unknown_padding_is_not_counted():
    masked = tokjax.objectives.MaskedLMBatch(np.array([[97, 98]]), np.array([[-100, 99]]))
    assert get_lines(masked, BYTES)[2:5] == [
        "0 ⟨a⟩ b ? of 2",
        UNKNOWN_PADDING,
        "labels not ignored: 1 of 2 positions",
    ]


def test_negative_segments_are_padding():
    batch = {"tokens": np.array([[97, 98, 99, 0]]), "segment_ids": np.array([[0, 0, 1, -1]])}
    assert get_lines(batch, BYTES)[2] == "0 0│a b 1│c ▯ 1 of 4"
    with_mask = batch | {"attention_mask": np.array([[1, 1, 0, 0]])}
    assert get_lines(with_mask, BYTES)[2] == "0 0│a b ▯×2 2 of 4"


def test_other_column_names_and_batch_types():
    ids, mask = np.array([[97, 98, 99]]), np.array([[1, 1, 0]])

    @dataclass
    class Example:
        tokens: np.ndarray
        loss_weight: np.ndarray

    assert get_lines(Example(ids, mask / 2), BYTES)[:3] == [
        "Example: 1 row of 3 positions",
        "row tokens padding",
        "0 a b ⟦c⟧ ? of 3",
    ]
    seq2seq = tokjax.objectives.DenoisingBatch(ids, mask, ids, ids[:, :2], mask[:, :2])
    assert get_lines(seq2seq, BYTES)[2:5] == [
        "0 a b ▯ 1 of 3",
        "padding: 1 of 3 positions (33.3%)",
        "labels of shape (1, 2) are not shown: ids have shape (1, 3)",
    ]
    both = {"inputs": ids, "inputs_mask": mask, "targets": ids, "targets_mask": [[0, 1, 0]]}
    assert get_lines(both, BYTES)[2] == "0 ⟨a⟩ b ▯ 1 of 3"
    assert get_lines(both, BYTES, labels=[[1, -100, 1]])[2] == "0 a ⟨b⟩ ▯ 1 of 3"
    assert get_lines(seq2seq, BYTES, labels=[[1, -100, 1]])[2] == "0 a ⟨b⟩ ▯ 1 of 3"
    assert get_lines(make_rows("a", "bc")._asdict(), BYTES)[2:4] == ["0 a </s> 0 of 2", "1 b c </s> 0 of 3"]
    assert get_lines({"ids": ids, "labels": None}, BYTES)[2] == "0 a b c ? of 3"


@pytest.mark.parametrize("labels", [[[-100, 98], [99]], [-100, 98, 99]])
def test_labels_of_rows_of_different_lengths(labels):
    ids = tokjax.ragged_from_rows([[97, 98], [99]])
    expected = get_lines(ids, BYTES, labels=tokjax.ragged_from_rows([[-100, 98], [99]]))
    assert expected[2:4] == ["0 ⟨a⟩ b 0 of 2", "1 c 0 of 1"]
    assert get_lines(ids, BYTES, labels=labels) == expected


COLUMN_NAMES = "name the ids one of 'ids', 'input_ids', 'inputs', 'tokens', for example"


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"text": 1, "\x1b": 2}, rf"no ids: it has 'text', '\\x1b'; {COLUMN_NAMES}"),
        ({}, f"no ids: it has no columns; {COLUMN_NAMES}"),
        (dict.fromkeys(range(20)), "it has 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ...; name"),
        (tokjax.objectives.PrefixLMBatch(1, 2, 3), "it has 'labels', 'prefix_mask', 'prefix_lengths'; name"),
        ({"ids": np.zeros((1, 2))}, "ids must be integers, not float64"),
        ({"ids": [["a"]]}, "ids must be integers, not <U1"),
        (
            {"ids": np.zeros((1, 2, 2), int)},
            r"must have shape \(rows, length\), not \(1, 2, 2\); show one part",
        ),
        (np.int32(1), r"must have shape \(rows, length\), not \(\)"),
        (tokjax.Ragged(np.zeros((2, 3), int), np.zeros((2, 2), int)), r"not \(2, 3\); show one part"),
        ({"ids": [[1]], "attention_mask": [1]}, r"attention_mask has shape \(1,\), and ids \(1, 1\)"),
        (
            {"ids": [[1, 2], [3]], "labels": [[1], [2, 3]]},
            "the rows of labels must be as long as those of ids",
        ),
        ({"ids": [[1]], "labels": [[0.5]]}, "labels must be integers, not float64"),
    ],
)
def test_invalid_batches_are_rejected(batch, message):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        tokjax.show_batch(batch, BYTES)


def test_traced_batches_are_rejected(packed):
    def show(batch, labels=None):
        return tokjax.show_batch(batch, BYTES, labels=labels)

    message = "show_batch needs concrete values, and arrays under jax.jit have none; call it outside of jit"
    for batch in (packed, packed.to_grain(), packed.ids, make_rows("a")):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            jax.eval_shape(show, batch)
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        jax.eval_shape(lambda labels: show(packed, labels), make_labels(packed))
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        jax.eval_shape(lambda ids: show([ids]), packed.ids)


def test_number_of_positions_is_bounded():
    maximum = 65_536
    for rows, length, num_shown in ((130, 600, 504), (3, 600, 512)):
        shown = tokjax.show_batch(
            tokjax.datasets.TokenChunks(np.full((rows, length), 97)), BYTES, max_rows=2000
        )
        pieces = [row.pieces for row in shown.rows]
        assert len(pieces) == rows
        assert {len(row) for row in pieces} == {num_shown + 1}
        assert {row[-1].text for row in pieces} == {f"and {length - num_shown:,} more positions"}
        assert rows * num_shown <= maximum
    short = tokjax.show_batch(tokjax.datasets.TokenChunks(np.full((4500, 2), 97)), BYTES, max_rows=5000)
    assert {len(row.pieces) for row in short.rows} == {2}
    assert (len(short.rows), short.notes[0]) == (4096, "and 404 more rows")
