"""The batch layer beside transformers, TRL, Grain, seqio, loops over rows, and `memcpy` of what is made.

    python -m benchmarks.batching TEXT RANKS [--rounds 5]

TEXT is real text, whose documents give the distribution of lengths; RANKS a tiktoken file. TRL is needed,
without the libraries that it trains with: `pip install --no-deps trl`. T5's own code is measured where it is
installed: `pip install seqio t5`.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

import tokjax
from benchmarks.contenders import read_documents
from benchmarks.record import described_input, interleaved, medians, write_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Contenders = dict[str, Callable[[], object]]

BLOCK = 2048
ROWS, LENGTH = 1024, 2048
VOCAB_SIZE = 50_257
NAME = re.compile(r"\b[A-Z][a-z]+(?: [A-Z][a-z]+)*")


def collation(lengths: NDArray[np.int64]) -> Contenders:
    """Eight batches of 256 rows, of real lengths of at most 1,024, to ids and attention masks, one by one."""
    each = [collation_of_one(some) for some in np.minimum(lengths[: 8 * 256], 1024).reshape(8, 256)]

    def one_by_one(name: str) -> None:
        for contenders in each:
            contenders[name]()  # (a batch is given up before the next, as training does)

    return {name: partial(one_by_one, name) for name in each[0]}


def collation_of_one(lengths: NDArray[np.int64]) -> Contenders:
    """One batch of rows of these lengths."""
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415 (slow to import)

    rng = np.random.default_rng(0)
    rows = [rng.integers(1, VOCAB_SIZE, n).astype(np.int32) for n in lengths]
    ragged = tokjax.ragged_from_rows(rows)
    lists = {"input_ids": [row.tolist() for row in rows]}
    padder = PreTrainedTokenizerFast(tokenizer_object=_word_tokenizer(), pad_token="[PAD]")
    longest = max(map(len, rows))
    made = np.zeros((2, len(rows), longest), np.int32)

    def row_loop() -> None:
        ids = np.zeros((len(rows), longest), np.int32)
        mask = np.zeros((len(rows), longest), np.int32)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
            mask[i, : len(row)] = 1

    return {
        "tokjax": lambda: tokjax.collate_padded_batch(ragged, pad_id=0, columns=["ids", "attention_mask"]),
        "row loop": row_loop,
        "transformers pad": lambda: padder.pad(lists, return_tensors="np"),
        "memcpy of the result": made.copy,
    }


def _word_tokenizer() -> Any:
    """The smallest tokenizer that transformers takes: only its padding is used."""
    from tokenizers import Tokenizer, models  # noqa: PLC0415

    return Tokenizer(models.WordLevel({"[PAD]": 0}, unk_token="[PAD]"))


def jitted(lengths: NDArray[np.int64]) -> dict[str, Contenders]:
    """Labels, masks and masked language modelling of 1,024 x 2,048 under `jax.jit`."""
    rng = np.random.default_rng(0)
    ids = jnp.asarray(rng.integers(0, VOCAB_SIZE, (ROWS, LENGTH)), jnp.int32)
    right_padded = np.arange(LENGTH) < np.minimum(lengths[:ROWS], LENGTH)[:, None]
    mask = jnp.asarray(right_padded, jnp.int32)
    holes = jnp.asarray(right_padded & (rng.random((ROWS, LENGTH)) < 0.9), jnp.int32)
    segments = jnp.asarray(np.sort(rng.integers(1, 9, (ROWS, LENGTH)), axis=1), jnp.int32)
    draws = jnp.asarray(tokjax.draw_uniform(np.random.default_rng(0), (ROWS, 3, LENGTH)))
    labels = jax.jit(tokjax.causal_lm_labels)
    of_segments = jax.jit(lambda i, m, s: tokjax.causal_lm_labels(i, m, segment_ids=s))
    attention = jax.jit(lambda s: tokjax.make_attention_mask(segment_ids=s))
    special = 1 - mask
    hide = partial(tokjax.masked_lm, mask_id=0, vocab_size=VOCAB_SIZE)
    masked = jax.jit(lambda i, d, s: hide(i, d, special_tokens_mask=s))
    few = segments[:16]
    return {
        "labels, right-padded": _beside_memcpy(lambda: labels(ids, mask), ids, mask),
        "labels, segments": _beside_memcpy(lambda: of_segments(ids, mask, segments), ids, mask, segments),
        "labels, holes": _beside_memcpy(lambda: labels(ids, holes), ids, holes),
        "attention mask, 16 rows": _beside_memcpy(lambda: attention(few), few),
        "masked language modelling": _beside_memcpy(lambda: masked(ids, draws, special), ids, draws, special),
    }


def _beside_memcpy(run: Callable[[], Any], *read: Any) -> Contenders:
    """A function, and a copy of as many bytes as it reads and writes (a copy reads half and writes half).

    The one that is jitted has to get new memory for its result too; on an accelerator it tells the share of
    the memory's bandwidth.
    """
    moved = sum(leaf.nbytes for leaf in jax.tree.leaves([run(), *read]))
    source = np.ones(moved // 2, np.uint8)
    own = {"tokjax": lambda: jax.block_until_ready(run())}
    on_device, copy = jnp.asarray(source), jax.jit(jnp.copy)
    own["copy, jitted"] = lambda: jax.block_until_ready(copy(on_device))
    if jax.default_backend() == "cpu":
        target = np.ones_like(source)
        own["memcpy"] = lambda: np.copyto(target, source)
    return own


def planning(lengths: NDArray[np.int64]) -> tuple[Contenders, dict[str, float]]:
    """Plans for many documents, and how full the blocks are."""

    def of(strategy: Any) -> Callable[[], tokjax.PackingPlan]:
        return lambda: tokjax.plan_packing(lengths, BLOCK, strategy, overlong="split")

    plans: Contenders = {strategy: of(strategy) for strategy in ("concat", "first_fit", "best_fit")}
    fill = {name: plan().fill_rate for name, plan in plans.items()}
    return plans, fill


def planning_beside_trl(lengths: NDArray[np.int64]) -> Contenders:
    """Plans for as many documents as TRL does in seconds; it copies a byte a token besides."""
    import pyarrow as pa  # noqa: PLC0415
    from trl.data_utils import _pack_bfd  # noqa: PLC0415

    splits = np.concatenate([[0], np.cumsum(lengths)])
    tokens = pa.array(np.zeros(int(splits[-1]), np.int8))
    table = pa.table({"input_ids": pa.LargeListArray.from_arrays(splits, tokens)})
    return {
        "tokjax": lambda: tokjax.plan_packing(lengths, BLOCK, "best_fit", overlong="split"),
        "TRL": lambda: _pack_bfd(table, BLOCK, "split"),
    }


def packing(lengths: NDArray[np.int64]) -> tuple[Contenders, dict[str, float]]:
    """Whole documents to blocks, each in its own form: TRL gives ids and lengths, others positions too."""
    import grain.python as grain  # noqa: PLC0415
    from datasets import Dataset, disable_progress_bars  # noqa: PLC0415
    from grain.experimental import BestFitPackIterDataset, FirstFitPackIterDataset  # noqa: PLC0415
    from trl.data_utils import pack_dataset  # noqa: PLC0415

    disable_progress_bars()
    cut = np.minimum(lengths, BLOCK)
    rng = np.random.default_rng(0)
    rows = [rng.integers(1, VOCAB_SIZE, n).astype(np.int32) for n in cut]
    ragged = tokjax.ragged_from_rows(rows)
    records = [{"tokens": row} for row in rows]
    dataset = Dataset.from_dict({"input_ids": rows})

    def by_grain(kind: Any) -> list[Any]:
        source = grain.MapDataset.source(records).to_iter_dataset()
        return list(kind(source, length_struct={"tokens": BLOCK}, num_packing_bins=64))

    def by_trl() -> Any:
        return pack_dataset(dataset, BLOCK, "bfd", {"keep_in_memory": True, "load_from_cache_file": False})

    def by_tokjax(strategy: Any) -> Callable[[], tokjax.PackedBlocks]:
        return lambda: tokjax.pack_blocks(ragged, block_size=BLOCK, pad_id=0, strategy=strategy)

    contenders: Contenders = {
        "tokjax, best fit": by_tokjax("best_fit"),
        "tokjax, first fit": by_tokjax("first_fit"),
        "TRL, best fit": by_trl,
        "Grain, best fit of 64": lambda: by_grain(BestFitPackIterDataset),
        "Grain, first fit of 64": lambda: by_grain(FirstFitPackIterDataset),
    }
    if find_spec("seqio"):
        contenders["seqio"] = by_seqio(ragged)
    blocks = {name: _number_of_blocks(run()) for name, run in contenders.items()}
    made = np.ones((5, blocks["tokjax, best fit"], BLOCK), np.int32)
    # (The last of a round, it finds the memory that others have given back: the first of the next does not.)
    contenders["memcpy of the result"] = made.copy
    return contenders, {name: int(cut.sum()) / (count * BLOCK) for name, count in blocks.items()}


def by_seqio(ragged: tokjax.Ragged) -> Callable[[], list[Any]]:
    """Documents packed in their order by seqio, on TensorFlow's pipelines."""
    import seqio  # noqa: PLC0415
    import tensorflow  # noqa: PLC0415

    def run() -> list[Any]:
        rows = tensorflow.RaggedTensor.from_row_splits(ragged.ids, ragged.row_splits)
        source = tensorflow.data.Dataset.from_tensor_slices(rows).map(lambda row: {"targets": row})
        return list(seqio.trim_and_pack_dataset(source, {"targets": BLOCK}).as_numpy_iterator())

    return run


