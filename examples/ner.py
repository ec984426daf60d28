"""From labelled spans to a tagger: align them with tokens, fit a small network, read spans back, count F1.

    pip install -e '.[examples]' && python examples/ner.py

The data are the docstrings of the Python packages that are installed, in which their authors have marked what
is a function, a class, a method and so on (:func:`name`). The marks are taken out, and have to be found again
from the words alone. `--data FILE` takes CoNLL columns, or spaCy's or Prodigy's JSON.
"""

import argparse
import hashlib
import inspect
import re
import sys
import sysconfig
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from rich.console import Console
from rich.progress import track
from rich.table import Table

import tokjax
from tokjax.trainer import train_bpe

WIDTH, REACH, LAYERS = 64, 5, 3
LENGTHS = [16, 32, 64, 96]
WORDS = r" ?[\w.]*\w| ?[^\w\s]+|\s+"  # names with dots in them are one word
ROLES = {"func": "FUNCTION", "class": "CLASS", "meth": "METHOD", "attr": "ATTRIBUTE", "mod": "MODULE"}
ROLES |= {"exc": "EXCEPTION", "obj": "OBJECT", "data": "OBJECT"}
MARKUP = re.compile(r":(?:py:)?(?P<role>\w+):`(?P<name>[^`]+)`")
DOCSTRING = re.compile(r'"""(.*?)"""', re.DOTALL)
console = Console()


def docstrings(limit):
    """Paragraphs of docstrings that mark a name, of all packages, mixed, and the same each time."""
    paths = sorted(Path(sysconfig.get_path("purelib")).rglob("*.py"))
    paths.sort(key=lambda path: hashlib.sha256(path.name.encode()).digest())
    found = {}
    for path in track(paths, "reading docstrings", console=console):
        source = path.read_bytes()
        if b":`" not in source:
            continue
        for match in DOCSTRING.finditer(source.decode("utf-8", "replace")):
            for paragraph in inspect.cleandoc(match[1]).split("\n\n"):
                if any(marked["role"] in ROLES for marked in MARKUP.finditer(paragraph)):
                    found[paragraph] = None
        if len(found) >= limit:
            break
    return list(found)[:limit]


def without_markup(docstring):
    """What a reader sees, and the spans of 0-based characters that were marked."""
    text, spans, done = "", [], 0
    for match in MARKUP.finditer(docstring):
        text += docstring[done : match.start()]
        shown = match["name"].partition("<")[0].strip(" !.")
        if shown.startswith("~"):
            shown = shown.rpartition(".")[2].lstrip("~")
        if match["role"] in ROLES and shown.strip():
            spans.append((len(text), len(text) + len(shown), ROLES[match["role"]]))
        text, done = text + shown, match.end()
    return text + docstring[done:], spans


def read_data(path, limit):
    """Texts, and the spans of each."""
    if path is None:
        texts, spans = zip(*map(without_markup, docstrings(limit)), strict=True)
        return list(texts), tokjax.spans_from_characters(texts, spans)
    read = tokjax.read_spacy if path.suffix in (".json", ".jsonl") else tokjax.read_conll
    annotated = read(path)[:limit]
    return [document.text for document in annotated], [list(document.spans) for document in annotated]


def padded(tokenizer, texts, spans, labels):
    """Tokens and their tags, `(texts, length)` each; what is longer is cut."""
    batch = tokjax.encode_batch_result(tokenizer, texts, add_special_tokens=False, disallowed_special=())
    aligned = tokjax.align_spans(batch, spans, labels=labels, texts=texts, first_subword_only=True)
    pad = partial(tokjax.collate_padded_batch, length=LENGTHS[-1], truncation="right")
    tags = tokjax.make_ragged(aligned.labels, batch.row_splits)
    return pad(batch, pad_id=0, columns=["offsets", "word_ids"]), pad(tags, pad_id=-100).ids


def init_params(key, vocab_size, num_tags):
    keys = iter(jax.random.split(key, LAYERS + 2))
    scale = (WIDTH * REACH) ** -0.5
    return {
        "embed": 0.02 * jax.random.normal(next(keys), (vocab_size, WIDTH)),
        "layers": [scale * jax.random.normal(next(keys), (REACH * WIDTH, 2 * WIDTH)) for _ in range(LAYERS)],
        "tags": WIDTH**-0.5 * jax.random.normal(next(keys), (WIDTH, num_tags)),
    }


def norm(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def logits_of(params, ids, mask, key=None):
    """Gated convolutions, each over twice the distance of the one before it."""
    x = params["embed"][ids]
    for i, kernel in enumerate(params["layers"]):
        if key is not None:
            x *= jax.random.bernoulli(jax.random.fold_in(key, i), 0.8, x.shape) / 0.8
        side = REACH // 2 * 2**i
        shown = jnp.pad(norm(x) * mask[..., None], ((0, 0), (side, side), (0, 0)))
        near = [shown[:, k * 2**i : k * 2**i + x.shape[1]] for k in range(REACH)]
        y = jnp.concatenate(near, axis=-1) @ kernel
        value, gate = jnp.split(y, 2, axis=-1)
        x += value * jax.nn.sigmoid(gate)
    return norm(x) @ params["tags"]


def loss_of(params, ids, mask, tags, key):
    counted = tags != -100
    logits = logits_of(params, ids, mask, key)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.where(counted, tags, 0))
    return jnp.mean(losses, where=counted)


