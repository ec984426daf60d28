"""From text to a language model: train a vocabulary, pack the corpus, fit a small transformer.

    pip install -e '.[examples]' && python examples/train_lm.py

The corpus is the source code of the Python standard library, or the files of `--corpus`. The tokenizer
and the dataset stay in `--directory`, and a second run uses them again if nothing has changed.
"""

import argparse
import hashlib
import math
import sys
import sysconfig
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import optax
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

import tokjax
from tokjax.trainer import train_bpe

END_OF_TEXT = "<|endoftext|>"
WIDTH, HEADS, LAYERS = 128, 4, 2
console = Console()


def read_corpus(paths, megabytes):
    """Documents to train on, about that much, and held-out ones: every twentieth."""
    if not paths:
        root = Path(sysconfig.get_path("stdlib"))
        skipped = {"site-packages", "dist-packages", "test", "tests", "idle_test"}
        paths = [p for p in root.rglob("*.py") if not skipped & set(p.relative_to(root).parts)]
        paths.sort(key=lambda p: hashlib.sha256(p.name.encode()).digest())  # mixed, and the same each time
    texts = [text.decode("utf-8", "replace") for text in tokjax.read_documents(paths, END_OF_TEXT)]
    if len(texts) < 20:  # a few long ones: cut them up
        texts = [text[i : i + 20_000] for text in texts for i in range(0, len(text), 20_000)]
    train, size = [], 0
    for i, text in enumerate(texts):
        if i % 20 and size < megabytes * 1e6:
            train.append(text)
            size += len(text.encode("utf-8", "replace"))
    held_out = [text[:20_000] for text in texts[::20][:50]]
    if not train or not held_out:
        raise tokjax.InvalidArgumentError("the corpus is too small: it needs at least two documents")
    return train, held_out


def prepare(directory, texts, vocab_size, chunk_tokens):
    """The tokenizer and the packed dataset of these texts: those of the last run, if they still fit."""
    digest = hashlib.sha256(repr((vocab_size, chunk_tokens, texts)).encode("utf-8", "replace")).hexdigest()
    place = directory / f"corpus-{digest[:16]}"
    try:
        tokenizer = tokjax.load_tokenizer(place / "tokenizer.json")
        dataset = tokjax.open_dataset(place / "dataset", tokenizer)
        console.print(f"using the dataset of an earlier run, {place}")
        return tokenizer, dataset
    except FileNotFoundError:
        console.print(f"no dataset of these texts yet: making {place}")
    except tokjax.TokjaxError as error:
        console.print(f"making the dataset again: {error}", markup=False)
    place.mkdir(parents=True, exist_ok=True)
    trained = train_bpe(texts, vocab_size=vocab_size, pattern="cl100k", special_tokens=[END_OF_TEXT])
    tokjax.save_tokenizer(trained.tokenizer, place / "tokenizer.json")
    field = tokjax.PackedTokenField(trained.tokenizer, chunk_tokens)
    tokjax.write_dataset(texts, field, place / "dataset", overwrite=True, progress=True)
    return trained.tokenizer, tokjax.open_dataset(place / "dataset", trained.tokenizer)


