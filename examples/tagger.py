"""Small convolutional network that assigns a tag to each token, in plain JAX. `ner.py` trains it."""

from functools import partial

import jax
from transformer import compute_cross_entropy

WIDTH, KERNEL_SIZE, LAYERS = 64, 5, 3


def init_tagger(key, vocab_size, num_tags):
    """Returns random parameters: an embedding, convolution kernels and an output projection."""
    shapes = [(vocab_size, WIDTH), *[(KERNEL_SIZE, WIDTH, 2 * WIDTH)] * LAYERS, (WIDTH, num_tags)]
    keys, init = jax.random.split(key, len(shapes)), jax.nn.initializers.lecun_normal()
    return [init(key, shape) for key, shape in zip(keys, shapes, strict=True)]


def compute_tag_logits(params, ids, mask, key=None):
    """Computes the scores of all tags at each position, shape `(batch, length, num_tags)`.

    Each layer is a gated convolution with twice the dilation of the one before it.

    Args:
        params: parameters from `init_tagger`.
        ids: token ids, shape `(batch, length)`.
        mask: 1 for tokens and 0 for padding, shape `(batch, length)`.
        key: key for dropout in training; `None` for no dropout.
    """
    convolve = partial(jax.lax.conv_general_dilated, dimension_numbers=("NWC", "WIO", "NWC"))
    embedding, *kernels, tags = params
    x = embedding[ids]
    for i, kernel in enumerate(kernels):
        if key is not None:
            x *= jax.random.bernoulli(jax.random.fold_in(key, i), 0.8, x.shape) / 0.8
        # Zeros at padding keep the result independent of the length of the batch.
        inputs = jax.nn.standardize(x) * mask[..., None]
        x += jax.nn.glu(convolve(inputs, kernel, (1,), "SAME", rhs_dilation=(2**i,)))
    return jax.nn.standardize(x) @ tags


def compute_total_loss(params, batch):
    """Returns the summed loss in nats and the number of labels, with the step as the key for dropout."""
    ids, mask, tags, step = batch
    return compute_cross_entropy(compute_tag_logits(params, ids, mask, jax.random.key(step)), tags)