def _number_of_blocks(packed: Any) -> int:
    return packed.ids.shape[0] if isinstance(packed, tokjax.PackedBlocks) else len(packed)


def masking(lengths: NDArray[np.int64]) -> Contenders:
    """256 rows of 512 to masked ids and labels, in NumPy."""
    from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast  # noqa: PLC0415

    rng = np.random.default_rng(0)
    ids = rng.integers(1, VOCAB_SIZE, (256, 512)).astype(np.int32)
    special = (np.arange(512) >= np.minimum(lengths[:256], 512)[:, None]).astype(np.int32)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_word_tokenizer(), pad_token="[PAD]", mask_token="[MASK]"
    )
    collator = DataCollatorForLanguageModeling(tokenizer, return_tensors="np")
    features = [
        {"input_ids": row.tolist(), "special_tokens_mask": marks.tolist()}
        for row, marks in zip(ids, special, strict=True)
    ]

    def by_tokjax() -> None:
        draws = tokjax.draw_uniform(rng, (len(ids), 3, ids.shape[1]))
        tokjax.masked_lm(ids, draws, mask_id=0, vocab_size=VOCAB_SIZE, special_tokens_mask=special)

    return {
        "tokjax, drawing too": by_tokjax,
        "transformers": lambda: collator(features),
        "memcpy of the result": np.zeros((2, *ids.shape), np.int32).copy,
    }


