"""The small network that tags tokens in ner.py: gated convolutions, in plain JAX."""

from functools import partial

import jax
from transformer import compute_cross_entropy

WIDTH, REACH, LAYERS = 64, 5, 3


def init_tagger(key, vocab_size, num_tags):
    shapes = [(vocab_size, WIDTH), *[(REACH, WIDTH, 2 * WIDTH)] * LAYERS, (WIDTH, num_tags)]
    keys, init = jax.random.split(key, len(shapes)), jax.nn.initializers.lecun_normal()
    return [init(key, shape) for key, shape in zip(keys, shapes, strict=True)]


def compute_tag_logits(params, ids, mask, key=None):
    """Scores, `(batch, length, tags)`; each layer looks twice as far as the one before. A key drops some."""
    convolve = partial(jax.lax.conv_general_dilated, dimension_numbers=("NWC", "WIO", "NWC"))
    embedding, *kernels, tags = params
    x = embedding[ids]
    for i, kernel in enumerate(kernels):
        if key is not None:
            x *= jax.random.bernoulli(jax.random.fold_in(key, i), 0.8, x.shape) / 0.8
        shown, far = jax.nn.standardize(x) * mask[..., None], (2**i,)
        x += jax.nn.glu(convolve(shown, kernel, (1,), "SAME", rhs_dilation=far))
    return jax.nn.standardize(x) @ tags


def compute_total_loss(params, batch):
    ids, mask, tags, step = batch
    return compute_cross_entropy(compute_tag_logits(params, ids, mask, jax.random.key(step)), tags)
