"""Base class of loaders: batches as a pure function of seed and step, iteration, state and sharding.

A subclass implements `batch_at(step)` and an `ItemOrder`. Iterating is a loop over `batch_at` that advances
`step`, so the state of a loader is one integer. The state also has the seed, the fingerprints of the datasets
and all options that change the order (the identity of the loader). Restoring it into a loader with another
identity raises an error.
"""

from __future__ import annotations

import copy
import hashlib
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, SupportsIndex, TypeVar

import numpy as np

from tokjax._util.checks import check_int
from tokjax._util.display import render_html
from tokjax._util.locks import ThreadLock
from tokjax.core.ragged import make_row_splits
from tokjax.datasets.dataset import Dataset
from tokjax.datasets.loaders.fetch_ahead import ShardFetcher, ShardFinder
from tokjax.errors import DatasetMismatchError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Self

    from numpy.typing import NDArray

    from tokjax.datasets.columns import Column
    from tokjax.datasets.loaders.batch_columns import BatchColumn
    from tokjax.datasets.loaders.item_order import ItemOrder


STATE_VERSION = 3
_MAX_DOCUMENTS = 1 << 31
_READ_VERSIONS = (2, STATE_VERSION)  # version 2 stored options as JSON values instead of digests


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
    if version not in _READ_VERSIONS:
        raise DatasetMismatchError(
            f"the state's version is {version!r}, this tokjax reads {' and '.join(map(str, _READ_VERSIONS))}"
        )
    for name, value in identity.items():
        received = _as_int(state.get(name))
        if received != (value if version == 2 else _as_number(value)):
            shown = repr(received) if version == 2 or isinstance(value, int) else "different"
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
    _columns: tuple[BatchColumn, ...]
    _order: ItemOrder

    def __init__(self, datasets: Dataset | Sequence[Dataset], seed: int) -> None:
        received: Any = datasets if isinstance(datasets, (list, tuple)) else [datasets]
        self.datasets: tuple[Source, ...] = tuple(received)
        self._check_datasets()
        self.seed = check_int("seed", seed)
        self.step = 0
        self._lock = ThreadLock()
        self._process_index, self._process_count = 0, 1

    def _check_datasets(self) -> None:
        """Raises an error unless there are documents, of supported dataset types and of one vocabulary."""
        if not self.datasets:
            raise InvalidArgumentError("a loader needs a dataset; got none")
        for dataset in self.datasets:
            if not isinstance(dataset, self._dataset_type):
                raise InvalidArgumentError(
                    f"{type(self).__name__} loads a {self._dataset_type.__name__}, as returned by "
                    f"open_dataset, not a {type(dataset).__name__}"
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

    @abstractmethod
    def batch_at(self, step: int) -> Batch:
        """Returns the batch of a step, counted from 0 through all epochs; a function of seed and step."""

    @abstractmethod
    def _find_shards(self, step: int) -> Iterator[tuple[int, int]]:
        """Yields the shards that a batch is read from, as pairs of a dataset and a shard of it."""

    def _find_tokenizer(self) -> Any:
        """Returns the tokenizer of the ids."""
        return self.datasets[0].tokenizer

    def _copy_to_look_ahead(self) -> Loader[Source, Any]:
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
    @abstractmethod
    def batch_rows(self) -> int:
        """Number of rows of which each process loads an equal share. The process count must divide it."""

    @abstractmethod
    def _get_options(self) -> dict[str, Any]:
        """Returns the options that determine the order, apart from seed and datasets, as plain JSON."""

    _repr_html_ = render_html

    def __repr__(self) -> str:
        """Returns the datasets, the main options and the position."""
        datasets = ", ".join(map(repr, self.datasets))
        options = f"{self._rows_option}={self.batch_rows}, seed={self.seed}"
        return f"{type(self).__name__}([{datasets}], {options}), at step {self.step}"

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

        return tuple(jax.tree.map(describe, batch) for batch in self._make_examples())

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

    def _make_examples(self) -> Iterator[Batch]:
        """Yields one batch of each shape, with the rows of this process. Their contents do not matter."""
        yield self.batch_at(0)

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
        return _MappedLoader(self, function)

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
        shard._lock = ThreadLock()
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
        with self._lock.current:
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


class _MappedLoader(Loader[Source, Batch]):
    """View of a loader with converted batches. Made by `Loader.map`."""

    def __init__(self, loader: Loader[Source, Any], function: Callable[[Any], Batch]) -> None:
        self._loader, self._function = loader, function
        self.datasets, self.seed, self._lock = loader.datasets, loader.seed, loader._lock

    @property
    def step(self) -> int:
        """Index of the next batch, also of the loader that this is a view of."""
        return self._loader.step

    @step.setter
    def step(self, step: int) -> None:
        self._loader.step = step

    @property
    def steps_per_epoch(self) -> int | None:
        return self._loader.steps_per_epoch

    @property
    def batch_rows(self) -> int:
        return self._loader.batch_rows

    def batch_at(self, step: int) -> Batch:
        """Returns the converted batch of a step."""
        return self._function(self._loader.batch_at(step))

    def shard(self, process_index: int, process_count: int) -> Self:
        """Returns a view of the loader of the rows of one of several processes."""
        return type(self)(self._loader.shard(process_index, process_count), self._function)

    def __repr__(self) -> str:
        """Returns the loader and the name of the function, without its address, which differs by process."""
        name = getattr(self._function, "__qualname__", type(self._function).__qualname__)
        return f"{self._loader!r}, mapped by {name}"

    def _make_examples(self) -> Iterator[Batch]:
        return map(self._function, self._loader._make_examples())

    def _find_shards(self, step: int) -> Iterator[tuple[int, int]]:
        return self._loader._find_shards(step)

    def _copy_to_look_ahead(self) -> Loader[Source, Any]:
        return self._loader._copy_to_look_ahead()

    def _find_tokenizer(self) -> Any:
        return self._loader._find_tokenizer()

    def _find_stop(self, epochs: int | None) -> int | None:
        return self._loader._find_stop(epochs)

    def _get_options(self) -> dict[str, Any]:
        return self._loader._get_options()

    def _build_identity(self) -> dict[str, Any]:
        return self._loader._build_identity()


class Batches(Generic[Batch]):
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
            self._fetcher = ShardFetcher(partial(_make_shard_finder, loader), stop, num_shards)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the loader and the end; a copy has a thread of its own."""
        return type(self), (self._loader, self._stop)

    def __iter__(self) -> Batches[Batch]:
        """Returns the iterator itself."""
        return self

    def __next__(self) -> Batch:
        """Returns the next batch, and advances the loader."""
        loader = self._loader
        with loader._lock.current:
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


def _make_shard_finder(loader: Loader[Any, Any]) -> ShardFinder:
    ahead = loader._copy_to_look_ahead()
    return ShardFinder(ahead._find_closed_files, ahead._are_all_open)
