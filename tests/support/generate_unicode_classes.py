"""Writes `unicode_classes.txt` from the installed `tiktoken`.

Run `python -m tests.support.generate_unicode_classes`.
"""

from importlib.metadata import version
from pathlib import Path

import numpy as np
import tiktoken

from tokjax.pretokenize import unicode_classes
from tokjax.pretokenize.unicode_classes import CODE_POINTS, Category

PATH = Path(unicode_classes.__file__).with_name("unicode_classes.txt")
PATTERNS = {
    Category.UPPER: r"\p{Lu}",
    Category.TITLE: r"\p{Lt}",
    Category.LOWER: r"\p{Ll}",
    Category.MODIFIER: r"\p{Lm}",
    Category.LETTER: r"\p{Lo}",
    Category.MARK: r"\p{M}",
    Category.DIGIT: r"\p{Nd}",
    Category.NUMBER: r"[\p{Nl}\p{No}]",
    Category.PUNCTUATION: r"\p{P}",
    Category.SYMBOL: r"\p{S}",
    Category.SPACE: r"\s",
}
ALL_CHARACTERS = "".join(chr(c) for c in range(CODE_POINTS) if not 0xD800 <= c <= 0xDFFF)


def find_members(pattern):
    """Returns which code points tiktoken matches with a pattern, `bool`, shape `(0x110000,)`.

    tiktoken drops characters without a match, so the ids decode to the matches only.
    """
    encoding = tiktoken.Encoding(
        "members", pat_str=pattern, mergeable_ranks={bytes([i]): i for i in range(256)}, special_tokens={}
    )
    matched = np.zeros(CODE_POINTS, bool)
    matched[[ord(c) for c in bytes(encoding.encode_ordinary(ALL_CHARACTERS)).decode()]] = True
    return matched


def compute_tiktoken_categories():
    """Returns the category of each code point according to tiktoken."""
    table = np.full(CODE_POINTS, Category.OTHER, np.uint8)
    for category, pattern in PATTERNS.items():
        members = find_members(pattern)
        assert not table[members].any(), category
        table[members] = category
    return table


def main():
    table = compute_tiktoken_categories()
    lines = [f"# Code points in tiktoken {version('tiktoken')}: start of run, category; ranges of a script"]
    lines += [f"{start:x} {table[start]}" for start in np.flatnonzero(np.diff(table, prepend=255))]
    changes = np.flatnonzero(np.diff(find_members(r"\p{Han}").astype(np.int8), prepend=0, append=0))
    lines += [f"Han {first:x} {stop - 1:x}" for first, stop in changes.reshape(-1, 2).tolist()]
    PATH.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
