"""Context of a running suite: its inputs, sizes and rounds, and the measurements that it collects."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from benchmarks.inputs import Text, describe_input, read_start
from benchmarks.record import Input, Measurement
from benchmarks.sources import LARGE_TEXT
from benchmarks.timing import time_interleaved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from benchmarks.sources import Sources

QUICK_MEGABYTES = 1.0
QUICK_ROUNDS = 1


@dataclass
class Bench:
    """Inputs, options and results of one run of a suite.

    Attributes:
        sources: the texts and the ranks.
        scratch: directory for temporary files of this suite.
        say: function that shows the current step to the user.
        quick: whether to use small inputs and one round.
        num_rounds: number of rounds for every contender; `None` for the default of each suite.
        max_megabytes: maximum size of each text, in MB; `None` for no limit.
        threads: number of threads or workers, in suites that measure more than one.
        install: whether to create virtual environments for libraries that conflict with installed ones.
        measurements: the measurements so far.
        inputs: the inputs that were used so far, by name.
        settings: further facts for the record, by name.
    """

    sources: Sources
    scratch: Path
    say: Callable[[str], None]
    quick: bool = False
    num_rounds: int | None = None
    max_megabytes: float | None = None
    threads: int = 2
    install: bool = True
    measurements: list[Measurement] = field(default_factory=list)
    inputs: dict[str, Input] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def rounds(self, usual: int) -> int:
        """Returns the number of rounds: that of the user, or 1 with `--quick`, or else `usual`."""
        return self.num_rounds or (QUICK_ROUNDS if self.quick else usual)

    def choose(self, usual: Any, quick: Any) -> Any:
        """Returns `quick` with the option `--quick`, and `usual` otherwise."""
        return quick if self.quick else usual

    @property
    def ranks(self) -> Path:
        """Path of the ranks; reading it adds them to the inputs of the record."""
        self.inputs.setdefault("ranks", describe_input("ranks", self.sources.ranks, self.sources.ranks_note))
        return self.sources.ranks

    def text(self, megabytes: float, name: str | None = None, record_name: str | None = None) -> Text:
        """Writes the start of a text to a file, and adds it to the inputs of the record.

        Args:
            megabytes: maximum size, in MB.
            name: name of the text; `None` for the main one.
            record_name: its name in the record; `None` for the name of the text.

        Raises:
            ValueError: the record already has another input of that name.
        """
        source = name or self.sources.main
        size = min(megabytes, self.limit)
        file_name = re.sub(r"\W+", "-", f"{source} {size:g} {record_name or ''}")
        path = self.scratch / f"{file_name}.txt"
        if not path.exists():
            path.write_bytes(read_start(self.sources.texts[source], size))
        text = Text(record_name or source, path, self.sources.text_note)
        if self.inputs.setdefault(text.name, text.input_entry) != text.input_entry:
            raise ValueError(f"two inputs are called {text.name!r}")
        return text

    def sizes(self, megabytes: Sequence[float]) -> list[float]:
        """Returns the sizes, in MB, for which the largest text is long enough; at least its own size."""
        available = self.sources.texts[self.largest].stat().st_size / 1e6
        maximum = min(available, self.limit)
        return [size for size in megabytes if size <= 1.01 * maximum] or [maximum]

    @property
    def largest(self) -> str:
        """Name of the text for suites that need a lot of text."""
        return LARGE_TEXT if LARGE_TEXT in self.sources.texts else self.sources.main

    def find_text(self, megabytes: float) -> str:
        """Returns the name of the main text if it has that many MB, and of the largest text otherwise."""
        main = self.sources.main
        return main if self.sources.texts[main].stat().st_size >= megabytes * 1e6 else self.largest

    @property
    def limit(self) -> float:
        """Maximum size of a text, in MB; infinite by default."""
        return self.max_megabytes or (QUICK_MEGABYTES if self.quick else float("inf"))

    def add(self, task: str, contender: str, rounds: Iterable[float], **more: Any) -> None:
        """Records the rounds of one contender; `more` are attributes of `Measurement`."""
        self.measurements.append(Measurement(task, contender, rounds=tuple(rounds), **more))

    def add_rounds(
        self,
        task: str,
        seconds: Mapping[str, Sequence[float]],
        *,
        reference: str | None = None,
        fill: Mapping[str, float] | None = None,
        extra: Mapping[str, float] | None = None,
        at: float | None = None,
    ) -> None:
        """Records the rounds of all contenders of a task.

        Args:
            task: name of the task.
            seconds: seconds of each round, by contender.
            reference: contender that the others are divided by; `None` for the first.
            fill: share of the positions in packed blocks that hold tokens, by contender.
            extra: further numbers, the same for all contenders.
            at: position on the x axis of a curve.
        """
        for name, rounds in seconds.items():
            fill_entry = {"fill": fill[name]} if fill and name in fill else {}
            more = {**(extra or {}), **fill_entry}
            self.add(task, name, rounds, reference=reference or next(iter(seconds)), extra=more, at=at)

    def compare(
        self,
        task: str,
        contenders: Mapping[str, Callable[[], object]],
        rounds: int,
        *,
        twice: bool = False,
        **more: Any,
    ) -> None:
        """Times contenders in this process with `time_interleaved`, and records the rounds."""
        self.say(task)
        self.add_rounds(task, time_interleaved(contenders, rounds, twice=twice), **more)

    def record_skip(self, task: str, contender: str, reason: str, **more: Any) -> None:
        """Records why a contender was not measured."""
        self.measurements.append(Measurement(task, contender, left_out=reason, **more))

    def has_package(self, package: str, task: str, contender: str) -> bool:
        """Returns whether a package is installed; records the contender as skipped if it is not."""
        if find_spec(package) is not None:
            return True
        self.record_skip(task, contender, format_not_installed(package))
        return False


def format_not_installed(package: str) -> str:
    """Returns the reason to skip a contender whose package is missing."""
    return f"{package} is not installed"
