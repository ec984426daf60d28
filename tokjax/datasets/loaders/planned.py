"""Loader of planned rows: whole documents packed into rows, one dataset or a mixture, with schedules.

Which documents share a row is planned from lengths when the loader is created (`row_plans.py`). After that a
batch is a function of seed and step. Each epoch goes through all rows of the plan in another order, so it has
each document once. With weights, every dataset has its own plan and its own epochs:

    step ──▶ rows of each source ──▶ row of the plan ──▶ pieces of documents ──▶ PackedBlocks
             (`schedules.py`)        (`permute`)         (`row_plans.py`)        (`apply_packing`)
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from tokjax._util.atomic_files import compute_json_checksum, resolve
from tokjax._util.checks import MAX_INT32, check_choice, check_int, is_iterable
from tokjax._util.permutation import permute
from tokjax.core.ragged import Ragged, concatenate_ranges, make_row_splits
from tokjax.datasets.dataset_types import TokenDataset
from tokjax.datasets.loaders.base import Loader, number_documents
from tokjax.datasets.loaders.batch_columns import split_loss_mask
from tokjax.datasets.loaders.item_order import NO_ITEM
from tokjax.datasets.loaders.row_plans import PIECE_DTYPE, PlanOptions, RowPlan, load_plan
from tokjax.datasets.loaders.schedules import (
    MAX_ROWS,
    RowSchedule,
    compute_shares,
    flatten_sources,
    get_by_name,
    merge_schedules,
    parse_schedule,
)
from tokjax.errors import InvalidArgumentError
from tokjax.packing.apply_plan import apply_packing
from tokjax.packing.packed_blocks import PackedBlocks
from tokjax.packing.plans import Overlong, PackingPlan, Strategy

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import DTypeLike, NDArray

    from tokjax.datasets.loaders.batch_columns import BatchColumn, ColumnChoice
    from tokjax.datasets.loaders.schedules import Phase, Scheduled, Sources, Weights

Stop: TypeAlias = Literal["first_exhausted", "all_exhausted"]
_ROWS_PER_PART = 1 << 16
"""Number of rows whose tokens are counted together."""
_PIECES_PER_PART = 1 << 20


class PlannedLoader(Loader[TokenDataset, PackedBlocks]):
    """Loader of rows of whole documents, in an order that depends only on the seed and the step.

    Without weights, all datasets are packed together, and an epoch has each document exactly once; the last
    batch of an epoch may have empty rows. With weights, each dataset is packed separately and starts again
    when its rows are used up. `weights`, `batch_size` and `block_size` can be schedules: a dict from the
    first step of each phase to its value, or a function of the step.

    Batches are `PackedBlocks` of NumPy arrays, `int32`, shape `(batch_size, block_size)`. `segment_ids` count
    the documents of each row from 1. `positions` count the tokens of each segment from 0. `document_ids` are
    rows of `dataset.documents`, with several datasets of their concatenation. On padding these three are 0, 0
    and -1.

    Attributes:
        names: name of each dataset: its place in a sequence, or its keys in nested dicts, joined by `/`.
        num_steps: number of steps of a run that ends; `None` if it has no end.
    """

    _dataset_type = TokenDataset

    def __init__(
        self,
        dataset: Sources,
        *,
        batch_size: Scheduled[int],
        block_size: Scheduled[int],
        strategy: Strategy = "best_fit",
        seed: int = 0,
        shuffle: bool = True,
        window: int = 1 << 18,
        overlong: Overlong = "error",
        max_segments: int | None = None,
        pad_id: int | None = None,
        weights: Scheduled[Weights] | None = None,
        token_budgets: Weights | None = None,
        stop: Stop | None = None,
        epochs: int = 1,
        num_steps: int | None = None,
        columns: ColumnChoice = None,
        plan_dir: str | os.PathLike[str] | None = None,
        progress: bool = False,
    ) -> None:
        """Initializes the loader and plans its rows. Tokens are read by `batch_at`.

        Args:
            dataset: an open dataset of token ids; several; or a dict from names to datasets. Dicts can be
                nested, `{"web": web, "code": {"python": python, "rust": rust}}`.
            batch_size: number of rows of a batch; can be a schedule.
            block_size: number of slots of a row; can be a schedule. There is a separate plan, with separate
                epochs, for each block size.
            strategy: how documents are assigned to rows, as in `plan_packing`. `"best_fit"` and `"first_fit"`
                do not split documents.
            seed: seed of the order.
            shuffle: whether documents are shuffled before they are packed, and rows in each epoch.
            window: number of documents that are packed together. With more documents, rows are fuller. With
                fewer, planning takes less memory, and a row depends less on the lengths of its documents.
            overlong: treatment of documents that are longer than a row: `"error"`, `"split"` or `"truncate"`,
                as in `plan_packing`.
            max_segments: maximum number of documents of a row.
            pad_id: id of padding; `None` for the tokenizer's PAD token.
            weights: share of the rows of each dataset, relative to the others; `None` to go through all of
                them together. For nested dicts, a dict from names such as `"web"`, `"code"`, `"code/python"`
                to weights relative to the names beside them. Can be a schedule.
            token_budgets: number of tokens to load of each dataset, to the token. The shares are those of the
                budgets, and the run ends when all budgets are used up. Use it instead of `weights`.
            stop: where a mixture ends: `"first_exhausted"` before any dataset exceeds its epochs, or
                `"all_exhausted"` when all of them have had their epochs. By default it has no end.
            epochs: number of epochs after which `stop` takes a dataset as exhausted.
            num_steps: number of steps of the run; required for schedules that are functions.
            columns: names of the side columns to load, or a dict with the dtype of each, such as
                `{"weights": "float16"}`; `None` for all columns, in their own dtypes of at most 32 bits. A
                column per document is repeated for the tokens of the document.
            plan_dir: directory for plans, which are memory-mapped and used again by later runs and by other
                processes. By default plans are kept in memory, 16 bytes for each document.
            progress: whether to show a progress bar on standard error while rows are planned.

        Raises:
            DatasetMismatchError: the datasets have ids of several tokenizers, or different side columns.
            InvalidArgumentError: an argument is invalid, a document is longer than a row, the rows do not
                fill a batch, or there are more than 2**31 documents.
        """
        self.names, datasets, tree = flatten_sources(dataset)
        super().__init__(
            datasets, seed=seed, shuffle=shuffle, drop_last=False, pad_id=pad_id, columns=columns
        )
        steps = None if num_steps is None else check_int("num_steps", num_steps, minimum=1)
        is_mixture = weights is not None or token_budgets is not None
        every = [*range(len(self.datasets))]
        #: Datasets of each source of rows.
        self._members = [[i] for i in every] if is_mixture else [every]
        self._first_documents = number_documents(self.datasets, "create loaders of fewer datasets")
        self._first_tokens = make_row_splits(each.num_tokens for each in self.datasets)
        self._options = PlanOptions(
            block_size=0,
            strategy=strategy,
            window=check_int("window", window, minimum=1),
            overlong=overlong,
            max_segments=max_segments,
            seed=self.seed if self._shuffle else None,
        )
        block_sizes = parse_schedule(
            "block_size", block_size, partial(check_int, "block_size", minimum=1), steps
        )
        self._plans = self._load_plans({*block_sizes.values()}, plan_dir, bool(progress))
        self._totals: dict[tuple[int, int], NDArray[np.int64]] = {}
        self._budgets = self._parse_budgets(token_budgets, weights, block_sizes)
        self._schedule = RowSchedule(
            merge_schedules(
                parse_schedule(
                    "batch_size",
                    batch_size,
                    partial(check_int, "batch_size", minimum=1, maximum=MAX_INT32),
                    steps,
                ),
                block_sizes,
                self._parse_shares(weights, steps),
            ),
            tree if is_mixture else 0,
        )
        self._digest = compute_json_checksum([[*map(str, phase)] for phase in self._schedule.phases])
        self.num_steps = self._find_end(steps, stop, check_int("epochs", epochs, minimum=1))
        self._is_plain = not is_mixture and self.num_steps is None and len(self._schedule.phases) == 1
        if self._is_plain:
            [phase] = self._schedule.phases
            self._set_order([self._plans[phase.block_size, 0].num_rows], phase.batch_size)

    @property
    def steps_per_epoch(self) -> int | None:
        """Number of batches of an epoch, or of a run with an end; `None` for a run without an end."""
        return self._order.steps_per_epoch if self._is_plain else self.num_steps

    @property
    def phases(self) -> list[Phase]:
        """The phases of the run: steps between which no schedule changes."""
        return list(self._schedule.phases)

    @property
    def batch_rows(self) -> int:
        """Number of rows of a batch; the greatest common divisor of all batch sizes, if there are several."""
        return math.gcd(*self._schedule.batch_sizes)

    def _load(self, step: int) -> PackedBlocks:
        rows = self._draw_rows(step)
        pieces, splits = self._select_pieces(rows)
        lengths = _cut_rows(pieces["length"].astype(np.int64), splits, rows.limits)
        ids = self._read_pieces(pieces, lengths, TokenDataset.gather_ranges, np.int32)
        packing = PackingPlan(
            documents=np.arange(len(lengths), dtype=np.int32),
            starts=np.zeros(len(lengths), np.int32),
            lengths=lengths.astype(np.int32),
            block_splits=splits.astype(np.int32),
            slots=np.arange(rows.block_size, dtype=np.int32),
            row_tokens=np.asarray(len(ids)),
        )
        blocks = apply_packing(packing, Ragged(ids, make_row_splits(lengths)), pad_id=self._pad_id)
        document_ids = np.append(pieces["document"], -1).astype(np.int32).take(blocks.document_ids)
        columns = {}
        for column in self._columns:
            columns[column.name] = values = column.make_filled(len(rows.items), rows.block_size)
            values[blocks.attention_mask == 1] = self._read_column(column, pieces, lengths)
        return PackedBlocks(*blocks[:4], document_ids, **split_loss_mask(columns))

    def _draw_rows(self, step: int) -> _Rows:
        """Returns the rows of a step that this process loads."""
        if self._is_plain:
            [phase] = self._schedule.phases
            slots = self._order.compute_items(step).select(self._select_rows(phase.batch_size))
            return _Rows(phase.block_size, np.zeros_like(slots.items), slots.items)
        if self.num_steps is not None and step >= self.num_steps:
            raise InvalidArgumentError(f"step is {step}, and the run has {self.num_steps} steps, from 0")
        block_size, sources, positions = self._schedule.locate(step)
        own = self._select_rows(len(sources))
        sources, positions = sources[own], positions[own]
        items = np.full(len(positions), NO_ITEM)
        for source in np.unique(sources).tolist():
            rows = np.flatnonzero(sources == source)
            items[rows] = self._find_items(block_size, source, positions[rows])
        return _Rows(block_size, sources, items, self._find_limits(sources, positions))

    def _find_shards(self, step: int) -> Iterator[tuple[int, int]]:
        pieces, _ = self._select_pieces(self._draw_rows(step))
        lengths = pieces["length"].astype(np.int64)
        for index, own, starts in self._split_by_dataset(pieces["start"], self._first_tokens):
            for shard in self.datasets[index]._find_item_shards(starts, lengths[own]):
                yield index, shard

    def _make_examples(self) -> Iterator[PackedBlocks]:
        end = math.inf if self.num_steps is None else self.num_steps
        first_steps = {
            (phase.block_size, phase.batch_size): phase.first_step
            for phase in reversed(self._schedule.phases)
            if phase.first_step < end
        }
        for _, step in sorted(first_steps.items()):
            yield self._load(step)

    def _find_stop(self, epochs: int | None) -> int | None:
        return super()._find_stop(epochs) if self._is_plain else self.num_steps

    def count_tokens(self, step: int) -> dict[str, int]:
        """Counts the tokens of each dataset in all batches before a step, without loading them.

        The time depends on the number of documents of an epoch, not on the step.

        Args:
            step: number of steps, at most `num_steps`.

        Returns:
            Number of tokens by name, padding not included.
        """
        step = check_int("step", step, minimum=0)
        totals: NDArray[Any] = np.zeros(len(self.datasets), object)
        for block_size, counts in self._count_rows(step).items():
            if sum(counts) > MAX_ROWS:
                raise InvalidArgumentError(
                    f"step is {step}, and rows are counted up to 2**62; use a smaller step"
                )
            for source, count in enumerate(counts):
                totals += self._count_source_tokens(block_size, source, count)
        if self._budgets is not None:
            totals = np.minimum(totals, [budget.tokens for budget in self._budgets])
        return dict(zip(self.names, totals.tolist(), strict=True))

    def _count_rows(self, step: int) -> dict[int, list[int]]:
        """Returns the number of rows of each source before a step, for each block size."""
        if not self._is_plain:
            return self._schedule.count_rows(step if self.num_steps is None else min(step, self.num_steps))
        [phase] = self._schedule.phases
        num_rows = self._plans[phase.block_size, 0].num_rows
        epochs, within = divmod(step, len(self))
        return {phase.block_size: [epochs * num_rows + min(within * phase.batch_size, num_rows)]}

    def _count_source_tokens(self, block_size: int, source: int, count: int) -> NDArray[Any]:
        """Returns the number of tokens of each dataset in the first `count` rows of a source.

        The numbers are Python integers: those of many epochs can exceed 64 bits.
        """
        plan, key = self._plans[block_size, source], (block_size, source)
        if key not in self._totals:
            self._totals[key] = self._sum_by_dataset(source, plan.pieces)
        epochs, rest = divmod(count, plan.num_rows)
        totals: NDArray[Any] = self._totals[key].astype(object) * epochs
        first = epochs * plan.num_rows
        for begin in range(first, first + rest, _ROWS_PER_PART):
            positions = np.arange(begin, min(begin + _ROWS_PER_PART, first + rest))
            rows = plan.select(self._find_items(block_size, source, positions))
            totals = totals + self._sum_by_dataset(source, rows.pieces)
        return totals

    def _sum_by_dataset(self, source: int, pieces: NDArray[Any]) -> NDArray[np.int64]:
        """Returns the number of tokens of each dataset in pieces of documents of a source."""
        sums = np.zeros(len(self.datasets), np.int64)
        first = self._members[source][0]
        for begin in range(0, len(pieces), _PIECES_PER_PART):
            part = pieces[begin : begin + _PIECES_PER_PART]
            documents = part["document"] + self._first_documents[first]
            datasets = np.searchsorted(self._first_documents, documents, "right") - 1
            np.add.at(sums, datasets, part["length"].astype(np.int64))
        return sums

    def _find_items(self, block_size: int, source: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the rows of the plan at positions of the endless stream of a source."""
        size = self._plans[block_size, source].num_rows
        epochs, items = np.divmod(positions, size)
        if not self._shuffle:
            return items
        # Without several sources, the order is that of `ItemOrder`.
        return permute(items, size, self.seed, epochs, *([source] if len(self._members) > 1 else []))

    def _find_limits(
        self, sources: NDArray[np.int64], positions: NDArray[np.int64]
    ) -> NDArray[np.int64] | None:
        """Returns the number of slots of each row that the token budgets allow; `None` without budgets."""
        if self._budgets is None:
            return None
        limits = np.full(len(sources), np.iinfo(np.int64).max)
        for source, budget in enumerate(self._budgets):
            is_own = sources == source
            limits[is_own & (positions == budget.num_rows - 1)] = budget.last_tokens
            limits[is_own & (positions >= budget.num_rows)] = 0
        return limits

    def _select_pieces(self, rows: _Rows) -> RowPlan:
        """Returns the pieces of rows, whose first tokens and documents are counted through all datasets."""
        parts, owners = [np.zeros(0, PIECE_DTYPE)], [np.zeros(0, np.int64)]
        for source in np.unique(rows.sources).tolist():
            own = np.flatnonzero((rows.sources == source) & (rows.items != NO_ITEM))
            pieces, splits = self._plans[rows.block_size, source].select(rows.items[own])
            first = self._members[source][0]
            pieces["start"] += int(self._first_tokens[first])
            pieces["document"] += int(self._first_documents[first])
            parts.append(pieces)
            owners.append(np.repeat(own, np.diff(splits)))
        row_of_piece = np.concatenate(owners)
        order = np.argsort(row_of_piece, kind="stable")
        row_splits = np.searchsorted(row_of_piece[order], np.arange(len(rows.items) + 1))
        return RowPlan(np.concatenate(parts)[order], row_splits)

    def _read_column(
        self, column: BatchColumn, pieces: NDArray[Any], lengths: NDArray[np.int64]
    ) -> NDArray[Any]:
        """Returns the values of a side column for the tokens of pieces, concatenated."""
        name, dtype = column.name, np.dtype(column.column.dtype)
        if column.column.per == "token":

            def read(dataset: TokenDataset, starts: NDArray[np.int64], counts: NDArray[np.int64]) -> Any:
                return dataset.column(name).read_ranges(starts, counts)

            return column.cast(self._read_pieces(pieces, lengths, read, dtype))
        values = np.empty(len(pieces), dtype)
        for index, own, documents in self._split_by_dataset(pieces["document"], self._first_documents):
            values[own] = self.datasets[index].column(name)[documents]
        return column.cast(np.repeat(values, lengths))

    def _read_pieces(
        self,
        pieces: NDArray[Any],
        lengths: NDArray[np.int64],
        read: Callable[[TokenDataset, NDArray[np.int64], NDArray[np.int64]], Any],
        dtype: DTypeLike,
    ) -> NDArray[Any]:
        """Returns the tokens of pieces of documents, concatenated, or values of these tokens.

        Args:
            pieces: the pieces.
            lengths: number of tokens to read of each piece.
            read: function that reads ranges of a dataset, given by their starts and lengths.
            dtype: dtype of the result of `read`.
        """
        parts = self._split_by_dataset(pieces["start"], self._first_tokens)
        if len(parts) == 1:
            [(index, _, starts)] = parts
            return np.asarray(read(self.datasets[index], starts, lengths))
        stops = np.cumsum(lengths)
        values = np.empty(int(lengths.sum()), dtype)
        for index, own, starts in parts:
            slots = concatenate_ranges(stops[own] - lengths[own], lengths[own])
            values[slots] = read(self.datasets[index], starts, lengths[own])
        return values

    def _split_by_dataset(
        self, positions: NDArray[Any], splits: NDArray[np.int64]
    ) -> list[tuple[int, Any, NDArray[np.int64]]]:
        """Returns the positions in each dataset.

        Args:
            positions: tokens or documents, counted through all datasets.
            splits: first token or document of each dataset, and the end.

        Returns:
            For each dataset, its index, the indices or slice of its positions, and the positions in it.
        """
        positions = positions.astype(np.int64)
        if len(self.datasets) == 1:
            return [(0, slice(None), positions)]
        datasets = np.searchsorted(splits, positions, "right") - 1
        groups = [(i, np.flatnonzero(datasets == i)) for i in np.unique(datasets).tolist()]
        return [(i, own, positions[own] - splits[i]) for i, own in groups]

    def _load_plans(
        self, block_sizes: set[int], plan_dir: str | os.PathLike[str] | None, progress: bool
    ) -> dict[tuple[int, int], RowPlan]:
        """Returns the plan of each block size and source."""
        directory = None if plan_dir is None else resolve(plan_dir)
        plans = {}
        for block_size in sorted(block_sizes):
            for source, members in enumerate(self._members):
                datasets = [self.datasets[i] for i in members]
                options = self._options._replace(block_size=block_size)
                plan = load_plan(datasets, options, directory, progress=progress)
                if not plan.num_rows:
                    raise InvalidArgumentError(
                        f"{datasets[0].location} has no tokens, so there are no rows to load; leave it out"
                    )
                plans[block_size, source] = plan
        return plans

    def _parse_shares(
        self, weights: Scheduled[Weights] | None, num_steps: int | None
    ) -> dict[int, tuple[Fraction, ...]]:
        """Returns the share of each source in each phase."""
        if self._budgets is not None:
            num_rows = [budget.num_rows for budget in self._budgets]
            return {0: tuple(Fraction(count, sum(num_rows)) for count in num_rows)}
        if weights is None:
            return {0: (Fraction(1),)}
        return parse_schedule("weights", weights, partial(compute_shares, self.names), num_steps)

    def _parse_budgets(
        self,
        token_budgets: Weights | None,
        weights: Scheduled[Weights] | None,
        block_sizes: dict[int, int],
    ) -> list[_Budget] | None:
        """Returns the budget of each dataset, `None` without budgets."""
        if token_budgets is None:
            return None
        if weights is not None or len(block_sizes) > 1:
            other = "weights" if weights is not None else "a schedule of block_size"
            raise InvalidArgumentError(
                f"token_budgets determine the shares of the datasets, and can't be combined with {other}; "
                "pass one of the two"
            )
        budgets = get_by_name("token_budgets", token_budgets, self.names)
        return [
            self._make_budget(
                block_sizes[0], source, check_int(f"the budget of {name!r}", budgets[name], minimum=1)
            )
            for source, name in enumerate(self.names)
        ]

    def _make_budget(self, block_size: int, source: int, tokens: int) -> _Budget:
        """Finds the number of rows that have at least `tokens` tokens, and the tokens of the last one."""
        plan = self._plans[block_size, source]
        epochs, rest = divmod(tokens, int(self._count_source_tokens(block_size, source, plan.num_rows).sum()))
        first = position = epochs * plan.num_rows
        if first + plan.num_rows > MAX_ROWS:
            raise InvalidArgumentError(
                f"the budget of {self.names[source]!r} is {tokens} tokens, and rows are counted up to 2**62; "
                "use a smaller budget"
            )
        while rest:
            stop = min(position + _ROWS_PER_PART, first + plan.num_rows)
            rows = plan.select(self._find_items(block_size, source, np.arange(position, stop)))
            lengths = np.add.reduceat(rows.pieces["length"], rows.row_splits[:-1], dtype=np.int64)
            before = np.cumsum(lengths) - lengths
            num_used = int(np.searchsorted(before, rest, "left"))
            position += num_used
            if num_used < len(lengths) or before[-1] + lengths[-1] >= rest:
                return _Budget(tokens, position, int(rest - before[num_used - 1]))
            rest -= int(lengths.sum())
        return _Budget(tokens, position, block_size)

    def _find_end(self, num_steps: int | None, stop: Stop | None, epochs: int) -> int | None:
        """Returns the number of steps of the run, `None` if it has no end."""
        check_choice("stop", stop, (*get_args(Stop), None))
        ends = [] if num_steps is None else [num_steps]
        schedule = self._schedule
        if self._budgets is not None:
            total = sum(budget.num_rows for budget in self._budgets)
            end = schedule.find_first_step(lambda step: schedule.count_total_rows(step) >= total)
            assert end is not None
            ends.append(end)
        if stop == "first_exhausted":
            exceeded = schedule.find_first_step(lambda step: max(self._count_epochs(step)) > epochs)
            if exceeded is None:
                raise InvalidArgumentError(
                    f"epochs is {epochs}, and rows are counted up to 2**62; use fewer epochs"
                )
            if exceeded == 1:
                raise InvalidArgumentError(
                    f"the first batch would exceed {epochs} epochs of a dataset; use a smaller batch_size or "
                    "more epochs"
                )
            ends.append(exceeded - 1)
        if stop == "all_exhausted":
            finished = schedule.find_first_step(lambda step: min(self._count_epochs(step)) >= epochs)
            if finished is None:
                raise InvalidArgumentError(
                    "a dataset has weight 0 at the end and is never exhausted, so stop='all_exhausted' is "
                    "never reached; pass stop='first_exhausted' or num_steps=NUM_STEPS"
                )
            ends.append(finished)
        return min(ends, default=None)

    def _count_epochs(self, step: int) -> list[Fraction]:
        """Returns the number of epochs of each source before a step. Epochs of all block sizes are added."""
        epochs = [Fraction(0)] * len(self._members)
        for block_size, counts in self._schedule.count_rows(step).items():
            for source, count in enumerate(counts):
                epochs[source] += Fraction(count, self._plans[block_size, source].num_rows)
        return epochs

    def _get_options(self) -> dict[str, Any]:
        return {
            "schedule": self._digest,
            "plan": list(self._options),
            "names": list(self.names),
            "token_budgets": None if self._budgets is None else [each.tokens for each in self._budgets],
            "pad_id": self._pad_id,
        }


