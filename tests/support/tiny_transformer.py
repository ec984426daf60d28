"""The smallest transformer that attends, knows positions, and learns: to see what masks and packing do."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import tokjax

WIDTH, HEADS, LAYERS, IGNORED = 16, 2, 2, -100


def init_parameters(vocab_size, length, seed=3):
    rng = np.random.default_rng(seed)

    def matrix(*shape):
        return jnp.asarray(rng.standard_normal(shape) / shape[0] ** 0.5, jnp.float32)

    return {
        "tokens": matrix(vocab_size, WIDTH),
        "positions": matrix(length, WIDTH),
        "layers": [
            {
                "qkv": matrix(WIDTH, 3 * WIDTH),
                "out": matrix(WIDTH, WIDTH),
                "up": matrix(WIDTH, 2 * WIDTH),
                "down": matrix(2 * WIDTH, WIDTH),
            }
            for _ in range(LAYERS)
        ],
    }


def logits(params, ids, positions, mask):
    x = params["tokens"][ids] + params["positions"][positions]
    for layer in params["layers"]:
        q, k, v = jnp.split((x @ layer["qkv"]).reshape(*ids.shape, HEADS, -1), 3, axis=-1)
        attended = jax.nn.dot_product_attention(q, k, v, mask=mask)
        x = x + attended.reshape(x.shape) @ layer["out"]
        x = x + jax.nn.gelu(x @ layer["up"]) @ layer["down"]
    return x @ params["tokens"].T


def total_loss(params, ids, positions, mask, labels):
    """The summed loss of all targets, and how many there are."""
    counts = labels != IGNORED
    scores = jax.nn.log_softmax(logits(params, ids, positions, mask))
    chosen = jnp.take_along_axis(scores, jnp.where(counts, labels, 0)[..., None], axis=-1)[..., 0]
    return -jnp.where(counts, chosen, jnp.float32(0)).sum(), counts.sum()


@partial(jax.jit, static_argnames=("causal", "window"))
def packed_batch(blocks, **options):
    mask = tokjax.masks.make_attention_mask(segment_ids=blocks.segment_ids, **options)
    return blocks.ids, blocks.positions, mask, blocks.causal_lm_labels()


@partial(jax.jit, static_argnames=("causal", "window"))
def padded_batch(padded, **options):
    positions = jnp.maximum(jnp.cumsum(padded.attention_mask, axis=1) - 1, 0)
    mask = tokjax.masks.make_attention_mask(attention_mask=padded.attention_mask, **options)
    return padded.ids, positions, mask, tokjax.causal_lm_labels(padded.ids, padded.attention_mask)