def init_params(key, vocab_size, length):
    def normal(*shape, scale=0.02):
        nonlocal key
        key, part = jax.random.split(key)
        return scale * jax.random.normal(part, shape)

    def layer():
        return {
            "qkv": normal(WIDTH, 3, HEADS, WIDTH // HEADS),
            "out": normal(HEADS, WIDTH // HEADS, WIDTH),
            "up": normal(WIDTH, 4 * WIDTH),
            "down": normal(4 * WIDTH, WIDTH),
            "norms": jnp.ones((2, WIDTH)),
        }

    layers = [layer() for _ in range(LAYERS)]
    return {
        "embed": normal(vocab_size, WIDTH),
        "place": normal(length, WIDTH),
        "layers": layers,
        "norm": jnp.ones(WIDTH),
    }


def norm(x, scale):
    return x * scale * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def logits_of(params, batch):
    """Each token sees the tokens before it in its own document, and no other document of the block."""
    length = batch.ids.shape[1]
    same_document = batch.segment_ids[:, None, :, None] == batch.segment_ids[:, None, None, :]
    mask = same_document & jnp.tri(length, dtype=bool)
    x = params["embed"][batch.ids] + params["place"][batch.positions]
    for layer in params["layers"]:
        q, k, v = jnp.einsum("bld,dchn->cblhn", norm(x, layer["norms"][0]), layer["qkv"])
        attended = jax.nn.dot_product_attention(q, k, v, mask=mask)
        x = x + jnp.einsum("blhn,hnd->bld", attended, layer["out"])
        x = x + jax.nn.gelu(norm(x, layer["norms"][1]) @ layer["up"]) @ layer["down"]
    return norm(x, params["norm"]) @ params["embed"].T


def total_loss(params, batch):
    """The summed cross-entropy of a batch in nats, and how many tokens it predicts."""
    labels = tokjax.causal_lm_labels(batch.ids, batch.attention_mask, segment_ids=batch.segment_ids)
    counted = labels != -100
    losses = optax.softmax_cross_entropy_with_integer_labels(
        logits_of(params, batch), jnp.where(counted, labels, 0)
    )
    return jnp.sum(losses, where=counted), jnp.sum(counted, dtype=jnp.float32)


def mean_loss(params, batch):
    nats, tokens = total_loss(params, batch)
    return nats / tokens


def bits_per_byte(params, blocks, tokenizer, batch_size):
    """Over the tokens of the packed held-out text that are predicted; padding fills the last batch."""
    lengths = tokenizer.vocabulary.byte_lengths
    labels = tokjax.causal_lm_labels(blocks.ids, blocks.attention_mask, segment_ids=blocks.segment_ids)
    nbytes = lengths[labels[labels != -100]].sum()
    evaluate, nats = jax.jit(total_loss), 0.0
    for start in range(0, len(blocks.ids), batch_size):
        rows = [jnp.asarray(column[start : start + batch_size]) for column in blocks[:-1]]
        short = batch_size - len(rows[0])
        part = blocks._replace(
            **dict(zip(blocks._fields, [jnp.pad(r, ((0, short), (0, 0))) for r in rows], strict=False))
        )
        nats += float(evaluate(params, part)[0])
    return nats / math.log(2) / nbytes


def sample(params, tokenizer, length, prompt, count, key):
    ids = tokjax.encode(tokenizer, prompt).tolist()
    step = jax.jit(
        lambda params, blocks, place, key: jax.random.categorical(
            key, logits_of(params, blocks)[0, place] / 0.7
        )
    )
    for _ in range(count):
        seen = ids[-length:]
        window = tokjax.pack_blocks(tokjax.ragged_from_rows([seen]), block_size=length, pad_id=0)
        key, part = jax.random.split(key)
        ids.append(int(step(params, window, len(seen) - 1, part)))
    return tokjax.decode(tokenizer, ids)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, nargs="+", help="text files [the standard library's source]")
    parser.add_argument("--directory", type=Path, default=Path("runs/train_lm"))
    parser.add_argument("--megabytes", type=float, default=8, help="how much text to train on")
    parser.add_argument("--vocab-size", type=int, default=4096)
    parser.add_argument("--length", type=int, default=256, help="tokens a block")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--learning-rate", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    try:
        texts, held_out = read_corpus(args.corpus, args.megabytes)
        tokenizer, dataset = prepare(args.directory, texts, args.vocab_size, args.length)
        loader = tokjax.PackedTokenLoader(dataset, batch_size=args.batch_size, seed=args.seed)
    except tokjax.TokjaxError as error:
        sys.exit(f"error: {error}")
    console.print(f"{dataset}\n{len(loader)} batches of {args.batch_size} x {args.length} an epoch")

    encoded = tokjax.encode_batch_result(tokenizer, held_out, add_special_tokens=False)
    blocks = tokjax.pack_blocks(encoded, block_size=args.length, pad_id=0)

    params = init_params(jax.random.key(args.seed), dataset.vocab_size, args.length)
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, args.learning_rate, args.steps // 10 + 1, args.steps + 1
    )
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))

    @partial(jax.jit, donate_argnums=(0, 1))
    def train_step(params, state, batch):
        loss, gradients = jax.value_and_grad(mean_loss)(params, batch)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    before = bits_per_byte(params, blocks, tokenizer, args.batch_size)
    state = optimizer.init(params)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("training", total=args.steps, note="")
        begin = time.perf_counter()
        for step in range(args.steps):
            batch = jax.tree.map(jnp.asarray, loader.batch_at(step))
            params, state, loss = train_step(params, state, batch)
            rate = (step + 1) * batch.ids.size / (time.perf_counter() - begin)
            progress.update(task, advance=1, note=f"loss {float(loss):.3f}, {rate:,.0f} tokens/s")

    after = bits_per_byte(params, blocks, tokenizer, args.batch_size)
    console.print(f"held-out bits per byte: {before:.3f} before, {after:.3f} after")
    text = sample(params, tokenizer, args.length, "def main(", 60, jax.random.key(args.seed))
    console.print("a sample:", text, sep="\n", markup=False, highlight=False)
    if not after < before:
        console.print("the loss did not fall", style="bold red")
        sys.exit(1)


if __name__ == "__main__":
    main()
