"""Description of the run of a loader with schedules, before it starts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tokjax._util.checks import check_int
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokjax.datasets.loaders.planned import PlannedLoader


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
    if not hasattr(loader, "phases"):
        raise InvalidArgumentError(
            f"loader must be a PlannedLoader, whose batches are planned, not a {type(loader).__name__}"
        )
    if steps is not None and not isinstance(steps, Iterable):
        raise InvalidArgumentError(f"steps must be a list of steps, such as [{steps!r}], not {steps!r}")
    chosen = (
        _choose_steps(loader) if steps is None else [check_int("step", step, minimum=0) for step in steps]
    )
    lines = [("step", "batch_size", "block_size", "dataset", "tokens", "share", "epochs")]
    for step in chosen:
        phase = [each for each in loader.phases if each.first_step <= step][-1]
        tokens = loader.count_tokens(step)
        total = max(sum(tokens.values()), 1)
        for i, (name, count) in enumerate(tokens.items()):
            epochs = count / max(loader.datasets[i].num_tokens, 1)
            first = (
                (f"{step:,}", f"{phase.batch_size:,}", f"{phase.block_size:,}") if i == 0 else ("", "", "")
            )
            lines.append((*first, name, f"{count:,}", f"{count / total:.4%}", f"{epochs:.3f}"))
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
