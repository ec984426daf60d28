"""From labelled spans to a tagger: align them with tokens, fit a small network, read spans back, count F1.

    pip install -e '.[examples]' && python examples/ner.py

The data are the docstrings of the Python packages that are installed, in which their authors have marked what
is a function, a class, a method and so on (:func:`name`). The marks are taken out, and have to be found again
from the words alone. `--data FILE` takes CoNLL columns, or spaCy's or Prodigy's JSON. Held out are
whole files of docstrings, or the last tenth of FILE.
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
import numpy as np
import optax
import regex
from rich.console import Console
from rich.progress import track
from rich.table import Table

import tokjax
from tokjax.trainer import train_bpe

WIDTH, REACH, LAYERS, BATCH_SIZE, LEARNING_RATE = 64, 5, 3, 32, 1e-2
LENGTHS = [16, 32, 64, 96]
WORDS = r" ?[\w.]*\w| ?[^\w\s]+|\s+"  # names with dots in them are one word
EDGE = r"(?:\b|(?=['’])|(?<=['’]))"  # of a word, as Unicode has it; and "Zoë" is one in "Zoë's"
LABELS = {"func": "FUNCTION", "class": "CLASS", "meth": "METHOD", "attr": "ATTRIBUTE", "mod": "MODULE"}
LABELS |= {"exc": "EXCEPTION", "obj": "OBJECT", "data": "OBJECT"}
SHOWN = r"`(?:~[^`<]*\.|[~!.]*)(?P<name>[^\s`<.][^`<]*)[^`]*`"  # `~package.name`, `.name`, `words <name>`
MARKUP = re.compile(rf":(?:py:)?(?P<role>{'|'.join(LABELS)}):{SHOWN}")
console = Console()


def docstrings(packages, limit):
    """Paragraphs that mark a name, what they mark, and their files: mixed, and the same each time."""
    names = {path: path.relative_to(packages).as_posix() for path in packages.rglob("*.py")}
    found = {}
    for path in sorted(names, key=lambda path: hashlib.sha256(names[path].encode()).digest()):
        source = path.read_text("utf-8", "replace")
        for docstring in re.findall(r'"""(.*?)"""', source, re.DOTALL) if ":`" in source else []:
            marked = filter(MARKUP.search, inspect.cleandoc(docstring).split("\n\n"))
            found |= {paragraph: path for paragraph in marked if paragraph not in found}
        if len(found) >= limit:
            break
    return [(*without_markup(paragraph), path) for paragraph, path in found.items()][:limit]


def without_markup(paragraph):
    """What a reader sees, and the spans of 0-based characters that were marked."""
    text, spans, done = "", [], 0
    for match in MARKUP.finditer(paragraph):
        text += paragraph[done : match.start()]
        shown = match["name"].rstrip(" .\n")
        spans.append((len(text), len(text) + len(shown), LABELS[match["role"]]))
        text, done = text + shown, match.end()
    return text + paragraph[done:], spans


def read_data(path, limit):
    """Texts, the spans of each, and which source it is from."""
    if path is None:
        found = docstrings(Path(sysconfig.get_path("purelib")), limit)
        texts, spans, sources = ([row[i] for row in found] for i in range(3))
        return texts, tokjax.spans_from_characters(texts, spans), sources
    read = tokjax.read_spacy if path.suffix in (".json", ".jsonl") else tokjax.read_conll
    found = read(path)[:limit]
    return [row.text for row in found], [row.spans for row in found], range(len(found))


def start_of_held_out(sources):
    """Where the last tenth begins, or somewhat before: no source is on both sides."""
    start = len(sources) * 9 // 10
    while start and sources[start - 1] == sources[start]:
        start -= 1
    return start


def padded(tokenizer, texts, spans, labels):
    """Tokens and their tags, `(texts, length)` each; what is longer is cut."""
    batch = tokjax.encode_batch_result(tokenizer, texts, add_special_tokens=False, disallowed_special=())
    aligned = tokjax.align_spans(batch, spans, labels=labels, texts=texts, first_subword_only=True)
    pad = partial(tokjax.collate_padded_batch, length=LENGTHS[-1], truncation="right")
    tags = tokjax.make_ragged(aligned.labels, batch.row_splits)
    return pad(batch, pad_id=0, columns=["offsets", "word_ids"]), pad(tags, pad_id=-100).ids


def init_params(key, vocab_size, num_tags):
    shapes = [(vocab_size, WIDTH), *[(REACH, WIDTH, 2 * WIDTH)] * LAYERS, (WIDTH, num_tags)]
    keys, init = jax.random.split(key, len(shapes)), jax.nn.initializers.lecun_normal()
    return [init(key, shape) for key, shape in zip(keys, shapes, strict=True)]


def logits_of(params, ids, mask, key=None):
    """Gated convolutions, each over twice the distance of the one before it."""
    convolve = partial(jax.lax.conv_general_dilated, dimension_numbers=("NWC", "WIO", "NWC"))
    embedding, *kernels, tags = params
    x = embedding[ids]
    for i, kernel in enumerate(kernels):
        if key is not None:
            x *= jax.random.bernoulli(jax.random.fold_in(key, i), 0.8, x.shape) / 0.8
        shown, far = jax.nn.standardize(x) * mask[..., None], (2**i,)
        x += jax.nn.glu(convolve(shown, kernel, (1,), "SAME", rhs_dilation=far))
    return jax.nn.standardize(x) @ tags


def loss_of(params, ids, mask, tags, key):
    logits = logits_of(params, ids, mask, key)
    targets = jax.nn.one_hot(tags, logits.shape[-1])  # nowhere one where a tag is -100
    return optax.softmax_cross_entropy(logits, targets).sum() / targets.sum().clip(1)


def train(params, batch, tags, steps):
    schedule = optax.cosine_onecycle_schedule(steps, LEARNING_RATE, pct_start=0.1)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))

    @partial(jax.jit, donate_argnums=(0, 1))
    def train_step(params, state, *arrays):
        updates, state = optimizer.update(jax.grad(loss_of)(params, *arrays), state, params)
        return optax.apply_updates(params, updates), state

    state, random = optimizer.init(params), np.random.default_rng(0)
    lengths = batch.attention_mask.sum(axis=1)
    by_length = np.argsort(lengths)
    for step in track(range(steps), "training", console=console):
        rows = np.resize(by_length[random.integers(len(tags)) :][:BATCH_SIZE], BATCH_SIZE)  # of like lengths
        length = LENGTHS[np.searchsorted(LENGTHS, lengths[rows].max())]
        columns = (column[rows, :length] for column in (batch.ids, batch.attention_mask, tags))
        params, state = train_step(params, state, *columns, jax.random.key(step))
    return params


def known_names(texts, spans, held_out):
    """The baseline: what is marked in the training texts, as it mostly is there; the longest first."""
    rows, votes = tokjax.spans_to_characters(texts, spans), defaultdict(Counter)
    for text, row in zip(texts, rows, strict=True):
        for start, stop, label in row:
            votes[text[start:stop]][label] += 1
    find = regex.compile(rf"(?w){EDGE}\L<names>{EDGE}", names=list(votes)).finditer
    for text, row in zip(texts, rows, strict=True):
        marked = {span[:2] for span in row}
        for match in find(text):
            votes[match[0]][None] += match.span() not in marked
    best = {name: counts.most_common(1)[0][0] for name, counts in votes.items()}
    kept = (filter(lambda match: best.get(match[0]), find(text)) for text in held_out)
    return tokjax.spans_from_characters(held_out, [[(*m.span(), best[m[0]]) for m in row] for row in kept])


def scores(gold, found, label=None):
    """Precision, recall and F1 of whole spans, and how many there are."""
    gold, found = (
        {(i, *span) for i, row in enumerate(rows) for span in row if label in (None, span[2])}
        for rows in (gold, found)
    )
    sizes = len(found), len(gold), (len(found) + len(gold)) / 2
    return [*(len(gold & found) / max(size, 1) for size in sizes), len(gold)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="CoNLL columns, or .json or .jsonl [docstrings]")
    parser.add_argument("--texts", type=int, default=10_000, help="how many texts to use at most")
    parser.add_argument("--vocab-size", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=1200)
    args = parser.parse_args()
    if min(args.texts, args.steps) < 1:
        parser.error(f"--texts and --steps must be at least 1, not {args.texts} and {args.steps}")

    try:
        texts, spans, sources = read_data(args.data, args.texts)
        cut, labels = start_of_held_out(sources), sorted({label for row in spans for *_, label in row})
        if not cut or not labels:
            raise tokjax.InvalidArgumentError(f"{len(texts)} texts with {len(labels)} labels are too few")
        texts, held_texts, spans, held_spans = texts[:cut], texts[cut:], spans[:cut], spans[cut:]
        tokenizer = train_bpe(texts, vocab_size=args.vocab_size, pattern=WORDS, progress=False).tokenizer
        batch, tags = padded(tokenizer, texts, spans, labels)
        held, _ = padded(tokenizer, held_texts, held_spans, labels)
    except (tokjax.TokjaxError, OSError) as error:
        sys.exit(f"error: {error}")
    console.print(f"{len(texts)} texts, {sum(map(len, spans))} spans; held out {len(held_texts)}")

    tagset = tokjax.TagSet(labels)
    params = init_params(jax.random.key(0), tokjax.vocab_size(tokenizer), len(tagset))
    params = train(params, batch, tags, args.steps)
    tags = jax.jit(logits_of)(params, held.ids, held.attention_mask).argmax(axis=-1)
    found = tokjax.spans_from_labels(
        held.offsets, tags, tagset, texts=held_texts, first_subword_only=True, word_ids=held.word_ids
    )
    baseline = known_names(texts, spans, held_texts)

    table = Table("label", "precision", "recall", "F1", "spans", title="whole spans in held-out texts")
    rows = [(label, scores(held_spans, found, label)) for label in labels]
    rows += [("names known from training", scores(held_spans, baseline)), ("all", scores(held_spans, found))]
    for name, (*shares, count) in rows:
        table.add_row(name, *(f"{share:.3f}" for share in shares), str(count))
    console.print(table)
    if not scores(held_spans, found)[2] > scores(held_spans, baseline)[2]:
        console.print("no better than known names", style="bold red")
        sys.exit(1)


if __name__ == "__main__":
    main()