def train(params, batch, tags, args):
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, args.learning_rate, args.steps // 10 + 1, args.steps + 1
    )
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))

    @partial(jax.jit, donate_argnums=(0, 1))
    def train_step(params, state, *arrays):
        gradients = jax.grad(loss_of)(params, *arrays)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    state, random = optimizer.init(params), np.random.default_rng(args.seed)
    lengths = batch.attention_mask.sum(axis=1)
    by_length = np.argsort(lengths)
    for step in track(range(args.steps), "training", console=console):
        rows = by_length[random.integers(len(tags)) :][: args.batch_size]  # about equally long
        rows = np.resize(rows, args.batch_size)
        length = LENGTHS[np.searchsorted(LENGTHS, lengths[rows].max())]
        columns = (column[rows, :length] for column in (batch.ids, batch.attention_mask, tags))
        params, state = train_step(params, state, *columns, jax.random.key(args.seed * args.steps + step))
    return params


def known_names(texts, spans, held_out):
    """The baseline: names that are marked in the training texts, as they mostly are, wherever they stand."""
    votes = defaultdict(Counter)
    for text, row in zip(texts, spans, strict=True):
        data = text.encode()
        votes_of_text = Counter(re.findall(rb"[\w.]*\w", data))
        for start, stop, label in row:
            votes[data[start - 1 : stop - 1]][label] += 1
            votes_of_text[data[start - 1 : stop - 1]] -= 1
        for name, count in votes_of_text.items():
            votes[name][None] += count
    best = {name: counts.most_common(1)[0][0] for name, counts in votes.items()}
    return [
        [
            (match.start() + 1, match.end() + 1, best[match.group()])
            for match in re.finditer(rb"[\w.]*\w", text.encode())
            if best.get(match.group())
        ]
        for text in held_out
    ]


def scores(gold, found, label=None):
    """Precision, recall and F1 of whole spans, and how many there are."""
    gold, found = (
        {(i, *span) for i, row in enumerate(rows) for span in row if label in (None, span[2])}
        for rows in (gold, found)
    )
    right = len(gold & found)
    return (
        right / max(len(found), 1),
        right / max(len(gold), 1),
        2 * right / max(len(gold) + len(found), 1),
        len(gold),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="CoNLL columns, or .json or .jsonl [docstrings]")
    parser.add_argument("--texts", type=int, default=10_000, help="how many texts to use at most")
    parser.add_argument("--vocab-size", type=int, default=4096)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--learning-rate", type=float, default=1e-2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    try:
        texts, spans = read_data(args.data, args.texts)
        labels = sorted({label for row in spans for *_, label in row})
        if len(texts) < 10 or not labels:
            raise tokjax.InvalidArgumentError(f"{len(texts)} texts with {len(labels)} labels are too few")
        held_texts, held_spans = texts[::10], spans[::10]
        texts, spans = ([row for i, row in enumerate(rows) if i % 10] for rows in (texts, spans))
        tokenizer = train_bpe(texts, vocab_size=args.vocab_size, pattern=WORDS, progress=False).tokenizer
        batch, tags = padded(tokenizer, texts, spans, labels)
        held_batch, _ = padded(tokenizer, held_texts, held_spans, labels)
    except (tokjax.TokjaxError, OSError) as error:
        sys.exit(f"error: {error}")
    tagset = tokjax.TagSet(labels)
    console.print(f"{len(texts)} texts, {sum(map(len, spans))} spans; held out {len(held_texts)}")

    params = init_params(jax.random.key(args.seed), tokjax.vocab_size(tokenizer), len(tagset))
    params = train(params, batch, tags, args)
    predict = jax.jit(lambda params, ids, mask: logits_of(params, ids, mask).argmax(axis=-1))
    found = tokjax.spans_from_labels(
        held_batch.offsets,
        predict(params, held_batch.ids, held_batch.attention_mask),
        tagset,
        texts=held_texts,
        first_subword_only=True,
        word_ids=held_batch.word_ids,
    )

    table = Table("label", "precision", "recall", "F1", "spans", title="whole spans in held-out texts")
    baseline = known_names(texts, spans, held_texts)
    rows = [(label, scores(held_spans, found, label)) for label in labels]
    rows += [("names known from training", scores(held_spans, baseline)), ("all", scores(held_spans, found))]
    for name, (precision, recall, f1, count) in rows:
        table.add_row(name, f"{precision:.3f}", f"{recall:.3f}", f"{f1:.3f}", str(count))
    console.print(table)
    if not rows[-1][1][2] > rows[-2][1][2]:
        console.print("no better than known names", style="bold red")
        sys.exit(1)


if __name__ == "__main__":
    main()
