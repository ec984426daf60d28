"""Compilation of a training step for all batch shapes of a loader, before its first step."""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tokjax.datasets.loaders.base import Loader
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

_Shapes: TypeAlias = tuple[tuple[int, ...], ...]


def compile_ahead(
    step: Callable[..., Any], loader: Loader[Any, Any], *arguments: Any, sharding: Any = None
) -> CompiledStep:
    """Compiles a step for every batch shape of a loader, so that no later step waits for the compiler.

    Without it, a jitted step compiles when a batch has a new shape, which can be long after the first step.
    `limit_traces` only counts such compilations.

    Args:
        step: function that is called as `step(*arguments, batch)`; it can be jitted already, for instance
            with `donate_argnums` or `static_argnums`.
        loader: loader of the batches.
        arguments: the arguments before the batch, such as parameters and the state of an optimizer: arrays,
            or `jax.ShapeDtypeStruct`. Only their shapes, dtypes and shardings are used, except those of
            static arguments, whose values become part of the executable.
        sharding: sharding of the batches, if `prefetch_to_device` gets one.

    Returns:
        The step as a function of the same arguments, which calls the executable for the shape of the batch.

    Raises:
        InvalidArgumentError: `loader` is not a loader; its batches are those of
            `PackedBlocks.to_huggingface(flash_attention=True)`, which have any number of shapes; or it is not
            clear which arguments are static.
    """
    import jax as typed_jax  # noqa: PLC0415 (slow to import)

    jax: Any = typed_jax  # JAX is only partly typed
    if not callable(step):
        raise InvalidArgumentError(f"step must be a function of a batch, not a {type(step).__name__}")
    if not isinstance(loader, Loader):
        raise InvalidArgumentError(f"loader must be a loader of tokjax, not a {type(loader).__name__}")
    if sharding is not None and jax.process_count() > 1:
        loader = loader.shard(0, 1)  # (arrays are global, with the rows of all processes)
    jitted: Any = step if hasattr(step, "lower") else jax.jit(step)

    def describe(leaf: Any) -> Any:
        dtype = jax.dtypes.canonicalize_dtype(leaf.dtype)
        return jax.ShapeDtypeStruct(leaf.shape, dtype, sharding=sharding)

    specs = loader.element_specs
    _reject_flash_attention(specs)
    lowered = {_get_shapes(spec): jitted.lower(*arguments, jax.tree.map(describe, spec)) for spec in specs}
    dynamic_arguments, _ = next(iter(lowered.values())).args_info
    static = _find_static(arguments, len(arguments) + 1 - len(dynamic_arguments))
    return CompiledStep({shapes: each.compile() for shapes, each in lowered.items()}, static)


class CompiledStep:
    """Step that is compiled for the shapes of a loader. Made by `compile_ahead`.

    Attributes:
        compiled: executable (`jax.stages.Compiled`) for the shapes of the arrays of a batch.
    """

    def __init__(self, compiled: dict[_Shapes, Any], static: dict[int, Any]) -> None:
        self.compiled = compiled
        self._static = static

    def __call__(self, *arguments: Any) -> Any:
        """Calls the step with its arguments, of which the last is the batch.

        Raises:
            InvalidArgumentError: the batch has a shape that the loader does not have, or a static argument
                has another value than in `compile_ahead`.
        """
        shapes = _get_shapes(arguments[-1])
        if shapes not in self.compiled:
            known = ", ".join(map(_describe_shapes, self.compiled))
            raise InvalidArgumentError(
                f"the batch has {_describe_shapes(shapes)}, and the step was compiled for {known}; pass "
                "batches of the loader that compile_ahead got, as the last argument"
            )
        for i, value in self._static.items():
            if arguments[i] != value:
                raise InvalidArgumentError(
                    f"argument {i} is static, and the step was compiled for {value!r:.100}, not "
                    f"{arguments[i]!r:.100}; call compile_ahead for each value"
                )
        # An executable takes only the other arguments.
        dynamic = (each for i, each in enumerate(arguments) if i not in self._static)
        try:
            return self.compiled[shapes](*dynamic)
        except ValueError as error:
            if "sharding" in str(error):
                error.add_note(
                    "compile_ahead got other shardings: pass it sharding=, that of prefetch_to_device, and "
                    "arguments with the shardings of the training loop"
                )
            raise


def _reject_flash_attention(specs: tuple[Any, ...]) -> None:
    """Raises for batches that have the segments in the form that FlashAttention takes in transformers."""
    import jax  # noqa: PLC0415

    leaves, _ = jax.tree_util.tree_flatten_with_path(specs)
    keys = {getattr(key, "key", None) for path, _ in leaves for key in path}
    if keys >= {"cu_seq_lens_q", "max_length_q"}:
        raise InvalidArgumentError(
            "the batches are of to_huggingface(flash_attention=True), and the shape of cu_seq_lens_q and "
            "the value of max_length_q differ from batch to batch, so the step can't be compiled ahead; for "
            "kernels in JAX, use blocks.cu_seqlens(max_segments), which has one shape"
        )


def _find_static(arguments: tuple[Any, ...], count: int) -> dict[int, Any]:
    """Returns the static arguments by position.

    JAX has the number of static arguments, but not their positions. Arrays are never static, and what is
    neither an array nor a number always is. A number or an empty container can be either.

    Args:
        arguments: the arguments before the batch.
        count: number of static arguments.

    Raises:
        InvalidArgumentError: several choices are possible.
    """
    import jax  # noqa: PLC0415

    def is_array(leaf: Any) -> bool:
        return hasattr(leaf, "shape")

    if not count:
        return {}
    leaves = [jax.tree.leaves(argument) for argument in arguments]
    possible = [i for i, each in enumerate(leaves) if not any(map(is_array, each))]
    certain = [i for i in possible if not all(isinstance(leaf, numbers.Number) for leaf in leaves[i])]
    for chosen in (possible, certain):
        if len(chosen) == count:
            return {i: arguments[i] for i in chosen}
    raise InvalidArgumentError(
        f"the step has {count} static arguments, and it is not clear which of the arguments {possible} they "
        "are; bind them with functools.partial before jax.jit, or pass numbers that are not static as arrays"
    )


def _get_shapes(batch: Any) -> _Shapes:
    """Returns the shapes of the arrays of a batch."""
    import jax  # noqa: PLC0415

    return tuple(np.shape(leaf) for leaf in jax.tree.leaves(batch))


def _describe_shapes(shapes: _Shapes) -> str:
    return f"{len(shapes)} arrays of shape {shapes[0] if shapes else ()}"
