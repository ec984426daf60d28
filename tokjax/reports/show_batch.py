"""Display of a batch: its tokens, segments, labels, loss mask and padding.

    tokens       a    b    </s>   d   (padding)
    segments     1    1    1      2   0
    labels       b    </s> -100   e   -100

    1│a b ⟨</s>⟩ 2│d ▯

`batch_positions` reads the columns of any supported batch, flattens them and finds padding and segments.
`RowRenderer` turns positions into text with symbols. `RenderedBatch` shows it as plain text, in colour or as
HTML.
"""

from __future__ import annotations

import io
import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from tokjax._util.checks import check_int
from tokjax._util.display import make_visible
from tokjax.align.tagset import check_is_tagset
from tokjax.core import protocol
from tokjax.core.ragged import ragged_from_rows
from tokjax.datasets.dataset import Dataset
from tokjax.datasets.dataset_types import RawTextDataset
from tokjax.datasets.loaders.base import Loader
from tokjax.encoding.encode import encode_batch_result
from tokjax.errors import DatasetIncompleteError, InvalidArgumentError, TokjaxError
from tokjax.models.base import SegmentModel
from tokjax.reports.batch_positions import read_positions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType
    from rich.text import Text

    from tokjax._util.arrays import Array
    from tokjax.align.tagset import TagSet
    from tokjax.core.ragged import Ragged
    from tokjax.core.records import Results
    from tokjax.core.vocabulary import Vocabulary
    from tokjax.datasets.dataset_types import TokenDataset
    from tokjax.reports.batch_positions import BatchPositions, TokenStatus


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
        if positions.labels is None:
            reason = f": {positions.omission_note}" if positions.omission_note else ""
            raise InvalidArgumentError(f"tagset needs labels, and the batch has none{reason}; pass labels=")
    vocabulary = None if tokenizer is None else protocol.get_vocabulary(tokenizer)
    renderer = RowRenderer(positions, vocabulary, tagset)
    num_shown = min(check_int("max_rows", max_rows, minimum=0), positions.num_rows, _MAX_ROWS)
    max_positions = min(_MAX_POSITIONS_PER_ROW, _MAX_POSITIONS // max(num_shown, 1))
    rows = tuple(renderer.render_row(number, max_positions) for number in range(num_shown))
    notes = tuple(_iter_notes(positions, num_shown, has_tagset=tagset is not None))
    return RenderedBatch(_format_title(batch, positions), rows, notes, renderer.build_legend(), color)


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
        if isinstance(value, SegmentModel):
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


def _list_tokens(tokenizer: SegmentModel) -> Ragged:
    """Returns the ids of the special tokens in one row, and of the first other tokens in another."""
    vocabulary = tokenizer.vocabulary
    special = set(vocabulary.special.values())
    ordinary = (id_ for id_ in range(vocabulary.size) if id_ not in special and vocabulary.strings[id_])
    rows = [sorted(special), list(itertools.islice(ordinary, _MAX_TOKENS))]
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


_WIDTH = 80
_LEGEND = "classes: "
_HTML = '<pre style="font-family:monospace">{code}</pre>'
_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red")
_BRIGHT = tuple(f"bright_{colour}" for colour in _COLOURS)
_STYLES = (*_COLOURS, *_BRIGHT, *(f"{colour} underline" for colour in _COLOURS + _BRIGHT))
"""Colours in a terminal, as styles of `rich`."""


@dataclass(frozen=True, repr=False)
class RenderedBatch:
    """Result of `show_batch`: plain text with `str`, a `rich` renderable, and HTML for notebooks.

    Attributes:
        title: type of the batch and its number of rows and positions.
        rows: the rendered rows.
        notes: lines below the rows: numbers of tokens and labels, and the meaning of the symbols.
        legend: classes of tags, each in its colour.
        color: colour setting, as in `show_batch`.
    """

    title: str
    rows: tuple[RenderedRow, ...]
    notes: tuple[str, ...]
    legend: tuple[RenderedToken, ...]
    color: bool | None

    def __str__(self) -> str:
        """Returns the batch as text, 80 columns wide."""
        text: str = self._render(bool(self.color)).export_text(styles=bool(self.color))
        return "\n".join(line.rstrip() for line in text.splitlines())

    __repr__ = __str__

    def __rich__(self) -> RenderableType:
        """Returns a renderable in colour, as wide as the terminal."""
        from rich.console import Group  # noqa: PLC0415 (slow to import)
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        table = Table(box=None, pad_edge=False, header_style="bold" if self.color is not False else "")
        table.add_column("row", justify="right", no_wrap=True)
        table.add_column("tokens", overflow="fold")
        table.add_column("padding", justify="right", no_wrap=True)
        for row in self.rows:
            table.add_row(str(row.number), self._make_text(row.pieces), row.padding_text)
        legend = [Text(_LEGEND).append_text(self._make_text(self.legend))] if self.legend else []
        return Group(Text(self.title), table, *map(Text, self.notes), *legend)

    def _make_text(self, pieces: tuple[RenderedToken, ...]) -> Text:
        from rich.text import Text  # noqa: PLC0415 (slow to import)

        # One `Text` per run of equal style, because rich is slow with many small ones.
        runs = itertools.groupby(pieces, self._get_style)
        return Text(" ").join(Text(" ".join(piece.text for piece in run), style) for style, run in runs)

    def _get_style(self, piece: RenderedToken) -> str:
        if self.color is False:
            return ""
        style = "" if piece.shade is None else _STYLES[piece.shade % len(_STYLES)]
        return f"{style} dim" if piece.faint else style

    def _repr_html_(self) -> str:
        """Returns the batch as HTML, 80 columns wide."""
        html: str = self._render(self.color is not False).export_html(code_format=_HTML, inline_styles=True)
        return html

    def _render(self, color: bool) -> Console:
        """Returns a console that recorded the batch."""
        from rich.console import Console  # noqa: PLC0415 (slow to import)

        console = Console(
            file=io.StringIO(),
            width=_WIDTH,
            force_terminal=color,
            force_jupyter=False,
            color_system="standard" if color else None,
            no_color=not color,
            legacy_windows=False,
            record=True,
        )
        console.print(self)
        return console


class RenderedRow(NamedTuple):
    """Rendered row of a batch.

    Attributes:
        number: index of the row, from 0.
        pieces: tokens and runs of padding.
        padding_text: number of padding positions of the row, such as `3 of 7`.
    """

    number: int
    pieces: tuple[RenderedToken, ...]
    padding_text: str


class RenderedToken(NamedTuple):
    """Rendered token or run of padding.

    Attributes:
        text: text to show.
        shade: index of the colour; `None` for the colour of the page.
        faint: whether it is padding, or a token that does not contribute to the loss.
    """

    text: str
    shade: int | None
    faint: bool


IGNORED, NOT_IN_LOSS = "⟨⟩", "⟦⟧"
"""Brackets around tokens with an ignored label, and around tokens with a loss mask of 0."""
SEGMENT, TAGGED, PADDING = "│", "→", "▯"
_NUM_SHADES = 5
"""Number of colours that alternate between segments, or between positions without segments."""


class RowRenderer(NamedTuple):
    """Renderer of the rows of one batch.

    Attributes:
        positions: positions of the batch.
        vocabulary: vocabulary of the ids; `None` to show numbers.
        tagset: tag set of the labels; `None` if labels are token ids.
    """

    positions: BatchPositions
    vocabulary: Vocabulary | None
    tagset: TagSet | None

    def render_row(self, number: int, max_positions: int) -> RenderedRow:
        """Renders a row, or its first `max_positions` positions."""
        start, stop = self.positions.splits[number : number + 2].tolist()
        shown_stop = min(stop, start + max_positions)
        pieces: list[RenderedToken] = []
        index = start
        for status, run in itertools.groupby(self.positions.iter_statuses(start, shown_stop)):
            length = sum(1 for _ in run)
            pieces += self._render_run(status, range(index, index + length), start)
            index += length
        if shown_stop < stop:
            omitted = format_count(stop - shown_stop, "more position")
            pieces.append(RenderedToken(f"and {omitted}", None, True))
        padding = int(np.count_nonzero(~self.positions.is_token[start:stop]))
        padding_text = str(padding) if self.positions.has_padding_info else "?"
        return RenderedRow(number, tuple(pieces), f"{padding_text} of {stop - start}")

    def build_legend(self) -> tuple[RenderedToken, ...]:
        """Returns the classes of the tags that occur in the batch, each in its colour."""
        positions, tagset = self.positions, self.tagset
        if tagset is None or positions.labels is None or positions.has_label is None:
            return ()
        labels = np.unique(positions.labels[positions.has_label & positions.is_token])
        classes = np.unique(tagset.tag_classes[labels[(labels > 0) & (labels < len(tagset))]]).tolist()
        return tuple(RenderedToken(make_visible(tagset.labels[class_]), class_, False) for class_ in classes)

    def _render_run(self, status: TokenStatus, run: range, start: int) -> Iterator[RenderedToken]:
        """Yields the rendered tokens of a run of positions with equal status, or one piece for padding.

        Args:
            status: status of all positions of the run.
            run: flat indices of the positions.
            start: flat index of the start of the row.
        """
        if not status.is_token:
            times = f"×{len(run)}" if len(run) > 1 else ""
            yield RenderedToken(f"{PADDING}{times}", None, True)
            return
        conditions = ((NOT_IN_LOSS, status.in_loss), (IGNORED, status.has_label))
        brackets = [pair for pair, holds in conditions if not holds]
        segments = self.positions.segments
        begins = segments is not None and (run[0] == start or segments[run[0] - 1] != status.segment)
        segment_mark = f"{status.segment}{SEGMENT}" if begins else ""
        for index in run:
            label = None if self.positions.labels is None else int(self.positions.labels[index])
            text = self._get_token_text(int(self.positions.ids[index]))
            if self.tagset is not None and status.has_label and label:
                text = f"{text}{TAGGED}{self._get_tag(label)}"
            if index == run[0]:
                text = segment_mark + "".join(pair[0] for pair in brackets) + text
            if index == run[-1]:
                text += "".join(pair[1] for pair in reversed(brackets))
            yield RenderedToken(text, self._get_shade(index - start, label, status), bool(brackets))

    def _get_shade(self, position: int, label: int | None, status: TokenStatus) -> int | None:
        """Returns the colour of the class, or of the segment, or one that differs from the next token's."""
        if self.tagset is None:
            return (position if self.positions.segments is None else status.segment - 1) % _NUM_SHADES
        is_tag = status.has_label and label is not None and 0 < label < len(self.tagset)
        return int(self.tagset.tag_classes[label]) if is_tag else None

    def _get_tag(self, label: int) -> str:
        """Returns the tag of a label; its number if the tag set has no such tag."""
        assert self.tagset is not None
        return make_visible(self.tagset.tags[label]) if 0 <= label < len(self.tagset) else str(label)

    def _get_token_text(self, id_: int) -> str:
        if self.vocabulary is None:
            return str(id_)
        token = self.vocabulary.strings[id_] if 0 <= id_ < self.vocabulary.size else None
        return f"<no-token:{id_}>" if token is None else make_visible(token)


def format_count(number: int, noun: str) -> str:
    """Formats a number with its noun, in the plural unless the number is 1."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
