"""Base class of loaders: batches as a pure function of seed and step, iteration, state and sharding.

A subclass implements `_load(step)`, usually with an `ItemOrder`. Iterating is a loop over steps that advances
the position, so the state of a loader is one integer. The state also has the seed, the fingerprints of the
datasets and all options that change the order (the identity of the loader). Restoring it into a loader with
another identity raises an error.
"""

from __future__ import annotations

import copy
import hashlib
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, SupportsIndex, TypedDict, TypeVar

import numpy as np

from tokjax._util.checks import check_id, check_int
from tokjax._util.display import render_html
from tokjax._util.locks import ThreadLock
from tokjax.core import protocol
from tokjax.core.ragged import make_row_splits
from tokjax.datasets.dataset import Dataset
from tokjax.datasets.loaders.batch_columns import choose_columns, pad_rows
from tokjax.datasets.loaders.fetch_ahead import ShardFetcher
from tokjax.datasets.loaders.item_order import ItemOrder, check_weights
from tokjax.datasets.loaders.schedules import list_datasets
from tokjax.errors import DatasetMismatchError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Self, Unpack

    from numpy.typing import NDArray

    from tokjax.batching.collate import PaddedBatch
    from tokjax.datasets.columns import Column
    from tokjax.datasets.loaders.batch_columns import ColumnChoice, DocumentRow


STATE_VERSION = 3
_MAX_DOCUMENTS = 1 << 31


class LoaderState(dict[str, int]):
    """Position of a loader, a dict of integers that fit into `int32` unless the seed or the step is larger.

    It is plain JSON, and a pytree once JAX is loaded, so that `JsonSave` and `StandardSave` of Orbax accept
    it. Options that are not integers are stored as digests of 31 bits.
    """

    def decode(self) -> str:
        """Returns the state as JSON. Grain's `CheckpointSave` calls it, because it expects `bytes`."""
        return json.dumps(self)


def make_state(step: int, identity: Mapping[str, Any]) -> LoaderState:
    """Returns the state of a loader.

    Args:
        step: index of the next batch.
        identity: the values that determine the order of batches, as plain JSON.
    """
    if "jax" in sys.modules:
        _register_pytree()
    numbers = {name: _as_number(value) for name, value in identity.items()}
    return LoaderState(version=STATE_VERSION, step=step, **numbers)


def check_state(state: object, identity: Mapping[str, Any]) -> int:
    """Checks a state and returns its step.

    Args:
        state: a dict of integers or scalar arrays, or its JSON as `str` or `bytes`.
        identity: the values that determine the order of the loader's batches.

    Raises:
        DatasetMismatchError: the state belongs to a loader with another identity.
        InvalidArgumentError: `state` is not a state.
    """
    if isinstance(state, (str, bytes)):
        try:
            state = json.loads(state)
        except (ValueError, RecursionError) as error:
            raise InvalidArgumentError(
                f"state must be a value of get_state, or its JSON; this is not JSON: {error}"
            ) from error
    if not isinstance(state, Mapping):
        raise InvalidArgumentError(f"state must be a value of get_state, a dict; got {state!r:.100}")
    version = _as_int(state.get("version"))
    if version != STATE_VERSION:
        raise DatasetMismatchError(f"the state's version is {version!r}, this tokjax reads {STATE_VERSION}")
    for name, value in identity.items():
        received = _as_int(state.get(name))
        if received != _as_number(value):
            shown = repr(received) if isinstance(value, int) else "different"
            raise DatasetMismatchError(
                f"the state's {name} is {shown}, this loader's is {value!r}; create the loader with the "
                "datasets and options that it had when the state was saved"
            )
    return check_int("the state's step", _as_int(state.get("step", -1)), minimum=0)


def number_documents(datasets: Sequence[Dataset], advice: str) -> NDArray[np.int64]:
    """Returns the number of documents before each dataset, and in all: `int64`, shape `(datasets + 1,)`.

    Args:
        datasets: datasets of a loader whose batches have `document_ids`.
        advice: what to do if there are too many documents.

    Raises:
        InvalidArgumentError: `document_ids`, which are `int32`, can't number the documents.
    """
    splits = make_row_splits(dataset.num_documents for dataset in datasets)
    if splits[-1] > _MAX_DOCUMENTS:
        raise InvalidArgumentError(
            f"the datasets have {splits[-1]} documents, and document_ids, which are int32, number at most "
            f"{_MAX_DOCUMENTS}; {advice}"
        )
    return splits


