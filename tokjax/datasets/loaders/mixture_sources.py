"""Sources of a mixture: datasets by name, in nested groups, and their shares."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

from tokjax.datasets.loaders.schedules import as_fraction
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokjax.datasets.dataset import Dataset
    from tokjax.datasets.dataset_types import TokenDataset
    from tokjax.datasets.loaders.apportionment import Tree

Sources: TypeAlias = "Dataset | Sequence[Dataset] | Mapping[str, Any]"
"""A dataset, several, or a dict from names to datasets or to further dicts of this kind."""
Weights: TypeAlias = "Sequence[float] | Mapping[str, float]"


def flatten_sources(sources: Sources) -> tuple[list[str], list[TokenDataset], Tree]:
    """Returns the names of all datasets, the datasets, and the groups of their numbers.

    >>> flatten_sources({"web": "a", "code": {"python": "b", "rust": "c"}})
    (['web', 'code/python', 'code/rust'], ['a', 'b', 'c'], [0, [1, 2]])
    """
    names: list[str] = []
    datasets: list[TokenDataset] = []

    def visit(name: str, value: Any) -> Tree:
        if not isinstance(value, Mapping):
            names.append(name)
            datasets.append(value)
            return len(names) - 1
        if not value:
            raise InvalidArgumentError(f"the group of datasets {name!r} is empty; leave it out")
        for key in value:
            if not isinstance(key, str) or "/" in key or not key:
                raise InvalidArgumentError(f"names of datasets must be texts without '/', not {key!r}")
        return [visit(f"{name}/{key}" if name else key, child) for key, child in value.items()]

    if isinstance(sources, Mapping):
        tree = visit("", sources)
    else:
        received: Any = sources if isinstance(sources, (list, tuple)) else [sources]
        tree = [visit(str(i), each) for i, each in enumerate(received)]
    return names, datasets, tree


def compute_shares(names: Sequence[str], weights: Weights) -> tuple[Fraction, ...]:
    """Returns the share of each dataset: the product of its share and those of the groups around it.

    >>> weights = {"web": 1, "code": 1, "code/python": 3, "code/rust": 1}
    >>> compute_shares(["web", "code/python", "code/rust"], weights)
    (Fraction(1, 2), Fraction(3, 8), Fraction(1, 8))
    """
    parts = [name.split("/") for name in names]
    groups: dict[str, dict[str, None]] = {}  # names in each group, in order
    for part in parts:
        for depth in range(len(part)):
            groups.setdefault("/".join(part[:depth]), {})["/".join(part[: depth + 1])] = None
    given = get_by_name("weights", weights, [name for group in groups.values() for name in group])
    shares: dict[str, Fraction] = {"": Fraction(1)}
    for group, members in groups.items():
        fractions = {name: as_fraction(f"the weight of {name!r}", given[name]) for name in members}
        total = sum(fractions.values())
        if not total:
            raise InvalidArgumentError(
                f"weights of {', '.join(members)} are all 0; at least one must be above 0"
            )
        shares |= {name: shares[group] * fraction / total for name, fraction in fractions.items()}
    return tuple(shares[name] for name in names)


def get_by_name(argument: str, values: Any, names: Sequence[str]) -> dict[str, Any]:
    """Returns values by name. A sequence has one value for each name."""
    if isinstance(values, Mapping):
        missing = [name for name in names if name not in values]
        unknown = [name for name in values if name not in names]
        if missing or unknown:
            wrong = f"has none for {missing[0]!r}" if missing else f"has an unknown name, {unknown[0]!r}"
            raise InvalidArgumentError(f"{argument} {wrong}; pass a number for each of {', '.join(names)}")
        return dict(values)
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__") or len(values) != len(names):
        raise InvalidArgumentError(
            f"{argument} must be {len(names)} numbers, for {', '.join(names)}, not {values!r:.100}"
        )
    return dict(zip(names, values, strict=True))