class _Budget(NamedTuple):
    """Token budget of a dataset.

    Attributes:
        tokens: number of tokens.
        num_rows: number of rows that are loaded, some of them several times if there are several epochs.
        last_tokens: number of slots that are used of the last row.
    """

    tokens: int
    num_rows: int
    last_tokens: int


class _Rows(NamedTuple):
    """Rows to load.

    Attributes:
        block_size: number of slots of each row.
        sources: source of each row, shape `(rows,)`.
        items: row of the source's plan, or `NO_ITEM`, shape `(rows,)`.
        limits: number of slots to use of each row, shape `(rows,)`; `None` for all.
    """

    block_size: int
    sources: NDArray[np.int64]
    items: NDArray[np.int64]
    limits: NDArray[np.int64] | None = None


def _cut_rows(
    lengths: NDArray[np.int64], splits: NDArray[np.int64], limits: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    """Shortens the pieces of rows so that no row has more tokens than its limit.

    Args:
        lengths: length of each piece, shape `(pieces,)`.
        splits: first piece of each row, and the end, shape `(rows + 1,)`.
        limits: maximum number of tokens of each row, shape `(rows,)`; `None` for no limits.
    """
    if limits is None:
        return lengths
    starts = make_row_splits(lengths)
    within = starts[:-1] - np.repeat(starts[splits[:-1]], np.diff(splits))
    cut: NDArray[np.int64] = np.clip(np.repeat(limits, np.diff(splits)) - within, 0, lengths)
    return cut


def describe_schedule(loader: PlannedLoader, steps: Sequence[int] | None = None) -> str:
    """Describes a run before it starts: phases, and the tokens and epochs of each dataset up to given steps.

    Args:
        loader: a loader of planned rows.
        steps: steps before which tokens are counted. By default the first step of each phase (of up to eight)
            and the end of the run, or of the epoch.

    Returns:
        A table with one line for each step and dataset.

    Raises:
        InvalidArgumentError: `loader` is another loader, or `steps` is not a list of steps.
    """
    if not isinstance(loader, PlannedLoader):
        raise InvalidArgumentError(
            f"loader must be a PlannedLoader, whose batches are planned, not a {type(loader).__name__}"
        )
    if steps is not None and not is_iterable(steps):
        raise InvalidArgumentError(f"steps must be a list of steps, such as [{steps!r}], not {steps!r}")
    lines = [("step", "batch_size", "block_size", "dataset", "tokens", "share", "epochs")]
    for step in _choose_steps(loader) if steps is None else steps:
        tokens = loader.count_tokens(step)
        phase = [each for each in loader.phases if each.first_step <= step][-1]
        first = f"{step:,}", f"{phase.batch_size:,}", f"{phase.block_size:,}"
        total = max(sum(tokens.values()), 1)
        for dataset, (name, count) in zip(loader.datasets, tokens.items(), strict=True):
            epochs = count / max(dataset.num_tokens, 1)
            lines.append((*first, name, f"{count:,}", f"{count / total:.4%}", f"{epochs:.3f}"))
            first = "", "", ""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 3 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _choose_steps(loader: PlannedLoader) -> list[int]:
    first_steps = [phase.first_step for phase in loader.phases][1:9]
    end = loader.steps_per_epoch
    return first_steps + ([] if end is None or end in first_steps else [end]) or [1000]
