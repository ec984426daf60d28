"""Reinforcement learning on the device: sample, decode, reward the text, append to it, and encode it again.

    pip install '.[examples]' && python examples/rewards_on_device.py

A policy samples an answer after the last token of each dialogue. The reward is the share of digits in the
bytes of the answer, so it depends on the text, not on the tokens. Then a verdict is appended, and the turn is
encoded again, to show encoding on the device: the ids often differ from those that were sampled. To train on
conversations, keep the sampled ids, and append only those of the verdict. All of this is one jitted step. A
transfer guard raises an error if it needs an array from the host or, on an accelerator, copies one to it.
"""

import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import typer

import tokjax
from tokjax.device import Capacities, decode_jit, encode_jit, tokenizer_tables
from tokjax.trainer import train_bpe

VERDICTS = ["\nworse\n", "\nbetter\n"]
DIGITS = [f"{number}, " for number in range(100, 300)]
WORDS = ["the answer is ", "I do not know", "numbers are hard", "ask again later", "perhaps, perhaps not"]


def compute_scores(params, previous):
    """Computes the scores of all ids after the previous ones, by a unigram and a bigram table."""
    return params["unigram"] + params["bigram"][previous]


def sample(params, key, last, num_tokens):
    """Samples tokens after the last ones, shape `(rows, num_tokens)`."""

    def step(previous, key):
        ids = jax.random.categorical(key, compute_scores(params, previous))
        return ids, ids

    return jax.lax.scan(step, last, jax.random.split(key, num_tokens))[1].T


def decode_rows(tables, ids, capacity):
    """Returns the text of rows of ids. The id -1 has no bytes, so rows may have different lengths."""
    rows, length = ids.shape
    return decode_jit(tables, ids.reshape(-1), length * jnp.arange(rows + 1), capacity=capacity)


def compute_rewards(text):
    """Returns the share of digits in the bytes of each text."""
    is_digit = (text.data >= ord("0")) & (text.data <= ord("9"))
    before = jnp.pad(is_digit.cumsum(), (1, 0))[text.row_splits]
    return jnp.diff(before) / jnp.maximum(jnp.diff(text.row_splits), 1)


def compute_loss(params, last, ids, advantages):
    """Returns the loss of REINFORCE: minus the log-likelihood of the sampled tokens, times the advantages."""
    scores = compute_scores(params, jnp.concatenate([last[:, None], ids[:, :-1]], axis=1))
    nats = optax.softmax_cross_entropy_with_integer_labels(scores, ids)
    return jnp.mean(nats.sum(axis=1) * advantages)


@partial(jax.jit, static_argnames=("num_tokens", "learning_rate"))
def train_step(params, key, last, tables, verdicts, num_tokens, learning_rate):
    """Returns new parameters, the last token of each dialogue, and measures, all on the device."""
    ids = sample(params, key, last, num_tokens)
    capacity = 32 * ids.size
    rewards = compute_rewards(decode_rows(tables, ids, capacity))
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
    gradient = jax.grad(compute_loss)(params, last, ids, advantages)

    answers = jnp.concatenate([ids, verdicts[(advantages > 0).astype(jnp.int32)]], axis=1)
    text = decode_rows(tables, answers, capacity)
    sizes = Capacities(*[capacity // 8] * len(Capacities._fields))
    tokens = encode_jit(tables, text.data, text.row_splits, capacities=sizes)
    measures = {
        "reward": rewards.mean(),
        "tokens before": (answers >= 0).sum(),
        "tokens after": tokens.num_tokens,
        "exceeded": text.exceeded | tokens.exceeded,
    }
    params = jax.tree.map(lambda old, part: old - learning_rate * part, params, gradient)
    return params, tokens.ids[tokens.row_splits[1:] - 1], measures


def main(
    rows: int = typer.Option(64, min=2, help="dialogues in parallel"),
    num_tokens: int = typer.Option(12, min=1, help="tokens per answer"),
    vocab_size: int = 400,
    steps: int = typer.Option(100, min=1),
    learning_rate: float = 10.0,
):
    tokenizer = train_bpe([*DIGITS, *WORDS, *VERDICTS] * 2, vocab_size=vocab_size).tokenizer
    encoded = tokjax.encode_batch_result(tokenizer, VERDICTS, add_special_tokens=False)
    verdicts = jax.device_put(tokjax.pad_ragged(encoded, length=16, pad_id=-1).ids)
    count = tokjax.vocab_size(tokenizer)
    params = {"unigram": np.zeros(count, np.float32), "bigram": np.zeros((count, count), np.float32)}
    params, last = jax.device_put((params, np.zeros(rows, np.int32)))
    keys = list(jax.random.split(jax.random.key(0), steps))
    tables = tokenizer_tables(tokenizer)

    history = []
    with jax.transfer_guard("disallow"):
        for key in keys:
            params, last, measures = train_step(
                params, key, last, tables, verdicts, num_tokens, learning_rate
            )
            history.append(measures)
    first, *_, final = history = jax.device_get(history)
    print(f"share of digits: {first['reward']:.3f} at first, {final['reward']:.3f} at the end")
    print(f"tokens of the first turns: {first['tokens before']}, and {first['tokens after']} after encoding")
    if any(measures["exceeded"] for measures in history) or not final["reward"] > first["reward"]:
        sys.exit("the reward did not rise, or a capacity was exceeded")


if __name__ == "__main__":
    typer.run(main)