def _as_number(value: Any) -> int:
    """Returns an integer unchanged, and a digest of 31 bits of any other JSON value."""
    if isinstance(value, int):
        return int(value)
    digest = hashlib.sha256(json.dumps(value).encode("ascii")).digest()
    return int.from_bytes(digest[:4], "little") >> 1


def _as_int(value: Any) -> Any:
    """Converts an array, as restored from a checkpoint, to an integer or a list."""
    return np.asarray(value).tolist() if hasattr(value, "dtype") else value


@cache
def _register_pytree() -> None:
    """Registers `LoaderState` as a pytree: JAX handles plain dicts, but not subclasses of `dict`."""
    from jax import tree_util  # noqa: PLC0415 (only reached when JAX is loaded)

    tree_util.register_pytree_with_keys(
        LoaderState,
        lambda state: (
            [(tree_util.DictKey(name), state[name]) for name in sorted(state)],
            tuple(sorted(state)),
        ),
        lambda names, values: LoaderState(zip(names, values, strict=True)),
    )


Batch = TypeVar("Batch")
Other = TypeVar("Other")
Source = TypeVar("Source", bound=Dataset)


class LoaderOptions(TypedDict, total=False):
    """Options of the loaders of documents or chunks.

    Attributes:
        seed: seed of the order; 0 by default.
        shuffle: whether the order differs from epoch to epoch, as it does by default.
        drop_last: whether to omit what does not fill a batch; if not, such a batch has empty rows.
        pad_id: id of padding; `None` for the tokenizer's PAD token.
        weights: relative frequency of each dataset; `None` to go through all of them together.
        columns: names of the side columns to load, or a dict with the dtype of each; `None` for all columns.
    """

    seed: int
    shuffle: bool
    drop_last: bool
    pad_id: int | None
    weights: Iterable[float] | None
    columns: ColumnChoice


class _Position:
    """Position of a loader, which it shares with its views.

    Attributes:
        step: index of the next batch.
        lock: lock of the step.
    """

    def __init__(self, step: int) -> None:
        self.step, self.lock = step, ThreadLock()


