"""Compilation of a training step for all batch shapes of a loader, before its first step."""

from __future__ import annotations

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

    Args:
        step: function that is called as `step(*arguments, batch)`; it can be jitted already, for instance
            with `donate_argnums`.
        loader: loader of the batches.
        arguments: the arguments before the batch, such as parameters and the state of an optimizer: arrays,
            or `jax.ShapeDtypeStruct`. Only their shapes, dtypes and shardings are used.
        sharding: sharding of the batches, if `prefetch_to_device` gets one.

    Returns:
        The step as a function of the same arguments, which calls the executable for the shape of the batch.

    Raises:
        InvalidArgumentError: `loader` is not a loader; its batches are those of
            `PackedBlocks.to_huggingface(flash_attention=True)`, which have any number of shapes; or the step
            has static arguments.
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
    num_static = len(arguments) + 1 - len(dynamic_arguments)
    if num_static:
        raise InvalidArgumentError(
            f"the step has {num_static} static arguments, and an executable takes only arrays; bind them "
            "before jax.jit, as in jax.jit(functools.partial(step, VALUE))"
        )
    return CompiledStep({shapes: each.compile() for shapes, each in lowered.items()})


class CompiledStep:
    """Step that is compiled for the shapes of a loader. Made by `compile_ahead`.

    Attributes:
        compiled: executable (`jax.stages.Compiled`) for the shapes of the arrays of a batch.
    """

    def __init__(self, compiled: dict[_Shapes, Any]) -> None:
        self.compiled = compiled

    def __call__(self, *arguments: Any) -> Any:
        """Calls the step with its arguments, of which the last is the batch.

        Raises:
            InvalidArgumentError: the batch has a shape that the loader does not have.
        """
        shapes = _get_shapes(arguments[-1])
        if shapes not in self.compiled:
            known = ", ".join(map(_describe_shapes, self.compiled))
            raise InvalidArgumentError(
                f"the batch has {_describe_shapes(shapes)}, and the step was compiled for {known}; pass "
                "batches of the loader that compile_ahead got, as the last argument"
            )
        try:
            return self.compiled[shapes](*arguments)
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


def _get_shapes(batch: Any) -> _Shapes:
    """Returns the shapes of the arrays of a batch."""
    import jax  # noqa: PLC0415

    return tuple(np.shape(leaf) for leaf in jax.tree.leaves(batch))


def _describe_shapes(shapes: _Shapes) -> str:
    return f"{len(shapes)} arrays of shape {shapes[0] if shapes else ()}"
