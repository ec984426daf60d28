"""Tests of random numbers for objectives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tokjax
from tests.support.rejections import rejects


def test_draws_from_generators_and_keys():
    for source in (np.random.default_rng(3), jax.random.key(3), jax.random.PRNGKey(3)):
        draws = tokjax.objectives.draw_uniform(source, (1000, 100))
        assert draws.shape == (1000, 100)
        assert draws.dtype == np.float32
        assert isinstance(draws, np.ndarray) == isinstance(source, np.random.Generator)
        draws = np.asarray(draws)
        assert 0 <= draws.min() < 1e-4
        assert 0.9999 < draws.max() < 1
        assert abs(float(draws.mean()) - 0.5) < 0.004
    traced = jax.jit(lambda key: tokjax.objectives.draw_uniform(key, (3,)))(jax.random.key(1))
    assert traced.tolist() == tokjax.objectives.draw_uniform(jax.random.key(1), (3,)).tolist()


@pytest.mark.parametrize("source", [0, None, np.random, np.array([0, 1], np.uint32), jnp.array([1.5])])
def test_other_sources_of_draws_are_rejected(source):
    with rejects("a JAX key, not .*default_rng"):
        tokjax.objectives.draw_uniform(source, (2,))


def test_shape_of_draws():
    rng = np.random.default_rng(0)
    assert tokjax.objectives.draw_uniform(rng, ()).shape == ()
    with rejects("shape must be at least 0, not -1"):
        tokjax.objectives.draw_uniform(rng, (-1,))
    with rejects(r"must be a tuple, such as \(8, 512\), not 5"):
        tokjax.objectives.draw_uniform(rng, 5)
    for keys in (jax.random.split(jax.random.key(0), 3), jax.random.split(jax.random.PRNGKey(0), 3)):
        with rejects(r"a single key, not keys of shape \(3"):
            tokjax.objectives.draw_uniform(keys, (2,))