class Loader(ABC, Generic[Source, Batch]):
    """Batches of datasets in an order that depends only on the seed and the step.

    Iterating yields the rest of the current epoch; iterating again yields the next epoch, in another order.
    `repeat` yields several epochs or an endless stream. `batch_at(step)` returns any batch of any epoch
    directly. `get_state` and `set_state` save and restore the position. `shard` returns the loader of one of
    several processes. `map` converts batches for other libraries.

    Attributes:
        datasets: the datasets, a tuple.
        seed: the seed of the order.
        step: the index of the next batch, counted from 0 through all epochs.
    """

    _dataset_type: ClassVar[type[Dataset]] = Dataset
    _rows_option: ClassVar[str] = "batch_size"
    _reads_documents: ClassVar[bool] = False
    """Whether documents are read by their rows, which needs their lengths."""
    batch_size: int
    _order: ItemOrder

    def __init__(self, dataset: Dataset | Sequence[Dataset], **options: Unpack[LoaderOptions]) -> None:
        names = LoaderOptions.__annotations__
        for name in options.keys() - names:
            raise TypeError(
                f"{type(self).__name__} has no option {name!r}; all loaders have {', '.join(names)}"
            )
        self.datasets: tuple[Source, ...] = tuple(list_datasets(dataset))
        self._check_datasets()
        self.seed = check_int("seed", options.get("seed", 0))
        self._shuffle = bool(options.get("shuffle", True))
        self._drop_last = bool(options.get("drop_last", True))
        self._weights = check_weights(options.get("weights"))
        self._columns = choose_columns(self.datasets, options.get("columns"))
        pad_id = options.get("pad_id")
        self._pad_id = self._resolve_pad_id() if pad_id is None else pad_id
        check_id("pad_id", self._pad_id)
        self._position = _Position(0)
        self._functions: tuple[Callable[[Any], Any], ...] = ()  # of `map`, in order
        self._process_index, self._process_count = 0, 1

    def _resolve_pad_id(self) -> int:
        """Returns the tokenizer's PAD token; raises `MissingSpecialTokenError` if there is none."""
        vocabulary = protocol.get_vocabulary(self._find_tokenizer())
        return vocabulary.require_role("pad", "a loader without pad_id=ID")

    def _set_order(self, sizes: Sequence[int], per_step: int) -> None:
        """Sets the order of the items of the datasets, of which a step takes `per_step`."""
        options = {"shuffle": self._shuffle, "drop_last": self._drop_last}
        self._order = ItemOrder(sizes, per_step, seed=self.seed, weights=self._weights, **options)

    def _check_datasets(self) -> None:
        """Raises an error unless there are documents, of supported dataset types and of one vocabulary."""
        if not self.datasets:
            raise InvalidArgumentError("a loader needs a dataset; got none")
        for dataset in self.datasets:
            if not isinstance(dataset, self._dataset_type):
                advice = "; pass open_dataset(result.path)" if hasattr(dataset, "_fields") else ""
                raise InvalidArgumentError(
                    f"{type(self).__name__} loads a {self._dataset_type.__name__}, as returned by "
                    f"open_dataset, not a {type(dataset).__name__}{advice}"
                )
        if not any(map(len, self.datasets)):
            raise InvalidArgumentError(
                f"{self.datasets[0].location} has no documents; there is nothing to load"
            )
        fingerprints = self._find_fingerprints()
        if len(fingerprints) > 1:
            raise DatasetMismatchError(
                f"ids would be of {len(fingerprints)} tokenizers ({', '.join(sorted(fingerprints))}), so "
                "equal ids would mean different tokens; use a separate loader for the datasets of each "
                "tokenizer"
            )

    def _find_fingerprints(self) -> set[str]:
        """Returns the fingerprints of the tokenizers whose ids are loaded."""
        fingerprints = {dataset.manifest.plan.tokenizer_fingerprint for dataset in self.datasets}
        return {fingerprint for fingerprint in fingerprints if fingerprint is not None}

    def __copy__(self) -> Self:
        """Returns a loader at the same step, which then has a position of its own."""
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__, _position=_Position(self.step))
        return copied

    @property
    def step(self) -> int:
        """Index of the next batch, counted from 0 through all epochs."""
        return self._position.step

    @step.setter
    def step(self, step: int) -> None:
        self._position.step = step

    def batch_at(self, step: int) -> Batch:
        """Returns the batch of a step, counted from 0 through all epochs; a pure function of seed and step.

        The class describes the batches. A shard has only its rows of them.

        Raises:
            InvalidArgumentError: the step is negative, or after the end of the run.
        """
        return self._convert(self._load(check_int("step", step, minimum=0)))

    def _convert(self, batch: Any) -> Batch:
        """Applies the functions of `map`."""
        for function in self._functions:
            batch = function(batch)
        return batch  # type: ignore[no-any-return]

    @abstractmethod
    def _load(self, step: int) -> Any:
        """Returns the batch of a step before it is converted."""

    def _pad_rows(self, rows: Sequence[DocumentRow | None], length: int) -> PaddedBatch:
        return pad_rows(rows, self._columns, length=length, pad_id=self._pad_id)

    def _make_empty(self, rows: int, length: int) -> PaddedBatch:
        """Returns this process's part of a padded batch without documents, which has `rows` rows in all."""
        return self._pad_rows([None] * (rows // self._process_count), length)

    @abstractmethod
    def _find_shards(self, step: int) -> Iterator[tuple[int, int]]:
        """Yields the shards that a batch is read from, as pairs of a dataset and a shard of it."""

    def _find_tokenizer(self) -> Any:
        """Returns the tokenizer of the ids."""
        return self.datasets[0].tokenizer

    def _copy_to_look_ahead(self) -> Self:
        """Returns a copy whose `_find_closed_files` and `_are_all_open` another thread can call."""
        ahead = copy.copy(self)
        if hasattr(ahead, "_order"):
            ahead._order = copy.copy(ahead._order)  # it caches the items of the last steps
        return ahead

    def _find_closed_files(self, step: int) -> Iterator[list[Callable[[], object]]]:
        """Yields, for each shard of a step that is not open, functions that open its files."""
        columns = self._list_token_columns()
        for index, shard in self._find_shards(step):
            dataset = self.datasets[index]
            if dataset._fetch_ahead:
                files = dataset._find_closed_files(shard, columns, documents=self._reads_documents)
                if files:
                    yield files

    def _are_all_open(self) -> bool:
        """Returns whether `_find_closed_files` would yield nothing for any step."""
        columns, documents = self._list_token_columns(), self._reads_documents
        return all(
            dataset._are_all_open(columns, documents=documents)
            for dataset in self.datasets
            if dataset._fetch_ahead
        )

    def _list_token_columns(self) -> list[Column]:
        """Returns the side columns per token that are loaded."""
        return [column.column for column in self._columns if column.column.per == "token"]

    @property
    def steps_per_epoch(self) -> int | None:
        """Number of batches of an epoch; `None` for a mixture, which has no end."""
        return self._order.steps_per_epoch

    @property
    def batch_rows(self) -> int:
        """Number of rows of which each process loads an equal share. The process count must divide it."""
        return self.batch_size

    def _get_options(self) -> dict[str, Any]:
        """Returns the options that determine the order, apart from seed and datasets, as plain JSON."""
        return {"shuffle": self._shuffle, "drop_last": self._drop_last, "weights": self._weights}

    _repr_html_ = render_html

    def __repr__(self) -> str:
        """Returns the datasets, the main options, the position and the names of functions, as for `map`."""
        datasets = ", ".join(map(repr, self.datasets))
        options = f"{self._rows_option}={self.batch_rows}, seed={self.seed}"
        loader = f"{type(self).__name__}([{datasets}], {options}), at step {self.step}"
        # The address of a function would differ in each process.
        names = (getattr(each, "__qualname__", type(each).__qualname__) for each in self._functions)
        return ", mapped by ".join([loader, *names])

    def __len__(self) -> int:
        """Returns the number of batches of an epoch; raises `TypeError` for a mixture."""
        if self.steps_per_epoch is None:
            raise TypeError("a mixture has no end, and therefore no length")
        return self.steps_per_epoch

    def __bool__(self) -> bool:
        """Returns `True`: every loader has a batch. Without this method, Python would call `len`."""
        return True

    def __getitem__(self, index: SupportsIndex) -> Batch:
        """Returns a batch of the first epoch, so that a loader is a source for Grain and PyTorch.

        Args:
            index: step of the batch. A negative index counts from the end of the epoch.

        Raises:
            IndexError: the epoch has fewer batches. `batch_at` returns the batches of all epochs.
        """
        step, count = check_int("index", index), self.steps_per_epoch
        if count is not None:
            if not -count <= step < count:
                raise IndexError(f"there is no batch {step}: an epoch has {count}; see batch_at")
            step %= count
        return self.batch_at(step)

    @property
    def element_specs(self) -> tuple[Batch, ...]:
        """The batches of all shapes, each as a pytree of `jax.ShapeDtypeStruct`.

        A training step compiles once for each. The rows are those of this process. At most one batch of each
        shape is loaded.
        """
        import jax as typed_jax  # noqa: PLC0415 (slow to import)

        jax: Any = typed_jax  # JAX is only partly typed

        def describe(leaf: Any) -> Any:
            array = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)  # a number, in a converted batch
            return jax.ShapeDtypeStruct(array.shape, array.dtype)

        return tuple(jax.tree.map(describe, self._convert(batch)) for batch in self._make_examples())

    @property
    def element_spec(self) -> Batch:
        """The shapes and dtypes of all batches, as a pytree of `jax.ShapeDtypeStruct`.

        Raises:
            InvalidArgumentError: the batches have several shapes.
        """
        specs = self.element_specs
        if len(specs) > 1:
            raise InvalidArgumentError(f"the batches have {len(specs)} shapes; element_specs has all of them")
        return specs[0]

    def _make_examples(self) -> Iterator[Any]:
        """Yields one batch of each shape, with the rows of this process. Their contents do not matter."""
        yield self._load(0)

    def __iter__(self) -> Batches[Batch]:
        """Iterates over the rest of the current epoch, or the next one at its end; endless for mixtures."""
        return self.repeat(1)

    def repeat(self, epochs: int | None = None) -> Batches[Batch]:
        """Iterates over several epochs, starting at the current step.

        Args:
            epochs: number of epochs, including the rest of the current one; `None` for an endless stream.
                Ignored by mixtures, which are endless, and by runs with an end (`PlannedLoader`).
        """
        return Batches(self, self._find_stop(epochs))

    def _find_stop(self, epochs: int | None) -> int | None:
        """Returns the step at which `repeat` ends; `None` for an endless stream."""
        if epochs is None:
            return None
        count, length = check_int("epochs", epochs, minimum=1), self.steps_per_epoch
        return None if length is None else (self.step // length + count) * length

    def map(self, function: Callable[[Batch], Other]) -> Loader[Source, Other]:
        """Returns a view of this loader with converted batches, for libraries that expect other types.

        The view is a loader with the same position: taking a batch from either of them advances both, and
        either has the state to save. Its shapes (`element_specs`) are those of the converted batches.

        Args:
            function: function of a batch, such as `tokjax.PackedBlocks.to_maxtext`. It has to be pure,
                because batches can be loaded several times and in any order. Worker processes need a function
                that can be pickled.

        Raises:
            InvalidArgumentError: `function` is not callable.
        """
        if not callable(function):
            raise InvalidArgumentError(f"function must be a function of a batch, not {function!r:.100}")
        view: Any = copy.copy(self)
        view._position = self._position
        view._functions = (*self._functions, function)
        return view  # type: ignore[no-any-return]

    def shard(self, process_index: int, process_count: int) -> Self:
        """Returns a loader of the rows of one of several processes.

        All processes load the same batches. Process `i` of `n` has rows `i * rows / n` to `(i + 1) * rows /
        n`. The state of a shard is that of the whole loader, so any number of processes can resume from it.

        Args:
            process_index: 0-based index of the process, for example `jax.process_index()`.
            process_count: number of processes, for example `jax.process_count()`.

        Raises:
            InvalidArgumentError: `process_count` does not divide the rows of a batch, or `process_index` is
                out of range.
        """
        count = check_int("process_count", process_count, minimum=1)
        index = check_int("process_index", process_index, minimum=0)
        if index >= count:
            raise InvalidArgumentError(
                f"process_index is {index}, and must be less than process_count, {count}"
            )
        if self.batch_rows % count:
            raise InvalidArgumentError(
                f"{self._rows_option} is {self.batch_rows}, and {count} processes can't share rows equally; "
                f"make it a multiple of {count}"
            )
        shard = copy.copy(self)
        shard._process_index, shard._process_count = index, count
        return shard

    def get_state(self) -> LoaderState:
        """Returns the position in the stream: the next step, and the identity of the loader.

        The state is a small dict of integers. It works with `json.dumps`, with `JsonSave` and `StandardSave`
        of Orbax, and with Grain's `CheckpointSave(loader)`.
        """
        return make_state(self.step, self._build_identity())

    def set_state(self, state: Mapping[str, Any] | str | bytes) -> None:
        """Moves to the position that `get_state` returned, in this process or another.

        Args:
            state: the dict, with integers or scalar arrays as values, or its JSON.

        Raises:
            DatasetMismatchError: the state belongs to other datasets, or to a loader with other options.
            InvalidArgumentError: `state` is not a state.
        """
        step = check_state(state, self._build_identity())
        with self._position.lock.current:
            self.step = step

    def start_prefetch(self) -> None:
        """Does nothing: Grain's `CheckpointRestore` calls it."""

    def _build_identity(self) -> dict[str, Any]:
        return {
            "loader": type(self).__name__,
            "seed": self.seed,
            "datasets": [dataset.fingerprint for dataset in self.datasets],
            **self._get_options(),
        }

    def _select_rows(self, rows: int) -> slice:
        """Returns the rows that this process loads of a batch with `rows` rows."""
        share = rows // self._process_count
        return slice(self._process_index * share, (self._process_index + 1) * share)


class Batches(Iterator[Batch]):
    """Iterator over the batches of a loader, which advances the loader's step.

    Threads can share it, and several iterators of one loader: each batch is returned once.

    If a dataset was opened with `fetch_ahead`, a thread downloads the next shards. It stops when the batches
    end, and when the iterator is closed or garbage-collected. It starts again if the loader goes back to an
    earlier step.
    """

    _fetcher: ShardFetcher | None = None

    def __init__(self, loader: Loader[Any, Batch], stop: int | None) -> None:
        self._loader = loader
        self._stop = stop
        num_shards = max(dataset._fetch_ahead for dataset in loader.datasets)
        if num_shards:
            self._fetcher = ShardFetcher(loader._copy_to_look_ahead, stop, num_shards)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the loader and the end; a copy has a thread of its own."""
        return type(self), (self._loader, self._stop)

    def __next__(self) -> Batch:
        """Returns the next batch, and advances the loader."""
        loader = self._loader
        with loader._position.lock.current:
            if self._stop is not None and loader.step >= self._stop:
                self.close()
                raise StopIteration
            if self._fetcher is not None:
                self._fetcher.reach(loader.step)
            batch = loader.batch_at(loader.step)
            loader.step += 1
        return batch

    def close(self) -> None:
        """Stops the thread that downloads shards, if there is one."""
        if self._fetcher is not None:
            self._fetcher.close()

    def __del__(self) -> None:
        """Stops the thread that downloads shards."""
        if self._fetcher is not None:
            self._fetcher.stop()

    def get_state(self) -> LoaderState:
        """Returns the loader's state: the position after the last batch."""
        return self._loader.get_state()

    def set_state(self, state: Mapping[str, Any] | str | bytes) -> None:
        """Sets the loader's state; see `Loader.set_state`."""
        self._loader.set_state(state)

    def start_prefetch(self) -> None:
        """Does nothing: Grain's `CheckpointRestore` calls it."""
