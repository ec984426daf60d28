"""Tests of `limit_traces` on jitted steps."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tokjax
from tests.project.test_imports import find_loaded_modules
from tests.support.rejections import rejects
from tokjax import LengthBuckets, limit_traces
from tokjax.errors import TooManyTracesError


def embed_batch(table, batch):
    return jnp.sum(table["w"][batch.ids])


def make_padded(length, rows=2):
    ragged = tokjax.ragged_from_rows([[1] * length] * rows)
    return tokjax.collate_padded_batch(ragged, pad_id=0, columns=())


@pytest.fixture
def table():
    return {"w": jnp.ones(300)}


def test_epoch_is_traced_once_per_bucket(tmp_path, table):
    tokenizer = tokjax.byte_level(["</s>", "<pad>"], eos_token="</s>", pad_token="<pad>")
    lengths = np.random.default_rng(0).integers(1, 60, 300)
    buckets = LengthBuckets.fit(lengths + 1, 4, multiple_of=4)
    field = tokjax.BucketedTokenField(tokenizer, buckets, max_tokens=buckets[-1])
    tokjax.write_dataset(("x" * n for n in lengths.tolist()), field, tmp_path / "data")
    loader = tokjax.BucketedLoader(tokjax.open_dataset(tmp_path / "data"), batch_size=8)
    guard = limit_traces(embed_batch, buckets)
    step = jax.jit(guard)
    for batch in loader.repeat(2):
        step(table, batch)
    assert len(guard.traces) == len(buckets)
    assert {trace["batch.ids"] for trace in guard.traces} == {f"int32[8,{boundary}]" for boundary in buckets}
    unpadded = make_padded(7, rows=8)
    with pytest.raises(TooManyTracesError, match=r"5: batch.ids int32\[8,7\], batch.attention_mask"):
        step(table, unpadded)
    step(table, loader.batch_at(0))  # (compiled shapes still run)


def test_error_message(table):
    step = jax.jit(limit_traces(embed_batch, 2, name="train_step"))
    step(table, make_padded(4))
    step(table, make_padded(8))
    with pytest.raises(TooManyTracesError) as caught:
        step(table, make_padded(9)._replace(token_type_ids=np.zeros((2, 9), np.int32)))
    assert str(caught.value) == (
        "train_step was traced 3 times, and limit_traces allows 2: each trace recompiles it. These "
        "arguments differ:\n"
        "  1: batch.ids int32[2,4], batch.attention_mask int32[2,4], batch.token_type_ids absent\n"
        "  2: batch.ids int32[2,8], batch.attention_mask int32[2,8], batch.token_type_ids absent\n"
        "  3: batch.ids int32[2,9], batch.attention_mask int32[2,9], batch.token_type_ids int32[2,9]\n"
        "Pad batches to a few lengths with collate_padded_batch(..., buckets=LengthBuckets(...)), and drop a "
        "smaller last batch; or allow more traces"
    )
    assert isinstance(caught.value, tokjax.TokjaxError)
    assert isinstance(caught.value, RuntimeError)


def test_rejected_shapes_and_failed_traces_are_not_counted(table):
    step = jax.jit(limit_traces(lambda x: x.reshape(2, 2), 1))
    with pytest.raises(TypeError, match="reshape"):
        step(jnp.ones(3))
    step(jnp.ones(4))
    guard = limit_traces(embed_batch, 1)
    step = jax.jit(guard)
    step(table, make_padded(4))
    for length in (5, 6, 5):
        with pytest.raises(TooManyTracesError, match="embed_batch was traced 2 times"):
            step(table, make_padded(length))
    assert len(guard.traces) == 1
    step(table, make_padded(4))
    jax.eval_shape(step, table, make_padded(4))  # these share the trace
    step.lower(table, make_padded(4)).compile()
    assert len(guard.traces) == 1


def test_error_shows_a_limited_number_of_arguments():
    step = jax.jit(limit_traces(lambda arrays: sum(a.sum() for a in arrays), 1, name="step"))
    step([jnp.ones(2)] * 30)
    with pytest.raises(TooManyTracesError, match=r"arrays\[5\] float32\[3\], and 24 more\n"):
        step([jnp.ones(3)] * 30)


def test_repeated_jit_of_equal_shapes_is_rejected():
    guard = limit_traces(jnp.negative, 1)
    jax.jit(partial(guard))(jnp.ones(2))
    with pytest.raises(TooManyTracesError, match="the same shapes and dtypes: create the jitted step once"):
        jax.jit(partial(guard))(jnp.ones(2))


def test_weak_types_and_static_arguments_are_shown():
    guard = limit_traces(lambda x, mode: x + len(mode), 3)
    step = jax.jit(guard, static_argnames="mode")
    step(jnp.ones(()), mode="a" * 50)
    step(1.0, mode="b")
    step(1.0, mode="b")
    assert guard.traces == (
        {"x": "float32[]", "mode": "'" + "a" * 36 + "..."},
        {"x": "weak float32[]", "mode": "'b'"},
    )


def test_inside_other_transformations(table):
    """Gradients and vmap are traced once each, for any number of calls."""

    def loss(table, ids):
        return jnp.sum(table["w"][ids] ** 2)

    in_grad, in_vmap = (limit_traces(loss, 1, name=name) for name in ("grad", "vmap"))

    @jax.jit
    def step(table, ids):
        return jax.grad(in_grad)(table, ids), jax.vmap(in_vmap, in_axes=(None, 0))(table, ids).sum()

    for _ in range(3):
        step(table, jnp.ones((2, 4), jnp.int32))
    assert in_grad.traces == ({"table['w']": "float32[300]", "ids": "int32[2,4]"},)
    assert in_vmap.traces == ({"table['w']": "float32[300]", "ids": "int32[4]"},)
    with pytest.raises(TooManyTracesError, match="grad was traced 2 times"):
        step(table, jnp.ones((3, 4), jnp.int32))


def test_calls_without_tracing_are_not_counted(table):
    guard = limit_traces(embed_batch, 1)
    with jax.disable_jit():
        for length in (3, 4):
            jax.jit(guard)(table, make_padded(length))
    assert guard.traces == ()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: limit_traces(3, 1), "function must be callable, not 3"),
        (
            lambda: limit_traces(jax.jit(embed_batch), 1),
            r"embed_batch is jitted already.*jax.jit\(limit_traces\(step",
        ),
        (lambda: limit_traces(partial(jax.jit(embed_batch)), 1), "is jitted already"),
        (lambda: limit_traces(max, 1), "max has no signature; wrap it in a Python function"),
        (lambda: limit_traces(embed_batch, 0), "max_traces must be at least 1, not 0"),
        (lambda: limit_traces(embed_batch, [4, 8]), r"max_traces must be an integer, not \[4, 8\]"),
    ],
)
def test_invalid_arguments_are_rejected(call, message):
    with rejects(message):
        call()


def test_limit_traces_does_not_load_jax():
    code = "import tokjax; assert tokjax.limit_traces(lambda x: x + 1, 1)(2) == 3"
    assert "jax" not in find_loaded_modules(code)
