"""What all loaders have in common: a batch is a pure function of a seed and a step."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from tokjax._util.checks import checked_int
from tokjax._util.locks import ThreadLock
from tokjax.core.errors import DatasetMismatchError, InvalidArgumentError
from tokjax.datasets.dataset import Dataset
from tokjax.datasets.loaders.state import check_state, make_state

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from tokjax.datasets.loaders.state import LoaderState

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

    _takes: ClassVar[type[Dataset]] = Dataset
    _rows_option: ClassVar[str] = "batch_size"

    def __init__(self, datasets: Source | Sequence[Source], seed: int) -> None:
        given: Any = datasets if isinstance(datasets, (list, tuple)) else [datasets]
        self.datasets: tuple[Source, ...] = tuple(given)
        self._check_datasets()
        self.seed = checked_int("seed", seed)
        self.step = 0
        self._lock = ThreadLock()
        self._process_index, self._process_count = 0, 1

    def _check_datasets(self) -> None:
        """Refuse what this can't load, nothing at all, and ids of several vocabularies."""
        if not self.datasets:
            raise InvalidArgumentError("a loader needs a dataset; got none")
        for dataset in self.datasets:
            if not isinstance(dataset, self._takes):
                raise InvalidArgumentError(
                    f"{type(self).__name__} loads a {self._takes.__name__}, as open_dataset gives it, not a "
                    f"{type(dataset).__name__}"
                )
        if not any(map(len, self.datasets)):
            raise InvalidArgumentError(
                f"{self.datasets[0].location} has no documents; there is nothing to load"
            )
        fingerprints = self._fingerprints()
        if len(fingerprints) > 1:
            raise DatasetMismatchError(
                f"ids would be of {len(fingerprints)} tokenizers ({', '.join(sorted(fingerprints))}), and "
                "mean other things; load the datasets of each with a loader of their own"
            )

    def _fingerprints(self) -> set[str]:
        """Those of the tokenizers whose ids are loaded."""
        found = {dataset.manifest.plan.tokenizer_fingerprint for dataset in self.datasets}
        return {fingerprint for fingerprint in found if fingerprint is not None}

    @abstractmethod
    def batch_at(self, step: int) -> Batch:
        """The batch of a step, counted from 0 through all epochs; a pure function of seed and step."""

    @property
    @abstractmethod
    def steps_per_epoch(self) -> int | None:
        """Batches an epoch; `None` for a mixture, which has no end."""

    @property
    @abstractmethod
    def batch_rows(self) -> int:
        """Of how many rows the processes take equal parts: their number must divide this one."""

    @abstractmethod
    def _options(self) -> dict[str, Any]:
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
            count = checked_int("epochs", epochs, least=1)
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
        count = checked_int("process_count", process_count, least=1)
        index = checked_int("process_index", process_index, least=0)
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
        return make_state(self.step, self._identity())

    def set_state(self, state: Mapping[str, Any] | str | bytes) -> None:
        """Continues at the position that `get_state` returned, in this process or another.

        Args:
            state: the dict, its values integers or scalar arrays; or its JSON.

        Raises:
            DatasetMismatchError: the state is of other datasets, or of a loader with other options.
            InvalidArgumentError: it is no state.
        """
        step = check_state(state, self._identity())
        with self._lock.current:
            self.step = step

    def start_prefetch(self) -> None:
        """Does nothing: Grain's `CheckpointRestore` calls it."""

    def _identity(self) -> dict[str, Any]:
        return {
            "loader": type(self).__name__,
            "seed": self.seed,
            "datasets": [dataset.fingerprint for dataset in self.datasets],
            **self._options(),
        }

    def _own(self, rows: int) -> slice:
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
