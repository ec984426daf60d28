"""Instruction tuning on packed conversations, with a loss on the answers alone.

    pip install '.[chat,examples]' && python examples/finetune_packed.py

A user asks what a function does, and the assistant says the first line of its docstring. The functions are
those of the Python standard library, or of `--corpus`. A model that has read some source is tuned twice in as
many steps of as many places: with a conversation a row, which is padding, and with as many as it holds.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import rich
import typer
from batches import iter_batches, iter_random_batches
from corpus import iter_described_functions, read_corpus
from rich.table import Table
from transformer import compute_cross_entropy, compute_logits, fit, init_params, sum_over_batches

import tokjax
from tokjax.trainer import train_bpe

TEMPLATE = """{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def encode_conversations(tokenizer, texts, length):
    """The ids of each conversation that fits a row, and for each token 1 if the assistant said it."""
    talks = (
        [{"role": "user", "content": f"What does {name} do?"}, {"role": "assistant", "content": answer}]
        for name, answer in iter_described_functions(texts)
    )
    chats = [tokjax.encode_chat(tokenizer, talk, TEMPLATE) for talk in talks]
    fitting = [chat for chat in chats if len(chat.result) <= length]
    if not fitting:
        raise tokjax.errors.InvalidArgumentError(
            f"the corpus is too small: it has {len(chats)} functions with docstrings, and no "
            f"conversation about one has {length} tokens or fewer"
        )
    assistant_mask = tokjax.ragged_from_rows(chat.assistant_mask for chat in fitting)
    return tokjax.ragged_from_rows(chat.result.ids for chat in fitting), assistant_mask


def pack_conversations(ids, assistant_mask, length, max_segments=None):
    """Blocks of whole conversations, and where in them the assistant speaks."""
    plan = tokjax.packing.plan_packing(ids.lengths, length, "best_fit", max_segments=max_segments)
    return tokjax.packing.apply_packing(plan, ids, pad_id=0), tokjax.packing.apply_packing(
        plan, assistant_mask, pad_id=0
    ).ids


def compute_total_loss(params, batch):
    """Each token sees those before it in its own conversation; answers are what is to be said."""
    blocks, loss_mask = batch
    mask = tokjax.masks.make_attention_mask(segment_ids=blocks.segment_ids)
    logits = compute_logits(params, blocks.ids, blocks.positions, mask)
    return compute_cross_entropy(logits, blocks.causal_lm_labels(loss_mask=loss_mask))


def main(
    corpus: list[Path] = typer.Option([], help="a file of Python, or several: the option again for each"),
    megabytes: float = typer.Option(8, help="how much source to use"),
    vocab_size: int = 2048,
    length: int = typer.Option(256, help="tokens a row"),
    batch_size: int = typer.Option(8, min=1),
    steps: int = typer.Option(120, min=1, help="of reading, and of tuning"),
):
    texts, held_out = read_corpus(corpus, megabytes)
    special = ["<|im_start|>", "<|im_end|>"]
    tokenizer = train_bpe(texts, vocab_size=vocab_size, pattern="cl100k", special_tokens=special).tokenizer
    talks = encode_conversations(tokenizer, texts, length)
    held = pack_conversations(*encode_conversations(tokenizer, held_out, length), length)
    read = tokjax.encode_batch_result(tokenizer, texts, disallowed_special=())
    blocks = tokjax.pack_blocks(read, block_size=length, pad_id=0)

    def compute_held_out_loss(params):
        nats, count = sum_over_batches(compute_total_loss, params, iter_batches(held, batch_size))
        return f"{nats / count:.3f}"

    params = init_params(jax.random.key(0), tokjax.vocab_size(tokenizer), length)
    params = fit(
        params,
        compute_total_loss,
        iter_random_batches((blocks, blocks.attention_mask), batch_size, steps),
        steps,
        4e-3,
    )
    table = Table("tuned on", "places", "tokens", "nats a token of held-out answers")
    table.add_row("nothing", "", "", compute_held_out_loss(params))
    for name, max_segments in (("padded rows", 1), ("packed rows", None)):
        batches = list(
            iter_random_batches(pack_conversations(*talks, length, max_segments), batch_size, steps)
        )
        tuned = fit(jax.tree.map(jnp.copy, params), compute_total_loss, batches, steps, 3e-3)
        tokens = sum(int(part.attention_mask.sum()) for part, _ in batches)
        table.add_row(name, f"{steps * batch_size * length:,}", f"{tokens:,}", compute_held_out_loss(tuned))
    rich.print(table)


if __name__ == "__main__":
    try:
        typer.run(main)
    except (tokjax.TokjaxError, OSError) as error:
        sys.exit(f"error: {error}")