def corruption() -> Contenders:
    """256 rows of 512 to T5's inputs and targets, in NumPy; of T5's own code without padding."""
    rng = np.random.default_rng(0)
    ids = rng.integers(1, VOCAB_SIZE, (256, 512)).astype(np.int32)
    mask = np.ones_like(ids)
    corrupt = partial(tokjax.span_corruption, sentinel_ids=range(VOCAB_SIZE, VOCAB_SIZE + 100), pad_id=0)

    def by_tokjax() -> None:
        corrupt(ids, mask, tokjax.draw_uniform(rng, ids.shape), eos_id=1)

    contenders: Contenders = {"tokjax, drawing too": by_tokjax}
    if find_spec("t5"):
        contenders["T5"] = by_t5(ids)
    return contenders | {"memcpy of the rows": ids.copy}


def by_t5(ids: NDArray[np.int32]) -> Callable[[], list[Any]]:
    """T5's own functions, a row at a time, on TensorFlow's pipelines."""
    import seqio  # noqa: PLC0415
    import tensorflow  # noqa: PLC0415
    from t5.data import preprocessors  # noqa: PLC0415

    vocabulary = seqio.PassThroughVocabulary(VOCAB_SIZE)
    seeds = np.random.default_rng(0).integers(0, 2**31 - 1, (len(ids), 2, 2)).astype(np.int32)

    def corrupt(row: Any, seed: Any) -> tuple[Any, Any]:
        noise = preprocessors.random_spans_noise_mask(ids.shape[1], 0.15, seed, 3.0)
        return (
            preprocessors.noise_span_to_unique_sentinel(row, noise, vocabulary, seed),
            preprocessors.nonnoise_span_to_unique_sentinel(row, noise, vocabulary, seed),
        )

    rows = tensorflow.data.Dataset.from_tensor_slices((ids, seeds)).map(corrupt)
    return lambda: list(rows.as_numpy_iterator())


