"""Tokenizers that are compared. Each is built from a vocabulary, and encodes one text or a list of documents.

Each `make_` function imports its own library, so that only the process that measures a library loads it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.inputs import (
    SEPARATOR,
    load_ranks_tokenizer,
    read_documents,
    read_ranks,
    write_vocabulary_file,
)
from benchmarks.names import IDS, OFFSETS, SLOW, UNREAD
from benchmarks.timing import get_peak_megabytes, measure_seconds, time_call

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

MAX_LATENCY_TEXTS = 1000
"""Maximum number of texts that a latency is the median of."""


class EncodeCalls(NamedTuple):
    """Functions of a tokenizer that is loaded.

    Attributes:
        encode_documents: encodes a list of documents; `flatten_ids` reads the ids from its result.
        encode_text: encodes one text.
    """

    encode_documents: Callable[[list[Any]], Any]
    encode_text: Callable[[str], Any]


@dataclass(frozen=True)
class Contender:
    """Library, or configuration of a library.

    Attributes:
        package: name of the package to install.
        make: loads the tokenizer from a path, for a number of threads. The path is the file of the ranks; for
            SentencePiece, it is the file of the model.
    """

    package: str
    make: Callable[[Path, int], EncodeCalls]

    @property
    def installed(self) -> bool:
        """Whether the package is installed."""
        return find_spec(self.package) is not None


def make_tokjax_ids(ranks: Path, threads: int) -> EncodeCalls:
    import tokjax

    tokenizer = tokjax.byte_level_bpe(read_ranks(ranks))
    return EncodeCalls(
        lambda documents: tokjax.encode_to_array(
            tokenizer, documents, add_special_tokens=False, threads=threads
        ),
        lambda text: tokjax.encode(tokenizer, text, add_special_tokens=False),
    )


def make_tokjax_offsets(ranks: Path, threads: int) -> EncodeCalls:
    import tokjax

    tokenizer = tokjax.byte_level_bpe(read_ranks(ranks))
    return EncodeCalls(
        lambda documents: tokjax.encode_batch_result(tokenizer, documents, threads=threads).ragged,
        lambda text: get_columns(tokjax.encode_result(tokenizer, text)),
    )


def make_tokjax_unread(ranks: Path, threads: int) -> EncodeCalls:
    """Encodes with offsets and masks, and reads only the ids: tokjax computes the rest when it is read."""
    import tokjax

    tokenizer = tokjax.byte_level_bpe(read_ranks(ranks))
    return EncodeCalls(
        lambda documents: tokjax.encode_batch_result(tokenizer, documents, threads=threads),
        lambda text: tokjax.encode_result(tokenizer, text),
    )


def make_tokjax_with_special(ranks: Path, _: int) -> EncodeCalls:
    """Loads tokjax with a special token, which it searches for in every text."""
    import tokjax

    tokenizer = load_ranks_tokenizer(ranks)
    return EncodeCalls(
        lambda documents: tokjax.encode_to_array(tokenizer, documents, add_special_tokens=False, threads=1),
        lambda text: tokjax.encode(tokenizer, text, add_special_tokens=False),
    )


def make_tiktoken_ids(ranks: Path, threads: int) -> EncodeCalls:
    encoding = _load_tiktoken(ranks, {})
    if threads > 1:
        return EncodeCalls(
            lambda documents: encoding.encode_ordinary_batch(documents, num_threads=threads),
            encoding.encode_ordinary,
        )
    return EncodeCalls(
        lambda documents: [encoding.encode_ordinary(document) for document in documents],
        encoding.encode_ordinary,
    )


def make_tiktoken_with_special(ranks: Path, _: int) -> EncodeCalls:
    encoding = _load_tiktoken(ranks, {SEPARATOR: len(read_ranks(ranks))})
    return EncodeCalls(
        lambda documents: [encoding.encode(document) for document in documents], encoding.encode
    )


def _load_tiktoken(ranks: Path, special: dict[str, int]) -> Any:
    import tiktoken

    from tokjax.pretokenize.patterns import PATTERNS

    return tiktoken.Encoding(
        "gpt2", pat_str=PATTERNS["gpt2"], mergeable_ranks=read_ranks(ranks), special_tokens=special
    )


def make_gigatoken_ids(ranks: Path, threads: int) -> EncodeCalls:
    import gigatoken

    tokenizer = gigatoken.Tokenizer.from_tiktoken(ranks, pretokenizer="gpt2")
    return EncodeCalls(
        lambda documents: tokenizer.encode_batch(documents, parallel=threads > 1),
        tokenizer.encode,
    )


def make_tokie_ids(ranks: Path, _: int) -> EncodeCalls:
    tokenizer = _load_tokie(ranks)
    return EncodeCalls(tokenizer.encode_batch_flat, tokenizer.encode)


def make_tokie_offsets(ranks: Path, _: int) -> EncodeCalls:
    tokenizer = _load_tokie(ranks)
    encode = tokenizer.encode_with_offsets
    return EncodeCalls(lambda documents: [get_columns(encode(document)) for document in documents], encode)


def _load_tokie(ranks: Path) -> Any:
    import tokie

    return tokie.Tokenizer.from_json(str(_make_huggingface_json(ranks)))


def make_tokenizers_offsets(ranks: Path, _: int) -> EncodeCalls:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(_make_huggingface_json(ranks)))
    return EncodeCalls(
        lambda documents: [get_columns(encoding) for encoding in tokenizer.encode_batch(documents)],
        tokenizer.encode,
    )


def make_transformers_fast(ranks: Path, _: int) -> EncodeCalls:
    from transformers import PreTrainedTokenizerFast
    from transformers.utils import logging

    logging.set_verbosity_error()  # it warns about texts longer than a model's maximum length
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(_make_huggingface_json(ranks)))
    return EncodeCalls(
        lambda documents: tokenizer(documents, add_special_tokens=False)["input_ids"],
        lambda text: tokenizer.encode(text, add_special_tokens=False),
    )


def make_transformers_slow(ranks: Path, _: int) -> EncodeCalls:
    """Loads the tokenizer in pure Python of transformers 4, which transformers 5 removed."""
    from transformers import GPT2Tokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    files = write_vocabulary_file(ranks, "gpt2")
    tokenizer = GPT2Tokenizer(str(files / "vocab.json"), str(files / "merges.txt"), unk_token=None)
    return EncodeCalls(
        lambda documents: tokenizer(documents, add_special_tokens=False)["input_ids"],
        lambda text: tokenizer.encode(text, add_special_tokens=False),
    )


def make_sentencepiece_ids(model: Path, threads: int) -> EncodeCalls:
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    return EncodeCalls(lambda documents: processor.encode(documents, num_threads=threads), processor.encode)


CONTENDERS = {
    f"tokjax, {IDS}": Contender("tokjax", make_tokjax_ids),
    f"tiktoken, {IDS}": Contender("tiktoken", make_tiktoken_ids),
    f"gigatoken, {IDS}": Contender("gigatoken", make_gigatoken_ids),
    f"tokie, {IDS}": Contender("tokie", make_tokie_ids),
    f"tokjax, {OFFSETS}": Contender("tokjax", make_tokjax_offsets),
    f"tokjax, {UNREAD}": Contender("tokjax", make_tokjax_unread),
    f"tokie, {OFFSETS}": Contender("tokie", make_tokie_offsets),
    f"tokenizers, {OFFSETS}": Contender("tokenizers", make_tokenizers_offsets),
    "tokjax": Contender("tokjax", make_tokjax_with_special),
    "tiktoken": Contender("tiktoken", make_tiktoken_with_special),
    "tokenizers": Contender("tokenizers", make_tokenizers_offsets),
    SLOW: Contender("transformers", make_transformers_slow),
    "Hugging Face, fast": Contender("transformers", make_transformers_fast),
    "SentencePiece": Contender("sentencepiece", make_sentencepiece_ids),
}


def _make_huggingface_json(ranks: Path) -> Path:
    return write_vocabulary_file(ranks, "huggingface") / "tokenizer.json"


def get_columns(encoding: Any) -> tuple[Any, ...]:
    """Returns the ids, offsets, attention mask and special-token mask of an encoding as arrays."""
    columns = (encoding.ids, encoding.offsets, encoding.attention_mask, encoding.special_tokens_mask)
    return tuple(map(np.array, columns))


def time_two_passes(calls: EncodeCalls, texts: list[Any]) -> tuple[dict[str, float], Any]:
    """Times a first (cold) and a second (warm) pass over texts.

    Returns:
        The seconds as `"cold"` and `"warm"`, the growth of the peak memory in the first pass in MB as
        `"memory"`; and the result of the second pass.
    """
    before = get_peak_megabytes()
    cold, rows = time_call(lambda: calls.encode_documents(texts))
    memory = get_peak_megabytes() - before
    del rows  # free the memory before the second pass
    warm, rows = time_call(lambda: calls.encode_documents(texts))
    return {"cold": cold, "memory": memory, "warm": warm}, rows


def measure_passes(name: str, source: str, text: str, threads: int) -> dict[str, Any]:
    """Loads a tokenizer, and times two passes over the documents of a file.

    Args:
        name: name of the contender.
        source: path of the ranks or of the model.
        text: path of the documents.
        threads: number of threads.

    Returns:
        The numbers of `time_two_passes`, the seconds to load as `"build"`, and a checksum of all ids as
        `"ids"`, which shows whether contenders agree.
    """
    documents = read_documents(Path(text))
    build, calls = time_call(lambda: CONTENDERS[name].make(Path(source), threads))
    numbers, rows = time_two_passes(calls, documents)
    return {"build": build, "ids": hashlib.sha256(flatten_ids(rows).tobytes()).hexdigest()} | numbers


def measure_latency(name: str, source: str, text: str, lengths: dict[str, int]) -> dict[str, Any]:
    """Times two passes on one thread, and single calls for texts of several lengths.

    Args:
        name: name of the contender.
        source: path of the ranks or of the model.
        text: path of the documents.
        lengths: number of characters of the single texts, by name.

    Returns:
        The numbers of `time_two_passes`, the number of ids as `"tokens"`, and the median seconds of a single
        call by name of the length as `"latency"`.
    """
    documents = read_documents(Path(text))
    calls = CONTENDERS[name].make(Path(source), 1)
    numbers, rows = time_two_passes(calls, documents)
    return numbers | {
        "tokens": len(flatten_ids(rows)),
        "latency": {
            kind: float(
                np.median([measure_seconds(lambda text=text: calls.encode_text(text)) for text in texts])
            )
            for kind, length in lengths.items()
            if (texts := take_prefixes(documents, length))
        },
    }


def take_prefixes(documents: list[str], length: int) -> list[str]:
    """Returns the first `length` characters of documents that are long enough, at most 1,000 of them."""
    prefixes = [document[:length] for document in documents if len(document) >= length]
    return prefixes[:MAX_LATENCY_TEXTS]


def flatten_ids(rows: Any) -> NDArray[np.int64]:
    """Returns the ids of all documents, concatenated, from the result of any contender."""
    if hasattr(rows, "ids"):  # tokjax: a batch
        flat = rows.ids
    elif isinstance(rows, tuple):  # tokie: (flat ids, row ends)
        flat = rows[0]
    else:  # the others: one row per document, either ids or a tuple of columns that starts with the ids
        ids_by_row = [np.asarray(row[0] if isinstance(row, tuple) else row, np.int64) for row in rows]
        flat = np.concatenate(ids_by_row) if ids_by_row else []
    return np.asarray(flat, np.int64)
