"""Large vocabularies: loading a file, the first short text, later short texts, and the first 10 kB.

The files are made from the ranks, with a thousand added tokens each. tokjax runs one of them on the
tokenizers library, and two on its built-in models. Both libraries read the same file.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

import tokjax
from benchmarks.inputs import read_ranks, write_vocabulary_file
from benchmarks.timing import time_call

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.bench import Bench

PACKAGES = ["tokjax", "numpy", "tokenizers"]
REFERENCE = "tokenizers"
TEXT = "A short text for one call, with 12345 and naïve café."
NUM_ADDED = 1000
CALLS = 300
LIBRARY_KIND = "byte-level BPE, on the library"
_FLAGS = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)


def make_added_tokens(first: int) -> list[dict[str, Any]]:
    """Returns a thousand special tokens, with consecutive ids that start at `first`."""
    return [
        {"id": first + i, "content": f"<|added {i}|>", **_FLAGS, "special": True} for i in range(NUM_ADDED)
    ]


def make_byte_level_json(ranks: Path, *, lowercase: bool) -> dict[str, Any]:
    """Returns a byte-level BPE. One that changes text to lower case runs on the library."""
    path = write_vocabulary_file(ranks, "huggingface") / "tokenizer.json"
    contents: dict[str, Any] = json.loads(path.read_text("utf-8"))
    contents["added_tokens"] = make_added_tokens(len(contents["model"]["vocab"]))
    if lowercase:
        contents["normalizer"] = {"type": "Lowercase"}
    return contents


def make_metaspace_json(ranks: Path) -> dict[str, Any]:
    """Returns a BPE with byte fallback like Gemma's: every pair of tokens that forms a token is a merge."""
    texts = (token.decode("utf-8", "replace") for token in read_ranks(ranks))
    forms = [f"<0x{byte:02X}>" for byte in range(256)] + ["▁"]
    forms += [text.replace(" ", "▁") for text in texts if "\ufffd" not in text]
    ids = {form: id_ for id_, form in enumerate(dict.fromkeys(forms))}
    splits = ((form[:i], form[i:]) for form in ids for i in range(1, len(form)) if form[:3] != "<0x")
    steps: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    return {
        "version": "1.0",
        "added_tokens": make_added_tokens(len(ids)),
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "decoder": {"type": "Sequence", "decoders": steps},
        "model": {
            "type": "BPE",
            "byte_fallback": True,
            "vocab": ids,
            "merges": [pair for pair in splits if pair[0] in ids and pair[1] in ids],
        },
    }


def measure(bench: Bench) -> None:
    """Measures both libraries on each file, which every round loads again."""
    book = "\n".join(bench.text(0.1).documents)[:10_000]
    kinds = {
        LIBRARY_KIND: make_byte_level_json(bench.ranks, lowercase=True),
        "byte-level BPE": make_byte_level_json(bench.ranks, lowercase=False),
        "BPE with byte fallback": make_metaspace_json(bench.ranks),
    }
    for kind, contents in kinds.items():
        bench.say(kind)
        path = bench.scratch / "tokenizer.json"
        path.write_text(json.dumps(contents, ensure_ascii=False), "utf-8")
        on_library = isinstance(tokjax.load_tokenizer(path), tokjax.formats.HuggingFaceTokenizer)
        assert on_library == (kind == LIBRARY_KIND)
        seconds: dict[tuple[str, str], list[float]] = {}
        for _ in range(bench.rounds(5)):
            for name in ("tokjax", REFERENCE):
                for task, value in measure_round(name, path, book).items():
                    seconds.setdefault((task, name), []).append(value)
        for (task, name), values in seconds.items():
            bench.add(f"{kind}, {task}", name, values, reference=REFERENCE)


def measure_round(name: str, path: Path, book: str) -> dict[str, float]:
    """Returns the seconds of loading a tokenizer, and of its first and later calls."""
    read = tokjax.load_tokenizer if name == "tokjax" else Tokenizer.from_file
    load, tokenizer = time_call(lambda: read(str(path)))

    def encode(text: str) -> Any:
        if name == "tokjax":
            return tokjax.encode(tokenizer, text)
        return tokenizer.encode(text, add_special_tokens=False).ids

    def encode_again() -> None:
        for _ in range(CALLS):
            encode(TEXT)

    runs: dict[str, Callable[[], Any]] = {
        "first short text": lambda: encode(TEXT),
        "short text": encode_again,
        "first 10 kB": lambda: encode(book),
    }
    seconds = {task: time_call(run)[0] for task, run in runs.items()}
    return {"load": load, **seconds, "short text": seconds["short text"] / CALLS}
