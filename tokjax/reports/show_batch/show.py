"""Display of a batch: its tokens, segments, labels, loss mask and padding.

    tokens       a    b    </s>   d   (padding)
    segments     1    1    1      2   0
    labels       b    </s> -100   e   -100

    1│a b ⟨</s>⟩ 2│d ▯

The modules of this package are steps of one pipeline: `columns` reads the columns of any supported batch,
flattens them and finds padding and segments; `rendering` turns positions into text with symbols, and shows it
as plain text, in colour or as HTML.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tokjax._util.checks import check_int
from tokjax.align.tagset import check_is_tagset
from tokjax.core import protocol
from tokjax.core.ragged import ragged_from_rows
from tokjax.datasets.dataset import Dataset
from tokjax.datasets.dataset_types import RawTextDataset
from tokjax.datasets.loaders.base import Loader
from tokjax.encoding.encode import encode_batch_result
from tokjax.errors import DatasetIncompleteError, InvalidArgumentError, TokjaxError
from tokjax.models.base import TokenizerRecord
from tokjax.reports.show_batch.columns import read_positions
from tokjax.reports.show_batch.rendering import (
    IGNORED,
    NOT_IN_LOSS,
    PADDING,
    SEGMENT,
    TAGGED,
    RenderedBatch,
    RowRenderer,
    format_count,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokjax._util.arrays import Array
    from tokjax.align.tagset import TagSet
    from tokjax.core.ragged import Ragged
    from tokjax.core.records import Results
    from tokjax.datasets.dataset_types import TokenDataset
    from tokjax.reports.show_batch.columns import BatchPositions


_MAX_POSITIONS_PER_ROW = 512
"""Maximum number of positions that are shown per row."""
_MAX_POSITIONS = 65_536
"""Maximum number of positions that are shown in all rows. With many rows, fewer are shown of each."""
_MAX_ROWS = 4096
"""Maximum number of rows that are shown. With this number, 16 positions are shown of each."""


def show_batch(
    batch: Any,
    tokenizer: Any = None,
    *,
    labels: Array | None = None,
    loss_mask: Array | None = None,
    tagset: TagSet | None = None,
    ignore_index: int = -100,
    max_rows: int = 8,
    color: bool | None = None,
) -> RenderedBatch:
    """Renders a batch for inspection, with `print`, with `rich.print` in colour, or in a notebook.

    Tokens are shown in their readable form, separated by spaces, with symbols for whitespace. Symbols show
    all information; colour only repeats it:

    - `2│` at the start of segment 2,
    - `⟨x⟩` around tokens whose label is ignored,
    - `⟦x⟧` around tokens whose loss mask is 0,
    - `x→B-PER` for a token with a tag,
    - `▯×3` for three positions of padding.

    Args:
        batch: one of these:

            - a `PaddedBatch`, `PackedBlocks`, `CausalLMBatch`, `TokenChunks` or another batch with `ids` of
              shape `(rows, length)`, and optionally `attention_mask`, `segment_ids`, `positions`, `labels`
              and `loss_mask`;
            - a mapping of such arrays or lists, with these names or those of MaxText, Grain, Levanter or
              transformers;
            - an array of ids;
            - a `TokenizationBatch`, a `Ragged` or a list of `TokenizationResult`s.

            Without an attention mask, padding is at segment id 0, or at -1 if any segment id is negative.
            Without segment ids, a segment begins at each position that does not follow the one before it.
        tokenizer: tokenizer of the ids; `None` to show numbers.
        labels: labels of the shape of the ids; `None` for those of the batch.
        loss_mask: 0 on tokens that do not contribute to the loss, of the shape of the ids; `None` for that of
            the batch.
        tagset: tag set of the labels. Tokens are then coloured by class and followed by their tag, unless it
            is `O`, or by the number of a label that is not a tag. `None` if labels are token ids.
        ignore_index: label that the loss ignores.
        max_rows: maximum number of rows to show, up to 4,096. At most 512 positions per row and 65,536 in all
            are shown, so fewer per row for more than 128 rows. The counts below the rows include all rows.
        color: `None` to use colour in terminals and notebooks; `True` to include terminal codes in `str()`
            too; `False` to never use colour.

    Returns:
        An object that `print`, `rich.print` and notebooks show.

    Raises:
        InvalidArgumentError: the batch has no ids, the shape of a column differs from that of the ids,
            `tagset` is passed without labels, or an array is traced.

    >>> import tokjax
    >>> tokenizer = tokjax.byte_level()
    >>> rows = tokjax.ragged_from_rows([[110, 111], [32, 110, 111, 10, 33]])
    >>> print(show_batch(tokjax.pack_blocks(rows, block_size=4, pad_id=0), tokenizer))
    PackedBlocks: 2 rows of 4 positions
    row  tokens          padding
      0  1│n o 2│␣ n      0 of 4
      1  1│o ↵ ! ▯        1 of 4
    padding: 1 of 8 positions (12.5%)
    n│ segment n   ▯ padding
    >>> tags = {"input_ids": [[90, 111, 101], [33, 0, 0]], "attention_mask": [[1, 1, 1], [1, 0, 0]],
    ...         "labels": [[1, 2, 2], [0, -100, -100]]}
    >>> print(show_batch(tags, tokenizer, tagset=tokjax.align.TagSet(["PER"])))
    dict: 2 rows of 3 positions
    row  tokens                     padding
      0  Z→B-PER o→I-PER e→I-PER     0 of 3
      1  ! ▯×2                       2 of 3
    padding: 2 of 6 positions (33.3%)
    labels not ignored: 4 of 4 tokens
    x→T tag T   x tag O   ⟨x⟩ label ignored   ▯ padding
    classes: PER
    """
    positions = read_positions(batch, labels, loss_mask, ignore_index)
    if tagset is not None:
        tagset = check_is_tagset(tagset)
        _check_labels_exist(positions)
    vocabulary = None if tokenizer is None else protocol.get_vocabulary(tokenizer)
    renderer = RowRenderer(positions, vocabulary, tagset)
    num_shown = min(check_int("max_rows", max_rows, minimum=0), positions.num_rows, _MAX_ROWS)
    max_positions = min(_MAX_POSITIONS_PER_ROW, _MAX_POSITIONS // max(num_shown, 1))
    rows = tuple(renderer.render_row(number, max_positions) for number in range(num_shown))
    notes = tuple(_iter_notes(positions, num_shown, has_tagset=tagset is not None))
    return RenderedBatch(_format_title(batch, positions), rows, notes, renderer.build_legend(), color)


def _check_labels_exist(positions: BatchPositions) -> None:
    if positions.labels is None:
        reason = f": {positions.omission_note}" if positions.omission_note else ""
        raise InvalidArgumentError(f"tagset needs labels, and the batch has none{reason}; pass labels=")


def _format_title(batch: Any, positions: BatchPositions) -> str:
    name = "array" if hasattr(batch, "__array__") else type(batch).__name__
    lengths = np.unique(np.diff(positions.splits))
    length_note = f" of {format_count(int(lengths[0]), 'position')}" if len(lengths) == 1 else ""
    return f"{name}: {format_count(positions.num_rows, 'row')}{length_note}"


def _iter_notes(positions: BatchPositions, num_shown: int, *, has_tagset: bool) -> Iterator[str]:
    """Yields the lines below the rows: counts over all rows, and the meaning of the symbols that occur."""
    if positions.num_rows > num_shown:
        yield f"and {format_count(positions.num_rows - num_shown, 'more row')}"
    tokens, total = int(np.count_nonzero(positions.is_token)), len(positions.ids)
    padding = total - tokens
    all_tokens = format_count(tokens, "token" if positions.has_padding_info else "position")
    if positions.has_padding_info:
        yield f"padding: {padding} of {format_count(total, 'position')} ({padding / max(total, 1):.1%})"
    else:
        yield "padding unknown: the batch has no attention mask and no segment ids"
    if positions.omission_note is not None:
        yield positions.omission_note
    symbols = [f"n{SEGMENT} segment n"] if positions.segments is not None else []
    if positions.has_label is not None:
        on_tokens = int(np.count_nonzero(positions.has_label & positions.is_token))
        on_padding = int(np.count_nonzero(positions.has_label & ~positions.is_token))
        # Labels on padding are a common bug, so they are always reported.
        padding_note = f", and {format_count(on_padding, 'padding position')}" if on_padding else ""
        yield f"labels not ignored: {on_tokens} of {all_tokens}{padding_note}"
        symbols += [f"x{TAGGED}T tag T", "x tag O"] if has_tagset else []
        symbols.append(f"{IGNORED[0]}x{IGNORED[1]} label ignored")
    if positions.in_loss is not None:
        in_loss = int(np.count_nonzero(positions.in_loss & positions.is_token))
        yield f"loss mask not 0: {in_loss} of {all_tokens}"
        symbols.append(f"{NOT_IN_LOSS[0]}x{NOT_IN_LOSS[1]} loss mask 0")
    if padding:
        symbols.append(f"{PADDING} padding")
    if symbols:
        yield "   ".join(symbols)


_NOTEBOOK_ROWS = 4
"""Number of rows or documents that are shown."""
_MAX_TEXT_BYTES = 4096
"""Number of bytes of each text that are encoded."""
_MAX_TOKENS = 100
"""Number of ordinary tokens of a tokenizer that are shown."""


def render_html(value: Any) -> str | None:
    """Returns HTML of a batch, a dataset, a loader or a tokenizer.

    Batches have no tokenizer, so their ids are shown. Of a dataset, the first documents are shown, of a
    loader the next batch, and of a tokenizer the special tokens and the first of the others.

    Returns:
        The HTML, or `None` for a value without rows of ids, or whose rows would be downloaded.
    """
    try:
        if isinstance(value, TokenizerRecord):
            return replace(show_batch(_list_tokens(value), value), title=repr(value), notes=())._repr_html_()
        if not isinstance(value, (Dataset, Loader)):
            return show_batch(value, max_rows=_NOTEBOOK_ROWS)._repr_html_()
        datasets = value.datasets if isinstance(value, Loader) else (value,)
        if any(dataset._files.remote is not None for dataset in datasets):
            return None
        batch = value.batch_at(value.step) if isinstance(value, Loader) else _read_documents(value)
        shown = show_batch(batch, _find_tokenizer(value), max_rows=_NOTEBOOK_ROWS)
        return replace(shown, title=f"{value!r}: {shown.title}")._repr_html_()
    except (TokjaxError, RuntimeError):  # JAX raises a RuntimeError for arrays of other processes
        return None


def _list_tokens(tokenizer: TokenizerRecord) -> Ragged:
    """Returns the ids of the special tokens in one row, and of the first other tokens in another."""
    vocabulary = tokenizer.vocabulary
    special = set(vocabulary.special.values())
    ordinary = (id_ for id_ in range(vocabulary.size) if id_ not in special and vocabulary.strings[id_])
    rows = [sorted(special), list(islice(ordinary, _MAX_TOKENS))]
    return ragged_from_rows([np.array(row, np.int32) for row in rows if row])


def _find_tokenizer(value: Dataset | Loader[Any, Any]) -> Any:
    """Returns the tokenizer of a dataset or a loader; `None` if it has none."""
    try:
        return value._find_tokenizer() if isinstance(value, Loader) else value.tokenizer
    except DatasetIncompleteError:
        return None


def _read_documents(dataset: Dataset) -> Results:
    """Returns the first documents, as tokens."""
    rows = range(min(len(dataset), _NOTEBOOK_ROWS))
    if isinstance(dataset, RawTextDataset):
        texts = [dataset.text_bytes(row)[:_MAX_TEXT_BYTES] for row in rows]
        return encode_batch_result(dataset.tokenizer, texts, disallowed_special=())
    return cast("TokenDataset", dataset).rows(rows)
