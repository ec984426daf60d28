"""Text to ids, and to ids with offsets: tokjax, tiktoken and tokenizers on the same documents.

    python -m benchmarks.encode RANKS TEXT [TEXT ...]

RANKS is a file in tiktoken's format, TEXT files have documents joined by `<|endoftext|>`. All contenders use
the vocabulary RANKS with the GPT-2 pattern, on one thread, warm.
"""

from __future__ import annotations

import argparse
import base64
import os
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import tiktoken
from tokenizers import Tokenizer, models, pre_tokenizers

import tokjax
from benchmarks.record import described_input, interleaved, medians, write_record
from tokjax.text.patterns import PATTERNS


def read_ranks(path: Path) -> dict[bytes, int]:
    lines = (line.split() for line in path.read_bytes().splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def huggingface(ranks: dict[bytes, int]) -> Tokenizer:
    """The same vocabulary for tokenizers: merges are the pair of parts that each token is made of."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    stand_in = {i: chr(i) for i in printable}
    stand_in |= {i: chr(256 + n) for n, i in enumerate(i for i in range(256) if i not in stand_in)}

    def shown(token: bytes) -> str:
        return "".join(stand_in[byte] for byte in token)

    merges = []
    for token, rank in ranks.items():
        if len(token) > 1:
            parts = _parts(token, rank, ranks)
            merges.append((shown(parts[0]), shown(parts[1])))
    tokenizer = Tokenizer(models.BPE({shown(t): r for t, r in ranks.items()}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ranks", type=Path)
    parser.add_argument("texts", type=Path, nargs="+")
    parser.add_argument("--megabytes", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    ranks = read_ranks(args.ranks)
    ours = tokjax.byte_level_bpe(ranks)
    tik = tiktoken.Encoding("gpt2", pat_str=PATTERNS["gpt2"], mergeable_ranks=ranks, special_tokens={})
    hf = huggingface(ranks)
    results = {}
    for path in args.texts:
        data = path.read_bytes()[: int(args.megabytes * 1e6)]
        documents = [part for part in data.decode("utf-8", "ignore").split("<|endoftext|>") if part]
        contenders = {
            "tiktoken, ids": lambda d=documents: [tik.encode_ordinary(text) for text in d],
            "tokjax, ids": lambda d=documents: tokjax.encode_batch_result(
                ours, d, return_offsets=False, return_masks=False
            ),
            "tokjax, ids with offsets and masks": lambda d=documents: tokjax.encode_batch_result(ours, d),
            "tokenizers, ids with offsets and masks": lambda d=documents: [
                (e.ids, e.offsets, e.attention_mask, e.special_tokens_mask) for e in hf.encode_batch(d)
            ],
        }
        expected = [id_ for text in documents for id_ in tik.encode_ordinary(text)]
        if tokjax.encode_batch_result(ours, documents).ids.tolist() != expected:
            raise SystemExit(f"{path}: the ids differ from tiktoken's")
        seconds = interleaved(contenders, args.rounds)
        middle = medians(seconds)
        results[path.stem] = {
            "input": described_input(data),
            "rounds_seconds": seconds,
            "median_megabytes_per_second": {name: len(data) / 1e6 / s for name, s in middle.items()},
            "times_tiktoken": {name: middle["tiktoken, ids"] / s for name, s in middle.items()},
        }
        for name, rate in results[path.stem]["median_megabytes_per_second"].items():
            print(f"{path.stem}: {name}: {rate:.1f} MB/s")
    print(
        write_record("encode", ["tokjax", "numpy", "regex", "tiktoken", "tokenizers"], {"results": results})
    )


if __name__ == "__main__":
    main()
