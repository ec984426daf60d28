"""Writes `unicode_classes.txt` from the installed `tiktoken`.

Run `python -m tests.support.generate_unicode_classes`.
"""

from importlib.metadata import version
from pathlib import Path

import numpy as np
import tiktoken

from tokjax.pretokenize import unicode_classes

PATH = Path(unicode_classes.__file__).with_name("unicode_classes.txt")
PATTERNS = {
    unicode_classes.UPPER: r"[\p{Lu}\p{Lt}]",
    unicode_classes.LOWER: r"\p{Ll}",
    unicode_classes.LETTER: r"[\p{Lm}\p{Lo}]",
    unicode_classes.MARK: r"\p{M}",
    unicode_classes.NUMBER: r"\p{N}",
    unicode_classes.SPACE: r"\s",
    unicode_classes.NEWLINE: r"[\r\n]",
}


def find_members(pattern):
    """Returns which code points tiktoken matches with a pattern, `bool`, shape `(0x110000,)`.

    tiktoken drops characters without a match, so the ids decode to the matches only.
    """
    encoding = tiktoken.Encoding(
        "members", pat_str=pattern, mergeable_ranks={bytes([i]): i for i in range(256)}, special_tokens={}
    )
    all_characters = "".join(chr(c) for c in range(unicode_classes.CODE_POINTS) if not 0xD800 <= c <= 0xDFFF)
    matched = np.zeros(unicode_classes.CODE_POINTS, bool)
    matched[[ord(c) for c in bytes(encoding.encode_ordinary(all_characters)).decode()]] = True
    return matched


def compute_tiktoken_classes():
    """Returns the class of each code point according to tiktoken."""
    table = np.full(unicode_classes.CODE_POINTS, unicode_classes.OTHER, np.uint8)
    for class_, pattern in PATTERNS.items():
        table[find_members(pattern)] = class_
    return table


def compute_base_classes(table):
    """Returns a table in which the single-character classes are replaced by their Unicode classes."""
    base = table.copy()
    base[[ord(" "), ord("'"), ord("/")]] = unicode_classes.SPACE, unicode_classes.OTHER, unicode_classes.OTHER
    return base


def main():
    table = compute_tiktoken_classes()
    starts = np.flatnonzero(np.diff(table, prepend=255))
    lines = [f"# The classes of code points in tiktoken {version('tiktoken')}: start of run, class"]
    lines += [f"{start:x} {table[start]}" for start in starts]
    PATH.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
