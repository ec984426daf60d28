"""The small transformer that the examples fit, and the loop that fits it, in plain JAX and optax."""

import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

COLUMNS = TextColumn("training"), BarColumn(), TextColumn("{task.fields[note]}"), TimeRemainingColumn()


def init_params(key, vocab_size, length, width=128, heads=4, layers=2):
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

    embeddings = {"embed": normal(vocab_size, width), "place": normal(length, width)}
    return embeddings | {"layers": [layer() for _ in range(layers)], "norm": jnp.ones(width)}


def norm(x, scale):
    return x * scale * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def logits_of(params, ids, positions, mask):
    """Scores of all ids at each place, `(batch, length, vocab_size)`.

    Args:
        params: as `init_params` gives them.
        ids: `(batch, length)`.
        positions: the place of each token in its document, `(batch, length)`.
        mask: true where a query sees a key, `(batch, 1, length, length)` or what broadcasts to it.
    """
    x = params["embed"][ids] + params["place"][positions]
    for layer in params["layers"]:
        q, k, v = jnp.einsum("bld,dchn->cblhn", norm(x, layer["norms"][0]), layer["qkv"])
        attended = jax.nn.dot_product_attention(q, k, v, mask=mask)
        x = x + jnp.einsum("blhn,hnd->bld", attended, layer["out"])
        x = x + jax.nn.gelu(norm(x, layer["norms"][1]) @ layer["up"]) @ layer["down"]
    return norm(x, params["norm"]) @ params["embed"].T


def cross_entropy(logits, labels):
    """The summed nats of the labels that are not -100, and how many these are."""
    counted = labels != -100
    nats = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.where(counted, labels, 0))
    return jnp.sum(nats, where=counted), jnp.sum(counted, dtype=jnp.int32)


def fit(params, total_loss, batches, steps, learning_rate):
    """Fitted parameters; those given are used up. `total_loss(params, batch)` gives nats and a count."""
    schedule = optax.warmup_cosine_decay_schedule(0.0, learning_rate, steps // 10 + 1, steps + 1)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))

    def mean_loss(params, batch):
        nats, count = total_loss(params, batch)
        return nats / jnp.maximum(count, 1), count

    @partial(jax.jit, donate_argnums=(0, 1))
    def train_step(params, state, batch):
        (loss, count), gradients = jax.value_and_grad(mean_loss, has_aux=True)(params, batch)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss, count

    state, begin, predicted = optimizer.init(params), time.perf_counter(), 0
    with Progress(*COLUMNS) as progress:
        task = progress.add_task("", total=steps, note="")
        for _, batch in zip(range(steps), batches, strict=False):
            params, state, loss, count = train_step(params, state, batch)
            predicted += int(count)
            rate = predicted / (time.perf_counter() - begin)
            progress.update(task, advance=1, note=f"loss {float(loss):.3f}, {rate:,.0f} tokens/s")
    return params


def summed(totals, params, batches):
    """The sums over batches of the numbers that `totals(params, batch)` gives."""
    jitted = jax.jit(totals)
    return np.sum([jitted(params, batch) for batch in batches], axis=0, dtype=np.float64)
