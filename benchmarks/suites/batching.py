"""Batching on the host, compared with transformers, TRL, Grain, seqio, Python loops and `memcpy`.

TRL is needed without its dependencies: `pip install --no-deps trl`. The code of T5 is measured if it is
installed: `pip install seqio t5`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Tokenizer, models
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

import tokjax
from benchmarks.aligners import make_alignment
from benchmarks.inputs import load_ranks_tokenizer
from benchmarks.packers import measure_packing, measure_planning, measure_planning_of_trl

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from benchmarks.bench import Bench
    from benchmarks.inputs import Text

    Contenders = dict[str, Callable[[], object]]

PACKAGES = ["tokjax", "numpy", "jax", "transformers", "trl", "grain", "seqio", "t5"]
MEGABYTES, ALIGNED_MEGABYTES = 100, 20
VOCAB_SIZE = 50_257
ROWS, QUICK_ROWS = 256, 32
DOCUMENTS, QUICK_DOCUMENTS = 1_000_000, 20_000
COLUMNS = ["ids", "attention_mask"]


def make_collation(lengths: NDArray[np.int64], rows: int) -> Contenders:
    """Makes contenders that collate eight batches of ids and masks, with up to 1,024 tokens per row."""
    batches = [make_single_batch(part) for part in np.minimum(lengths[: 8 * rows], 1024).reshape(8, rows)]

    def collate_sequentially(name: str) -> None:
        for contenders in batches:
            contenders[name]()  # the result is freed before the next batch, as in a training loop

    return {name: partial(collate_sequentially, name) for name in batches[0]}


def make_single_batch(lengths: NDArray[np.int64]) -> Contenders:
    """Makes contenders that collate one batch of rows of these lengths."""
    rng = np.random.default_rng(0)
    rows = [rng.integers(1, VOCAB_SIZE, n).astype(np.int32) for n in lengths]
    ragged = tokjax.ragged_from_rows(rows)
    lists, arrays = {"input_ids": [row.tolist() for row in rows]}, {"input_ids": rows}
    padder = PreTrainedTokenizerFast(tokenizer_object=make_word_tokenizer(), pad_token="[PAD]")
    longest = max(map(len, rows))
    result = np.zeros((2, len(rows), longest), np.int32)

    def row_loop() -> None:
        ids = np.zeros((len(rows), longest), np.int32)
        mask = np.zeros((len(rows), longest), np.int32)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
            mask[i, : len(row)] = 1

    def from_lists() -> None:
        tokjax.collate_padded_batch(tokjax.ragged_from_rows(lists["input_ids"]), pad_id=0, columns=COLUMNS)

    return {
        "tokjax": lambda: tokjax.collate_padded_batch(ragged, pad_id=0, columns=COLUMNS),
        "tokjax, from lists": from_lists,
        "row loop": row_loop,
        "transformers pad": lambda: padder.pad(lists, return_tensors="np"),
        "transformers pad, from arrays": lambda: padder.pad(arrays, return_tensors="np"),
        "memcpy of the result": result.copy,
    }


def make_word_tokenizer() -> Any:
    """Returns a minimal tokenizer for transformers, which only uses its padding token."""
    return Tokenizer(models.WordLevel({"[PAD]": 0}, unk_token="[PAD]"))


def make_masking(lengths: NDArray[np.int64]) -> Contenders:
    """Makes contenders that mask 256 rows of 512 ids in NumPy, and return the labels."""
    rng = np.random.default_rng(0)
    ids = rng.integers(1, VOCAB_SIZE, (256, 512)).astype(np.int32)
    special = (np.arange(512) >= np.minimum(lengths[:256], 512)[:, None]).astype(np.int32)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=make_word_tokenizer(), pad_token="[PAD]", mask_token="[MASK]"
    )
    collator = DataCollatorForLanguageModeling(tokenizer, return_tensors="np")
    features = [
        {"input_ids": row.tolist(), "special_tokens_mask": marks.tolist()}
        for row, marks in zip(ids, special, strict=True)
    ]

    def run_tokjax() -> None:
        draws = tokjax.objectives.draw_uniform(rng, (len(ids), 3, ids.shape[1]))
        tokjax.objectives.masked_lm(ids, draws, mask_id=0, vocab_size=VOCAB_SIZE, special_tokens_mask=special)

    return {
        "tokjax, drawing too": run_tokjax,
        "transformers": lambda: collator(features),
        "transformers, arrays alone": lambda: collator.numpy_mask_tokens(ids.copy(), special),
        "memcpy of the result": np.zeros((2, *ids.shape), np.int32).copy,
    }


def make_corruption(bench: Bench) -> Contenders:
    """Makes contenders that turn 256 rows of 512 ids into T5's inputs and targets; T5's code does not pad."""
    rng = np.random.default_rng(0)
    ids = rng.integers(1, VOCAB_SIZE, (256, 512)).astype(np.int32)
    mask = np.ones_like(ids)
    corrupt = partial(
        tokjax.objectives.span_corruption, sentinel_ids=range(VOCAB_SIZE, VOCAB_SIZE + 100), pad_id=0
    )

    def run_tokjax() -> None:
        corrupt(ids, mask, tokjax.objectives.draw_uniform(rng, ids.shape), eos_id=1)

    contenders: Contenders = {"tokjax, drawing too": run_tokjax}
    if bench.has_package("t5", "span corruption", "T5"):
        contenders["T5"] = corrupt_with_t5(ids)
    return contenders | {"memcpy of the rows": ids.copy}


def corrupt_with_t5(ids: NDArray[np.int32]) -> Callable[[], list[Any]]:
    """Makes the contender T5, which works row by row on `tensorflow.data`."""
    import seqio
    import tensorflow
    from t5.data import preprocessors

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


def count_token_lengths(bench: Bench, text: Text) -> NDArray[np.int64]:
    """Returns the number of tokens of each document of a text that has any, in random order."""
    tokenizer = load_ranks_tokenizer(bench.ranks)
    counts = np.asarray(tokjax.count_tokens(tokenizer, text.documents, add_special_tokens=False))
    lengths = np.random.default_rng(0).permutation(counts[counts > 0])
    quantiles = np.quantile(lengths, [0.1, 0.5, 0.9, 0.99]).tolist()
    bench.settings["documents"] = {"count": len(lengths), "quantiles": quantiles}
    return lengths


def measure(bench: Bench) -> None:
    """Measures the batching functions that run on the host."""
    lengths = count_token_lengths(bench, bench.text(MEGABYTES))
    rows = bench.choose(ROWS, QUICK_ROWS)
    rounds = bench.rounds(20)
    repeated = np.resize(lengths, max(len(lengths), 8 * ROWS))  # at least eight batches
    bench.compare("collation, 8 batches", make_collation(repeated, rows), rounds)
    bench.compare("masking", make_masking(repeated), rounds)
    bench.compare("span corruption", make_corruption(bench), rounds)
    aligned = bench.text(ALIGNED_MEGABYTES, record_name="aligned")
    bench.compare("alignment", make_alignment(aligned.documents, bench.ranks), bench.rounds(5))
    many_lengths = np.random.default_rng(1).choice(lengths, bench.choose(DOCUMENTS, QUICK_DOCUMENTS))
    measure_planning(bench, many_lengths)
    measure_planning_of_trl(bench, many_lengths[: len(many_lengths) // 20])
    measure_packing(bench, many_lengths[: len(many_lengths) // 50])
