"""The libraries that are compared, each as a function from documents to arrays.

Run as a program it measures one of them in a fresh process, and prints what it saw as JSON:

    python -m benchmarks.contenders NAME RANKS TEXT MEGABYTES THREADS
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    Encode = Callable[[list[Any]], Any]

SEPARATOR = "<|endoftext|>"
IDS, OFFSETS = "ids", "ids with offsets and masks"


def read_documents(path: Path, megabytes: float) -> list[str]:
    """The documents of the first megabytes of a file."""
    with path.open("rb") as file:
        text = file.read(int(megabytes * 1e6)).decode("utf-8", "ignore")
    return [part for part in text.split(SEPARATOR) if part]


def read_ranks(path: Path) -> dict[bytes, int]:
    """The ranks of a file in tiktoken's format."""
    lines = (line.split() for line in path.read_bytes().splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def tokjax_ids(ranks: Path, threads: int) -> Encode:
    import tokjax

    tokenizer = tokjax.byte_level_bpe(read_ranks(ranks))
    return lambda documents: tokjax.encode_to_array(tokenizer, documents, threads=threads)


def tokjax_offsets(ranks: Path, threads: int) -> Encode:
    import tokjax

    tokenizer = tokjax.byte_level_bpe(read_ranks(ranks))
    return lambda documents: tokjax.encode_batch_result(tokenizer, documents, threads=threads)


def tiktoken_ids(ranks: Path, threads: int) -> Encode:
    import tiktoken

    from tokjax.text.patterns import PATTERNS

    encoding = tiktoken.Encoding(
        "gpt2", pat_str=PATTERNS["gpt2"], mergeable_ranks=read_ranks(ranks), special_tokens={}
    )
    if threads > 1:
        return lambda documents: encoding.encode_ordinary_batch(documents, num_threads=threads)
    return lambda documents: [encoding.encode_ordinary(document) for document in documents]


def gigatoken_ids(ranks: Path, threads: int) -> Encode:
    import gigatoken

    tokenizer = gigatoken.Tokenizer.from_tiktoken(ranks, pretokenizer="gpt2")
    return lambda documents: tokenizer.encode_batch(documents, parallel=threads > 1)


def tokie_ids(ranks: Path, threads: int) -> Encode:
    import tokie

    tokenizer = tokie.Tokenizer.from_json(str(huggingface_file(ranks)))
    return tokenizer.encode_batch_flat


def tokie_offsets(ranks: Path, threads: int) -> Encode:
    import tokie

    tokenizer = tokie.Tokenizer.from_json(str(huggingface_file(ranks)))

    def encode(documents: list[str]) -> list[Any]:
        return [_arrays(tokenizer.encode_with_offsets(document)) for document in documents]

    return encode


def tokenizers_offsets(ranks: Path, threads: int) -> Encode:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(huggingface_file(ranks)))
    return lambda documents: [_arrays(encoding) for encoding in tokenizer.encode_batch(documents)]


CONTENDERS: dict[str, Callable[[Path, int], Encode]] = {
    f"tokjax, {IDS}": tokjax_ids,
    f"tiktoken, {IDS}": tiktoken_ids,
    f"gigatoken, {IDS}": gigatoken_ids,
    f"tokie, {IDS}": tokie_ids,
    f"tokjax, {OFFSETS}": tokjax_offsets,
    f"tokie, {OFFSETS}": tokie_offsets,
    f"tokenizers, {OFFSETS}": tokenizers_offsets,
}


def _arrays(encoding: Any) -> tuple[Any, ...]:
    columns = (encoding.ids, encoding.offsets, encoding.attention_mask, encoding.special_tokens_mask)
    return tuple(map(np.array, columns))


def huggingface_file(ranks: Path) -> Path:
    """The same vocabulary as a `tokenizer.json`, written beside the records once."""
    path = Path(__file__).parent / "cache" / f"{ranks.stem}.json"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(_huggingface(read_ranks(ranks)).to_str())
    return path


def _huggingface(ranks: dict[bytes, int]) -> Any:
    """Merges are the pair of parts that each token is made of."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    stand_in = {i: chr(i) for i in printable}
    stand_in |= {i: chr(256 + n) for n, i in enumerate(i for i in range(256) if i not in stand_in)}

    def shown(token: bytes) -> str:
        return "".join(stand_in[byte] for byte in token)

    merges = []
    for token, rank in ranks.items():
        if len(token) > 1:
            left, right = _parts(token, rank, ranks)
            merges.append((shown(left), shown(right)))
    tokenizer = Tokenizer(models.BPE({shown(token): rank for token, rank in ranks.items()}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _parts(token: bytes, rank: int, ranks: dict[bytes, int]) -> list[bytes]:
    """Merge with the ranks below a token's own, until its two last parts are left."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        best = min(range(len(parts) - 1), key=lambda i: _rank(parts[i] + parts[i + 1], rank, ranks))
        parts[best : best + 2] = [parts[best] + parts[best + 1]]
    return parts


def _rank(pair: bytes, limit: int, ranks: dict[bytes, int]) -> int:
    rank = ranks.get(pair, limit)
    return rank if rank < limit else 1 << 30


def peak_megabytes() -> float:
    """The peak of this process alone: `getrusage` would begin at that of the process that started it."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024


def measured_on(encode: Encode, texts: list[Any]) -> dict[str, float]:
    """Seconds of the first and of a second pass over texts, and the memory that the first took, in MB."""
    begin, before = time.perf_counter(), peak_megabytes()
    encode(texts)
    cold, peak = time.perf_counter(), peak_megabytes()
    encode(texts)
    return {
        "cold_seconds": cold - begin,
        "warm_seconds": time.perf_counter() - cold,
        "megabytes_over_documents": peak - before,
    }


def measured(name: str, ranks: Path, text: Path, megabytes: float, threads: int) -> dict[str, float]:
    """The same of a tokenizer that is made first, and how long that takes."""
    documents = read_documents(text, megabytes)
    begin = time.perf_counter()
    encode = CONTENDERS[name](ranks, threads)
    return {"build_seconds": time.perf_counter() - begin} | measured_on(encode, documents)


if __name__ == "__main__":
    chosen, ranks_path, text_path, size, count = sys.argv[1:]
    os.environ["RAYON_NUM_THREADS"] = count
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if int(count) > 1 else "false"
    print(json.dumps(measured(chosen, Path(ranks_path), Path(text_path), float(size), int(count))))
