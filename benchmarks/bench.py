"""What a suite is given: sizes, inputs, rounds, and a place for what it measures."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from benchmarks.inputs import Text, described, read_start
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
    """What a suite measures with, and on.

    Attributes:
        sources: the texts and ranks.
        scratch: a directory for files of this suite.
        say: tells the user where it is.
        quick: whether small inputs and one round do.
        num_rounds: how many rounds, instead of what a suite takes by itself.
        max_megabytes: of each text.
        threads: how many, where several are measured.
        install: whether to make environments of their own for libraries that can't be in this one.
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
        """How many rounds to go."""
        return self.num_rounds or (QUICK_ROUNDS if self.quick else usual)

    def choose(self, usual: Any, quick: Any) -> Any:
        """One of two sizes."""
        return quick if self.quick else usual

    @property
    def ranks(self) -> Path:
        """The ranks, which get an entry in the record."""
        self.inputs.setdefault("ranks", described("ranks", self.sources.ranks, self.sources.ranks_note))
        return self.sources.ranks

    def text(self, megabytes: float, name: str | None = None, record_name: str | None = None) -> Text:
        """The beginning of a text, which gets an entry in the record.

        Args:
            megabytes: how much of it, at most.
            name: which text; by default the main one.
            record_name: its name in the record; by default that of the text.
        """
        source = name or self.sources.main
        size = min(megabytes, self.limit)
        file_name = re.sub(r"\W+", "-", f"{source} {size:g} {record_name or ''}")
        path = self.scratch / f"{file_name}.txt"
        if not path.exists():
            path.write_bytes(read_start(self.sources.texts[source], size))
        text = Text(record_name or source, path, self.sources.text_note)
        if self.inputs.setdefault(text.name, text.described) != text.described:
            raise ValueError(f"two inputs are called {text.name!r}")
        return text

    def sizes(self, megabytes: Sequence[float]) -> list[float]:
        """Those of the sizes that the largest text has; what there is, if it has none of them."""
        available = self.sources.texts[self.largest].stat().st_size / 1e6
        maximum = min(available, self.limit)
        return [size for size in megabytes if size <= 1.01 * maximum] or [maximum]

    @property
    def largest(self) -> str:
        """The text that suites take that need much."""
        return LARGE_TEXT if LARGE_TEXT in self.sources.texts else self.sources.main

    def find_text(self, megabytes: float) -> str:
        """The main text, if it has so much, or else the large one."""
        main = self.sources.main
        return main if self.sources.texts[main].stat().st_size >= megabytes * 1e6 else self.largest

    @property
    def limit(self) -> float:
        """Megabytes of a text at most."""
        return self.max_megabytes or (QUICK_MEGABYTES if self.quick else float("inf"))

    def add(self, task: str, contender: str, rounds: Iterable[float], **more: Any) -> None:
        """Write down the rounds of one contender; `more` are attributes of `Measurement`."""
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
        """Write down rounds of all contenders of a task.

        Args:
            task: its name.
            seconds: of each contender in each round.
            reference: the contender that ratios are to; by default the first.
            fill: how full the blocks of a contender are, where it makes any.
            extra: other numbers, the same of all.
            at: the place on a curve.
        """
        for name, rounds in seconds.items():
            own = {"fill": fill[name]} if fill and name in fill else {}
            more = {**(extra or {}), **own}
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
        """Measure contenders in turn, in this process, as `time_interleaved` does, and write that down."""
        self.say(task)
        self.add_rounds(task, time_interleaved(contenders, rounds, twice=twice), **more)

    def record_skip(self, task: str, contender: str, why: str, **more: Any) -> None:
        """Write down that something was not measured."""
        self.measurements.append(Measurement(task, contender, left_out=why, **more))

    def has_package(self, package: str, task: str, contender: str) -> bool:
        """Whether a library is there; if not, that is written down."""
        if find_spec(package) is not None:
            return True
        self.record_skip(task, contender, format_not_installed(package))
        return False


def format_not_installed(package: str) -> str:
    """Why a contender is left out."""
    return f"{package} is not installed"
