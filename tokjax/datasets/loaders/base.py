"""What all loaders have in common: a batch is a pure function of a seed and a step."""

from __future__ import annotations

import copy
import hashlib
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np

from tokjax._util.checks import check_int
from tokjax._util.locks import ThreadLock
from tokjax.datasets.dataset import Dataset
from tokjax.errors import DatasetMismatchError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from tokjax.datasets.loaders.item_order import ItemOrder


STATE_VERSION = 3
_READ_VERSIONS = (2, STATE_VERSION)  # version 2 held the options as they are, as version 3 does integers


class LoaderState(dict[str, int]):
    """The position of a loader, a dict of integers that fit `int32` unless the seed or the step is larger.

    It is plain JSON, and a pytree once JAX is loaded, so that `JsonSave` and `StandardSave` of Orbax take it.
    Options that are not integers are stored as digests.
    """

    def decode(self) -> str:
        """Returns the state as JSON: Grain's `CheckpointSave` expects bytes and calls this method."""
        return json.dumps(self)


def make_state(step: int, identity: Mapping[str, Any]) -> LoaderState:
    """Returns the state of a loader.

    Args:
        step: the number of the next batch.
        identity: the values that decide the order of batches, plain JSON.
    """
    if "jax" in sys.modules:
        _register_pytree()
    numbers = {name: _as_number(value) for name, value in identity.items()}
    return LoaderState(version=STATE_VERSION, step=step, **numbers)


def check_state(state: object, identity: Mapping[str, Any]) -> int:
    """Returns the step of a state.

    Args:
        state: a dict of integers or scalar arrays, or its JSON as text or bytes.
        identity: the values that decide the order of the loader's batches.

    Raises:
        DatasetMismatchError: the state is of a loader with another identity.
        InvalidArgumentError: it is no state.
    """
    if isinstance(state, (str, bytes)):
        try:
            state = json.loads(state)
        except ValueError as error:
            raise InvalidArgumentError(f"a state is what get_state gave; this is no JSON: {error}") from error
    if not isinstance(state, Mapping):
        raise InvalidArgumentError(f"a state is what get_state gave, a dict; got {state!r:.100}")
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
                f"the state's {name} is {shown}, this loader's is {value!r}; make the loader as it was "
                "when the state was taken"
            )
    return check_int("the state's step", _as_int(state.get("step", -1)), minimum=0)


def _as_number(value: Any) -> int:
    """Returns an integer as it is, and a digest of 31 bits of any other JSON value."""
    if isinstance(value, int):
        return int(value)
    digest = hashlib.sha256(json.dumps(value).encode("ascii")).digest()
    return int.from_bytes(digest[:4], "little") >> 1


def _as_int(value: Any) -> Any:
    """Returns the integer of a scalar array, as a checkpoint may restore it; other values as they are."""
    is_array = hasattr(value, "dtype") and np.ndim(value) == 0
    return np.asarray(value).item() if is_array else value


@cache
def _register_pytree() -> None:
    """Makes the class a pytree: JAX takes plain dicts apart, but not subclasses of `dict`."""
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
Source = TypeVar("Source", bound=Dataset)


