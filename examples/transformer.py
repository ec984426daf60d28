"""Small transformer and its training loop, in plain JAX and optax. Most examples use both."""

import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

SECONDS_BETWEEN_ROWS = 4


@partial(jax.jit, static_argnames=("vocab_size", "length", "width", "heads", "layers"))
def init_params(key, vocab_size, length, width=128, heads=4, layers=2):
    """Returns random parameters, for token ids below `vocab_size` and positions below `length`."""

    def normal(*shape):
        nonlocal key
        key, part = jax.random.split(key)
        return 0.02 * jax.random.normal(part, shape)

    def layer():
        return {
            "qkv": normal(width, 3, heads, width // heads),
            "out": normal(heads, width // heads, width),
            "up": normal(width, 4 * width),
            "down": normal(4 * width, width),
            "norms": jnp.ones((2, width)),
        }

    embeddings = {"embed": normal(vocab_size, width), "position": normal(length, width)}
    return embeddings | {"layers": [layer() for _ in range(layers)], "norm": jnp.ones(width)}


def rms_norm(x, scale):
    return x * scale * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def compute_logits(params, ids, positions, mask):
    """Computes the scores of all ids at each position, shape `(batch, length, vocab_size)`.

    Args:
        params: parameters from `init_params`.
        ids: token ids, shape `(batch, length)`.
        positions: index of each token in its document, shape `(batch, length)` or `(length,)`.
        mask: attention mask, true where a query attends to a key; broadcasts to `(batch, 1, length, length)`.
    """
    x = params["embed"][ids] + params["position"][positions]
    for layer in params["layers"]:
        q, k, v = jnp.einsum("bld,dchn->cblhn", rms_norm(x, layer["norms"][0]), layer["qkv"])
        attended = jax.nn.dot_product_attention(q, k, v, mask=mask)
        x = x + jnp.einsum("blhn,hnd->bld", attended, layer["out"])
        x = x + jax.nn.gelu(rms_norm(x, layer["norms"][1]) @ layer["up"]) @ layer["down"]
    return rms_norm(x, params["norm"]) @ params["embed"].T


def compute_cross_entropy(logits, labels):
    """Returns the summed cross entropy in nats and the number of labels; labels of -100 are ignored."""
    counted = labels != -100
    nats = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.where(counted, labels, 0))
    return jnp.sum(nats, where=counted), jnp.sum(counted, dtype=jnp.int32)


def fit(params, total_loss, batches, steps, learning_rate, measures=None):
    """Trains with AdamW, prints a table of losses with a row every few seconds, and returns the parameters.

    Args:
        params: initial parameters. Their buffers are donated, so they can't be used afterwards.
        total_loss: function of `(params, batch)` that returns the summed loss in nats and the label count.
        batches: iterable of batches, one per step.
        steps: number of steps.
        learning_rate: peak of the learning rate, between warm-up and cosine decay.
        measures: further columns of the table, by name: functions of the parameters that return a number.
    """
    schedule = optax.warmup_cosine_decay_schedule(0.0, learning_rate, steps // 10 + 1, steps + 1)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))

    def mean_loss(params, batch):
        nats, count = total_loss(params, batch)
        return nats / jnp.maximum(count, 1), (nats, count)

    @partial(jax.jit, donate_argnums=(0, 1, 3))
    def train_step(params, state, batch, sums):
        gradients, new = jax.grad(mean_loss, has_aux=True)(params, batch)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, jax.tree.map(jnp.add, sums, new)

    names = ["  step", "training loss", *(measures or {}), "tokens/s"]
    print("compiling the training step", flush=True)
    state, sums, begin = optimizer.init(params), make_zero_totals(), None
    for step, batch in zip(range(1, steps + 1), batches, strict=False):
        params, state, sums = train_step(params, state, batch, sums)
        nats, count = map(float, sums)  # waits until the step is complete
        seconds = time.perf_counter() - begin if begin else 0
        if step == 1:
            print("  ".join(names), flush=True)
        if step in (1, steps) or seconds > SECONDS_BETWEEN_ROWS:
            measured = [f"{measure(params):.3f}" for measure in (measures or {}).values()]
            rate = f"{count / seconds:,.0f}" if begin else "-"
            row = zip(names, [f"{step:,}", f"{nats / max(count, 1):.3f}", *measured, rate], strict=True)
            print("  ".join(value.rjust(len(name)) for name, value in row), flush=True)
            sums, begin = make_zero_totals(), time.perf_counter()
    return params


def make_zero_totals():
    """Returns zeros for the sums of the loss and of the number of labels."""
    return jnp.float32(0), jnp.int32(0)


def sum_over_batches(totals, params, batches):
    """Returns the sums over all batches of the numbers that `totals(params, batch)` returns."""
    jitted = jax.jit(totals)
    return np.sum([jitted(params, batch) for batch in batches], axis=0, dtype=np.float64)
