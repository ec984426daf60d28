"""Instruction tuning on packed conversations, with a loss on the assistant's answers only.

    pip install '.[chat,examples]' && python examples/finetune_packed.py

A user asks what a function does, and the assistant answers with the first line of its docstring. The
functions are those of the Python standard library, or of `--corpus`. A model is pre-trained on the source,
and then tuned twice, with the same number of steps and positions: with one conversation per row, which is
mostly padding, and with packed conversations. The table shows that packing trains on more tokens and reaches
a lower loss.
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
    """Returns the ids and the assistant mask of each conversation that has at most `length` tokens."""
    conversations = (
        [{"role": "user", "content": f"What does {name} do?"}, {"role": "assistant", "content": answer}]
        for name, answer in iter_described_functions(texts)
    )
    chats = [tokjax.encode_chat(tokenizer, messages, TEMPLATE) for messages in conversations]
    fitting = [chat for chat in chats if len(chat.result) <= length]
    if not fitting:
        raise tokjax.errors.InvalidArgumentError(
            f"the corpus is too small: it has {len(chats)} functions with docstrings, and no "
            f"conversation about one has {length} tokens or fewer"
        )
    assistant_mask = tokjax.ragged_from_rows(chat.assistant_mask for chat in fitting)
    return tokjax.ragged_from_rows(chat.result.ids for chat in fitting), assistant_mask


def pack_conversations(ids, assistant_mask, length, max_segments=None):
    """Packs conversations into blocks without splitting them; returns the blocks and their assistant mask.

    One plan packs both the ids and the mask, so that their positions agree.
    """
    plan = tokjax.packing.plan_packing(ids.lengths, length, "best_fit", max_segments=max_segments)
    return tokjax.packing.apply_packing(plan, ids, pad_id=0), tokjax.packing.apply_packing(
        plan, assistant_mask, pad_id=0
    ).ids


def compute_total_loss(params, batch):
    """Returns the summed loss on the answers in nats and the number of their labels.

    Each token attends to the earlier tokens of its conversation.
    """
    blocks, loss_mask = batch
    mask = tokjax.masks.make_attention_mask(segment_ids=blocks.segment_ids)
    logits = compute_logits(params, blocks.ids, blocks.positions, mask)
    return compute_cross_entropy(logits, blocks.causal_lm_labels(loss_mask=loss_mask))


def main(
    corpus: list[Path] = typer.Option([], help="Python file; repeat the option for several files"),
    megabytes: float = typer.Option(8, help="amount of source code to use, in MB"),
    vocab_size: int = 2048,
    length: int = typer.Option(256, help="tokens per row"),
    batch_size: int = typer.Option(8, min=1),
    steps: int = typer.Option(120, min=1, help="steps of pre-training, and of tuning"),
):
    texts, held_out = read_corpus(corpus, megabytes)
    special = ["<|im_start|>", "<|im_end|>"]
    tokenizer = train_bpe(texts, vocab_size=vocab_size, pattern="cl100k", special_tokens=special).tokenizer
    conversations = encode_conversations(tokenizer, texts, length)
    held = pack_conversations(*encode_conversations(tokenizer, held_out, length), length)
    encoded = tokjax.encode_batch_result(tokenizer, texts, disallowed_special=())
    blocks = tokjax.pack_blocks(encoded, block_size=length, pad_id=0)

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
    table = Table("tuned on", "positions", "tokens", "nats per token of held-out answers")
    table.add_row("nothing", "", "", compute_held_out_loss(params))
    for name, max_segments in (("padded rows", 1), ("packed rows", None)):
        batches = list(
            iter_random_batches(pack_conversations(*conversations, length, max_segments), batch_size, steps)
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
