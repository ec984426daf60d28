"""States of loaders: dicts of integers that JSON, Orbax and Grain can save."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from tokjax._util.checks import checked_int
from tokjax.core.errors import DatasetMismatchError, InvalidArgumentError

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
        given = _as_int(state.get(name))
        if given != (value if version == 2 else _as_number(value)):
            shown = repr(given) if version == 2 or isinstance(value, int) else "different"
            raise DatasetMismatchError(
                f"the state's {name} is {shown}, this loader's is {value!r}; make the loader as it was "
                "when the state was taken"
            )
    return checked_int("the state's step", _as_int(state.get("step", -1)), least=0)


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
