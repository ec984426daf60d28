"""One text at a time, from one byte to a megabyte: what a call costs.

    python -m benchmarks.short RANKS TEXT

RANKS is a file in tiktoken's format, used with the GPT-2 pattern; texts are cut from the start of TEXT. All
libraries have seen the texts before.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tiktoken
from tokenizers import Tokenizer

import tokjax
from benchmarks.contenders import huggingface_file, read_ranks
from benchmarks.record import interleaved, medians, write_record
from tokjax.text.patterns import PATTERNS

if TYPE_CHECKING:
    from collections.abc import Callable

LENGTHS = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 100_000, 1_000_000)
CHARACTERS_A_ROUND = 300_000


def calls(ranks: Path) -> dict[str, Callable[[str], Any]]:
    """Each library's call for one text."""
    by_rank = read_ranks(ranks)
    special = {"<|endoftext|>": len(by_rank)}
    ours = tokjax.byte_level_bpe(by_rank, special_tokens=special)
    encoding = tiktoken.Encoding(
        "gpt2", pat_str=PATTERNS["gpt2"], mergeable_ranks=by_rank, special_tokens=special
    )
    tokenizer = Tokenizer.from_file(str(huggingface_file(ranks)))
    return {
        "tokjax": lambda text: tokjax.encode(ours, text),
        "tiktoken": encoding.encode,
        "tokenizers": tokenizer.encode,
    }


def repeated(call: Callable[[str], Any], text: str, times: int) -> Callable[[], None]:
    """The call so many times."""

    def run() -> None:
        for _ in range(times):
            call(text)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ranks", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    book = args.text.read_bytes()[: 2 * LENGTHS[-1]].decode("utf-8", "ignore").replace("<|endoftext|>", "\n")
    texts = {"hello world": "hello world"} | {f"{length} characters": book[:length] for length in LENGTHS}
    by_library = calls(args.ranks)
    microseconds = {}
    for name, text in texts.items():
        times = max(1, CHARACTERS_A_ROUND // (len(text) + 50))
        runs = {library: repeated(call, text, times) for library, call in by_library.items()}
        seconds = medians(interleaved(runs, args.rounds))
        microseconds[name] = {library: value / times * 1e6 for library, value in seconds.items()}
        print(name, microseconds[name])
    packages = ["tokjax", "numpy", "tiktoken", "tokenizers"]
    print(write_record("short", packages, {"rounds": args.rounds, "microseconds": microseconds}))


if __name__ == "__main__":
    main()