def alignment(text: Path, ranks: Path) -> Contenders:
    """Capitalised words of 10,000 paragraphs as entities, by characters; tokens are there already."""
    from tokenizers import Tokenizer  # noqa: PLC0415

    parts = text.read_bytes()[:20_000_000].decode("utf-8", "ignore").split("\n\n")
    texts = [part for part in parts if len(part) > 200 and "<|" not in part][:10_000]
    entities = [[(*match.span(), "NAME") for match in NAME.finditer(part)] for part in texts]
    tokenizer = tokjax.load_tokenizer(ranks)
    batch = tokjax.encode_batch_result(tokenizer, texts, add_special_tokens=False, disallowed_special=())
    spans = tokjax.spans_from_characters(texts, entities)
    columns = tokjax.span_columns(spans, ["NAME"])
    with tempfile.TemporaryDirectory() as name:
        exported = tokjax.export_tokenizer(tokenizer, Path(name) / "tokenizer.json", "huggingface")
        encodings = Tokenizer.from_file(str(exported[0])).encode_batch(texts, add_special_tokens=False)

    def by_characters() -> list[list[int]]:
        rows = []
        for encoding, row in zip(encodings, entities, strict=True):
            tags = [0] * len(encoding.tokens)
            for start, stop, _ in row:
                places = {encoding.char_to_token(character) for character in range(start, stop)}
                for place in places - {None}:
                    tags[place] = 1 if place == min(places) else 2
            rows.append(tags)
        return rows

    def by_ends() -> list[list[int]]:
        rows = []
        for encoding, row in zip(encodings, entities, strict=True):
            tags = [0] * len(encoding)
            for start, stop, _ in row:
                first, last = encoding.char_to_token(start), encoding.char_to_token(stop - 1)
                tags[first : last + 1] = [1, *[2] * (last - first)]
            rows.append(tags)
        return rows

    by_arrays = tokjax.align_spans(batch, columns, labels=["NAME"]).labels.tolist()
    for loop in (by_characters, by_ends):
        if by_arrays != [tag for row in loop() for tag in row]:
            raise SystemExit(f"{loop.__name__} gives other labels")
    return {
        "tokjax": lambda: tokjax.align_spans(
            batch, tokjax.spans_from_characters(texts, entities), labels=["NAME"]
        ),
        "tokjax, spans of bytes": lambda: tokjax.align_spans(batch, spans, labels=["NAME"]),
        "tokjax, spans of bytes in arrays": lambda: tokjax.align_spans(batch, columns, labels=["NAME"]),
        "char_to_token of each character": by_characters,
        "char_to_token of both ends": by_ends,
    }


def measured(contenders: Contenders, rounds: int, **more: Any) -> dict[str, Any]:
    """Milliseconds of each."""
    seconds = interleaved(contenders, rounds)
    return {
        "rounds": seconds,
        "milliseconds": {name: 1e3 * median for name, median in medians(seconds).items()},
        **more,
    }


def token_lengths(text: Path, ranks: Path, megabytes: float) -> NDArray[np.int64]:
    """Tokens of each document of a text, in a random order."""
    tokenizer = tokjax.load_tokenizer(ranks)
    counts = np.asarray(tokjax.count_tokens(tokenizer, read_documents(text, megabytes)))
    return np.random.default_rng(0).permutation(counts[counts > 0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("ranks", type=Path)
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    lengths = token_lengths(args.text, args.ranks, args.megabytes)
    if len(lengths) < 2 * ROWS:
        raise SystemExit(f"{args.text} has {len(lengths)} documents; give at least {2 * ROWS}")
    million = np.random.default_rng(1).choice(lengths, 1_000_000)
    plans, plan_fill = planning(million)
    packs, pack_fill = packing(million[:20_000])
    body = {
        "documents": {
            "count": len(lengths),
            "quantiles": np.quantile(lengths, [0.1, 0.5, 0.9, 0.99]).tolist(),
        },
        "results": {
            "collation, 8 batches": measured(collation(lengths), 4 * args.rounds),
            "jitted": {name: measured(each, 4 * args.rounds) for name, each in jitted(lengths).items()},
            "masking": measured(masking(lengths), 4 * args.rounds),
            "span corruption": measured(corruption(), 4 * args.rounds),
            "alignment": measured(alignment(args.text, args.ranks), args.rounds),
            "planning": measured(plans, 2 * args.rounds, fill=plan_fill),
            "planning, 50,000": measured(planning_beside_trl(million[:50_000]), args.rounds),
            "packing": measured(packs, 2 * args.rounds, fill=pack_fill),
        },
        "input": described_input(args.text.read_bytes()[: int(args.megabytes * 1e6)]),
    }
    packages = ["tokjax", "numpy", "jax", "transformers", "trl", "grain"]
    packages += [name for name in ("seqio", "t5") if find_spec(name)]
    print(write_record("batching", packages, body))


if __name__ == "__main__":
    main()