class Loader(ABC, Generic[Source, Batch]):
    """Batches of datasets, in an order that depends on the seed and the step alone.

    Iterating gives the rest of the current epoch; iterating again gives the next epoch, in another order.
    `repeat` gives several, or all there ever are. `batch_at(step)` gives any batch of any epoch at once.
    `get_state` and `set_state` save and restore the place. `shard` is what one process of several loads.

    Attributes:
        datasets: where batches come from.
        seed: names the order.
        step: the number of the next batch.
    """

    _dataset_type: ClassVar[type[Dataset]] = Dataset
    _rows_option: ClassVar[str] = "batch_size"
    _order: ItemOrder

    def __init__(self, datasets: Source | Sequence[Source], seed: int) -> None:
        received: Any = datasets if isinstance(datasets, (list, tuple)) else [datasets]
        self.datasets: tuple[Source, ...] = tuple(received)
        self._check_datasets()
        self.seed = check_int("seed", seed)
        self.step = 0
        self._lock = ThreadLock()
        self._process_index, self._process_count = 0, 1

    def _check_datasets(self) -> None:
        """Refuse what this can't load, nothing at all, and ids of several vocabularies."""
        if not self.datasets:
            raise InvalidArgumentError("a loader needs a dataset; got none")
        for dataset in self.datasets:
            if not isinstance(dataset, self._dataset_type):
                raise InvalidArgumentError(
                    f"{type(self).__name__} loads a {self._dataset_type.__name__}, as open_dataset gives it, not a "
                    f"{type(dataset).__name__}"
                )
        if not any(map(len, self.datasets)):
            raise InvalidArgumentError(
                f"{self.datasets[0].location} has no documents; there is nothing to load"
            )
        fingerprints = self._find_fingerprints()
        if len(fingerprints) > 1:
            raise DatasetMismatchError(
                f"ids would be of {len(fingerprints)} tokenizers ({', '.join(sorted(fingerprints))}), and "
                "mean other things; load the datasets of each with a loader of their own"
            )

    def _find_fingerprints(self) -> set[str]:
        """Those of the tokenizers whose ids are loaded."""
        found = {dataset.manifest.plan.tokenizer_fingerprint for dataset in self.datasets}
        return {fingerprint for fingerprint in found if fingerprint is not None}

    @abstractmethod
    def batch_at(self, step: int) -> Batch:
        """The batch of a step, counted from 0 through all epochs; a pure function of seed and step."""

    @property
    def steps_per_epoch(self) -> int | None:
        """Batches an epoch; `None` for a mixture, which has no end."""
        return self._order.steps_per_epoch

    @property
    @abstractmethod
    def batch_rows(self) -> int:
        """Of how many rows the processes take equal parts: their number must divide this one."""

    @abstractmethod
    def _get_options(self) -> dict[str, Any]:
        """What decides the order, besides the seed and the datasets."""

    def __repr__(self) -> str:
        """What it loads, in which order, and where it is."""
        datasets = ", ".join(map(repr, self.datasets))
        options = f"{self._rows_option}={self.batch_rows}, seed={self.seed}"
        return f"{type(self).__name__}([{datasets}], {options}), at step {self.step}"

    def __len__(self) -> int:
        """Batches an epoch."""
        if self.steps_per_epoch is None:
            raise TypeError("a mixture has no end, and so no length")
        return self.steps_per_epoch

    def __iter__(self) -> Batches[Batch]:
        """The rest of the current epoch, or all of the next if that is done; of a mixture all there is."""
        return self.repeat(1)

    def repeat(self, epochs: int | None = None) -> Batches[Batch]:
        """Batches from the current step on.

        Args:
            epochs: how many epochs, the current one, as far as it is left, among them; `None` for no end. (A
                mixture has none.)
        """
        length = self.steps_per_epoch
        stop = None
        if epochs is not None:
            count = check_int("epochs", epochs, minimum=1)
            stop = None if length is None else (self.step // length + count) * length
        return Batches(self, stop)

    def shard(self, process_index: int, process_count: int) -> Self:
        """What one of several processes loads: its rows of the same batches, side by side with the others'.

        State that a shard gives is that of the whole: any number of processes can go on from it.

        Args:
            process_index: which process, from 0; for instance `jax.process_index()`.
            process_count: how many there are; for instance `jax.process_count()`.

        Raises:
            InvalidArgumentError: the rows of a batch can't be shared by so many.
        """
        count = check_int("process_count", process_count, minimum=1)
        index = check_int("process_index", process_index, minimum=0)
        if index >= count:
            raise InvalidArgumentError(f"process_index is {index}; with {count} processes it is below that")
        if self.batch_rows % count:
            raise InvalidArgumentError(
                f"{self._rows_option} is {self.batch_rows}, and {count} processes can't share rows equally; "
                f"make it a multiple of {count}"
            )
        part = copy.copy(self)
        part._lock = ThreadLock()
        part._process_index, part._process_count = index, count
        return part

    def get_state(self) -> LoaderState:
        """Returns the position in the stream: the next step, and which loader it belongs to.

        It is a small dict of integers, for `json.dumps`, for `JsonSave` and `StandardSave` of Orbax, and for
        Grain's `CheckpointSave(loader)`.
        """
        return make_state(self.step, self._build_identity())

    def set_state(self, state: Mapping[str, Any] | str | bytes) -> None:
        """Continues at the position that `get_state` returned, in this process or another.

        Args:
            state: the dict, its values integers or scalar arrays; or its JSON.

        Raises:
            DatasetMismatchError: the state is of other datasets, or of a loader with other options.
            InvalidArgumentError: it is no state.
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
        """The rows of a batch of so many that this process loads."""
        share = rows // self._process_count
        return slice(self._process_index * share, (self._process_index + 1) * share)


class Batches(Generic[Batch]):
    """Iterator over the batches of a loader, which advances the loader's step.

    Threads can share it, and several iterators of one loader: each batch is returned once.
    """

    def __init__(self, loader: Loader[Any, Batch], stop: int | None) -> None:
        self._loader = loader
        self._stop = stop

    def __iter__(self) -> Batches[Batch]:
        """The iterator itself."""
        return self

    def __next__(self) -> Batch:
        """The next batch."""
        loader = self._loader
        with loader._lock.current:
            if self._stop is not None and loader.step >= self._stop:
                raise StopIteration
            batch = loader.batch_at(loader.step)
            loader.step += 1
        return batch

    def get_state(self) -> LoaderState:
        """Returns the loader's state: the position after the last batch."""
        return self._loader.get_state()

    def set_state(self, state: Mapping[str, Any] | str | bytes) -> None:
        """Sets the loader's state; see `Loader.set_state`."""
        self._loader.set_state(state)

    def start_prefetch(self) -> None:
        """Does nothing: Grain's `CheckpointRestore` calls it."""
