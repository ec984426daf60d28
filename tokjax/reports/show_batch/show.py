"""A batch to look at: which tokens stand where, of which segment, what is learned, and what is wasted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax._util.checks import check_int
from tokjax.align.tagset import check_is_tagset
from tokjax.core import protocol
from tokjax.errors import InvalidArgumentError
from tokjax.reports.show_batch.positions import read_positions
from tokjax.reports.show_batch.rendering import RenderedBatch
from tokjax.reports.show_batch.row_renderer import (
    IGNORED,
    NOT_IN_LOSS,
    PADDING,
    SEGMENT,
    TAGGED,
    RowRenderer,
    format_count,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokjax._util.arrays import Array
    from tokjax.align.tagset import TagSet
    from tokjax.reports.show_batch.positions import BatchPositions

_MAX_POSITIONS_PER_ROW = 512
"""How many places of a row are shown."""
_MAX_POSITIONS = 65_536
"""How many places are shown: of many rows, fewer of each."""
_MAX_ROWS = 4096
"""How many rows are shown: 16 places of each."""


def show_batch(
    batch: Any,
    tokenizer: Any,
    *,
    labels: Array | None = None,
    loss_mask: Array | None = None,
    tagset: TagSet | None = None,
    ignore_index: int = -100,
    max_rows: int = 8,
    color: bool | None = None,
) -> RenderedBatch:
    """A batch for a person: `print` it, `rich.print` it in colour, or let a notebook show it.

    Each token is shown in its readable form, white space as signs; a space parts two tokens. What a token is
    stands in signs too, so that colour only repeats it: `2│` where segment 2 begins, `⟨x⟩` where the label
    is ignored, `⟦x⟧` where the loss mask is 0, `x→B-PER` for a tag, `▯×3` for three places of padding.

    Args:
        batch: a `PaddedBatch`, `PackedBlocks`, `CausalLMBatch`, `TokenChunks` or any other with `ids` of
            shape `(rows, length)`, whose `attention_mask`, `segment_ids`, `labels` and `loss_mask` are shown
            where it has them; a mapping of such arrays, or of lists, by these names or those that MaxText,
            Grain, Levanter or transformers have for them; an array of ids; or a `TokenizationBatch`, a
            `Ragged`, or `TokenizationResult`s. Without an attention mask, padding is where segments are 0, or
            negative if any are; without segments, they begin where positions do.
        tokenizer: whose ids they are.
        labels: what is predicted at each place, of the shape of the ids; by default the batch's own.
        loss_mask: 0 on tokens that are no targets, of the shape of the ids; by default the batch's own.
        tagset: whose tags the labels are; tokens are then coloured by class, and tags other than `O` stand
            beside them, or the number of a label that is no tag. By default labels are ids of tokens.
        ignore_index: the label that does not count.
        max_rows: how many rows are shown, up to 4,096. Of each row 512 places are, or fewer of more than 128
            rows, so that there are 65,536 at most. The numbers below the rows are of all.
        color: `None` for colour where a terminal or notebook shows it; `True` for the terminal's codes in
            `str()` as well; `False` for none anywhere.

    Raises:
        InvalidArgumentError: a batch without ids, columns of other shapes, a tagset and no labels, or arrays
            that are being traced.

    >>> import tokjax
    >>> tokenizer = tokjax.byte_level()
    >>> rows = tokjax.ragged_from_rows([[110, 111], [32, 110, 111, 10, 33]])
    >>> print(show_batch(tokjax.pack_blocks(rows, block_size=4, pad_id=0), tokenizer))
    PackedBlocks: 2 rows of 4 places
    row  tokens          padding
      0  1│n o 2│␣ n      0 of 4
      1  1│o ↵ ! ▯        1 of 4
    padding 1 of 8 places (12.5%)
    n│ segment n   ▯ padding
    >>> tags = {"input_ids": [[90, 111, 101], [33, 0, 0]], "attention_mask": [[1, 1, 1], [1, 0, 0]],
    ...         "labels": [[1, 2, 2], [0, -100, -100]]}
    >>> print(show_batch(tags, tokenizer, tagset=tokjax.align.TagSet(["PER"])))
    dict: 2 rows of 3 places
    row  tokens                     padding
      0  Z→B-PER o→I-PER e→I-PER     0 of 3
      1  ! ▯×2                       2 of 3
    padding 2 of 6 places (33.3%)
    labels count at 4 of 4 tokens
    x→T tag T   x tag O   ⟨x⟩ label ignored   ▯ padding
    classes: PER
    """
    positions = read_positions(batch, labels, loss_mask, ignore_index)
    if tagset is not None:
        tagset = check_is_tagset(tagset)
        _check_labels_exist(positions)
    reader = RowRenderer(positions, protocol.get_vocabulary(tokenizer), tagset)
    shown = min(check_int("max_rows", max_rows, minimum=0), positions.num_rows, _MAX_ROWS)
    max_positions = min(_MAX_POSITIONS_PER_ROW, _MAX_POSITIONS // max(shown, 1))
    rows = tuple(reader.render_row(number, max_positions) for number in range(shown))
    notes = tuple(_iter_notes(positions, shown, tagset is not None))
    return RenderedBatch(_format_title(batch, positions), rows, notes, reader.build_legend(), color)


def _check_labels_exist(positions: BatchPositions) -> None:
    if positions.labels is None:
        why = f": {positions.left_out}" if positions.left_out else ""
        raise InvalidArgumentError(f"the labels that tagset has tags for are missing{why}; pass labels=")


def _format_title(batch: Any, positions: BatchPositions) -> str:
    name = "array" if hasattr(batch, "__array__") else type(batch).__name__
    lengths = np.unique(np.diff(positions.splits))
    length_note = f" of {format_count(int(lengths[0]), 'place')}" if len(lengths) == 1 else ""
    return f"{name}: {format_count(positions.num_rows, 'row')}{length_note}"


def _iter_notes(positions: BatchPositions, shown: int, tagged: bool) -> Iterator[str]:
    """What is counted, over all rows, and what the signs mean."""
    if positions.num_rows > shown:
        yield f"and {format_count(positions.num_rows - shown, 'row')} more"
    tokens, total = int(np.count_nonzero(positions.present)), len(positions.ids)
    padding = total - tokens
    all_tokens = format_count(tokens, "token" if positions.has_padding_info else "place")
    if positions.has_padding_info:
        yield f"padding {padding} of {format_count(total, 'place')} ({padding / max(total, 1):.1%})"
    else:
        yield "padding is not known: the batch has no attention mask and no segment ids"
    if positions.left_out is not None:
        yield positions.left_out
    signs = [f"n{SEGMENT} segment n"] if positions.segments is not None else []
    if positions.counted is not None:
        on_tokens = int(np.count_nonzero(positions.counted & positions.present))
        on_padding = int(np.count_nonzero(positions.counted & ~positions.present))
        also = f", and at {format_count(on_padding, 'place')} of padding" if on_padding else ""
        yield f"labels count at {on_tokens} of {all_tokens}{also}"
        signs += [f"x{TAGGED}T tag T", "x tag O"] if tagged else []
        signs.append(f"{IGNORED[0]}x{IGNORED[1]} label ignored")
    if positions.in_loss is not None:
        in_loss = int(np.count_nonzero(positions.in_loss & positions.present))
        yield f"the loss mask has {in_loss} of {all_tokens}"
        signs.append(f"{NOT_IN_LOSS[0]}x{NOT_IN_LOSS[1]} loss mask 0")
    if padding:
        signs.append(f"{PADDING} padding")
    if signs:
        yield "   ".join(signs)
