"""The tokenizers that are compared: each makes of a vocabulary a call for many documents, and one for one.

Each imports its own library, in the process that measures it.
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
from benchmarks.names import IDS, OFFSETS, SLOW
from benchmarks.timing import get_peak_megabytes, measure_seconds, time_call

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

LATENCY_PIECES = 1000


class EncodeCalls(NamedTuple):
    """A tokenizer that is ready.

    Attributes:
        many: a list of documents to whatever holds their ids.
        one: one text to its ids.
    """

    many: Callable[[list[Any]], Any]
    one: Callable[[str], Any]


@dataclass(frozen=True)
class Contender:
    """A library.

    Attributes:
        package: what has to be installed.
        make: the calls, of a path and a number of threads. The path is that of the ranks, but for
            SentencePiece that of its model.
    """

    package: str
    make: Callable[[Path, int], EncodeCalls]

    @property
    def installed(self) -> bool:
        """Whether the package is there."""
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
        lambda documents: tokjax.encode_batch_result(tokenizer, documents, threads=threads),
        lambda text: tokjax.encode_result(tokenizer, text),
    )


def make_tokjax_with_special(ranks: Path, _: int) -> EncodeCalls:
    """With a special token, which texts are searched for."""
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
    one = tokenizer.encode_with_offsets
    return EncodeCalls(lambda documents: [get_columns(one(document)) for document in documents], one)


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

    logging.set_verbosity_error()  # (it warns of texts that are longer than a model's)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(_make_huggingface_json(ranks)))
    return EncodeCalls(
        lambda documents: tokenizer(documents, add_special_tokens=False)["input_ids"],
        lambda text: tokenizer.encode(text, add_special_tokens=False),
    )


def make_transformers_slow(ranks: Path, _: int) -> EncodeCalls:
    """The tokenizer in Python, which transformers 4 has, and 5 has no more."""
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
    """What an encoding has of each token, as arrays."""
    columns = (encoding.ids, encoding.offsets, encoding.attention_mask, encoding.special_tokens_mask)
    return tuple(map(np.array, columns))


def time_two_passes(calls: EncodeCalls, texts: list[Any]) -> tuple[dict[str, float], Any]:
    """What the first and a second pass over texts take, and what came of the second.

    Returns:
        Seconds, cold and warm, and the memory that the first pass took, in MB; and the ids.
    """
    before = get_peak_megabytes()
    cold, rows = time_call(lambda: calls.many(texts))
    memory = get_peak_megabytes() - before
    del rows  # (before there are others)
    warm, rows = time_call(lambda: calls.many(texts))
    return {"cold": cold, "memory": memory, "warm": warm}, rows


def measure_passes(name: str, source: str, text: str, threads: int) -> dict[str, Any]:
    """The same of a tokenizer that is made first, on the documents of a file; and how long that takes.

    Returns:
        Beside the numbers a checksum of all ids, by which contenders are compared.
    """
    documents = read_documents(Path(text))
    build, calls = time_call(lambda: CONTENDERS[name].make(Path(source), threads))
    seen, rows = time_two_passes(calls, documents)
    return {"build": build, "ids": hashlib.sha256(flatten_ids(rows).tobytes()).hexdigest()} | seen


def measure_latency(name: str, source: str, text: str, lengths: dict[str, int]) -> dict[str, Any]:
    """Two passes on one thread, how many tokens came of them, and seconds for one text of each length."""
    documents = read_documents(Path(text))
    calls = CONTENDERS[name].make(Path(source), 1)
    seen, rows = time_two_passes(calls, documents)
    return seen | {
        "tokens": len(flatten_ids(rows)),
        "latency": {
            kind: float(
                np.median([measure_seconds(lambda piece=piece: calls.one(piece)) for piece in pieces])
            )
            for kind, length in lengths.items()
            if (pieces := split_pieces(documents, length))
        },
    }


def split_pieces(documents: list[str], length: int) -> list[str]:
    """Different texts of so many characters, from the starts of documents that have them."""
    long_enough = [document[:length] for document in documents if len(document) >= length]
    return long_enough[:LATENCY_PIECES]


def flatten_ids(rows: Any) -> NDArray[np.int64]:
    """All ids that a contender gave, one document after the other."""
    if hasattr(rows, "ids"):  # (tokjax)
        flat = rows.ids
    elif isinstance(rows, tuple):  # (tokie: ids, and where rows end)
        flat = rows[0]
    else:  # (a row may be ids, or columns of which ids are the first)
        each = [np.asarray(row[0] if isinstance(row, tuple) else row, np.int64) for row in rows]
        flat = np.concatenate(each) if each else []
    return np.asarray(flat, np.int64)
