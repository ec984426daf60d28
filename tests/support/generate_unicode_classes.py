"""Write `unicode_classes.txt` from the installed tiktoken: `python -m tests.support.generate_unicode_classes`."""

from importlib.metadata import version
from pathlib import Path

import numpy as np
import tiktoken

from tokjax.pretokenize import unicode_classes as uc

PATH = Path(uc.__file__).with_name("unicode_classes.txt")
PATTERNS = {
    uc.UPPER: r"[\p{Lu}\p{Lt}]",
    uc.LOWER: r"\p{Ll}",
    uc.LETTER: r"[\p{Lm}\p{Lo}]",
    uc.MARK: r"\p{M}",
    uc.NUMBER: r"\p{N}",
    uc.SPACE: r"\s",
    uc.NEWLINE: r"[\r\n]",
}


def find_members(pattern):
    """Which code points a pattern matches, in tiktoken's eyes: it drops what does not match."""
    encoding = tiktoken.Encoding(
        "members", pat_str=pattern, mergeable_ranks={bytes([i]): i for i in range(256)}, special_tokens={}
    )
    every = "".join(chr(c) for c in range(uc.CODE_POINTS) if not 0xD800 <= c <= 0xDFFF)
    matched = np.zeros(uc.CODE_POINTS, bool)
    matched[[ord(c) for c in bytes(encoding.encode_ordinary(every)).decode()]] = True
    return matched


def compute_tiktoken_classes():
    table = np.full(uc.CODE_POINTS, uc.OTHER, np.uint8)
    for class_, pattern in PATTERNS.items():
        table[find_members(pattern)] = class_
    return table


def compute_base_classes(table):
    """A table whose single characters are counted with their classes again."""
    base = table.copy()
    base[[ord(" "), ord("'"), ord("/")]] = uc.SPACE, uc.OTHER, uc.OTHER
    return base


def main():
    table = compute_tiktoken_classes()
    starts = np.flatnonzero(np.diff(table, prepend=255))
    lines = [f"# The classes of code points in tiktoken {version('tiktoken')}: start of run, class"]
    lines += [f"{start:x} {table[start]}" for start in starts]
    PATH.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
