"""Writes `bert_characters.txt` from the installed `tokenizers`.

Run `python -m tests.support.generate_bert_characters`.
"""

import struct
import unicodedata
from importlib.metadata import version
from pathlib import Path

import numpy as np
from tokenizers import normalizers, pre_tokenizers

from tokjax.pretokenize import unicode_classes
from tokjax.pretokenize.unicode_classes import CODE_POINTS

PATH = Path(unicode_classes.__file__).with_name("bert_characters.txt")
ALL_OFF = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
CODES = [code for code in range(CODE_POINTS) if not 0xD800 <= code <= 0xDFFF]
MAX_STEP = 2


def list_assigned_code_points():
    """Returns the code points of `CODES` that this Python's Unicode version has.

    Releases of the library differ in the lower case of characters that were added later.
    """
    return [code for code in CODES if unicodedata.category(chr(code)) != "Cn"]


def normalize_all_code_points(option):
    """Returns each code point after one step of BERT's normalizer."""
    normalizer = normalizers.BertNormalizer(**(ALL_OFF | {option: True}))
    return {code: normalizer.normalize_str(chr(code)) for code in CODES}


def compute_library_flags():
    """Returns the flags of each code point."""
    nfd = normalizers.NFD().normalize_str
    split = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    nfkd, strip_marks = normalizers.NFKD().normalize_str, normalizers.StripAccents().normalize_str
    replace_graphemes = normalizers.Precompiled(make_charsmap()).normalize_str
    flags = np.zeros(CODE_POINTS, np.uint16)
    for code, cleaned in normalize_all_code_points("clean_text").items():
        flags[code] |= unicode_classes.DROPPED * (cleaned == "")
    for code, spaced in normalize_all_code_points("handle_chinese_chars").items():
        flags[code] |= unicode_classes.CHINESE * (spaced != chr(code))
    for code, stripped in normalize_all_code_points("strip_accents").items():
        flags[code] |= unicode_classes.ACCENT * (stripped == "")
    for code in CODES:
        flags[code] |= unicode_classes.DECOMPOSES * (nfd(chr(code)) != chr(code))
        flags[code] |= unicode_classes.PUNCTUATION * (len(split(f"a{chr(code)}b")) == 3)
        flags[code] |= unicode_classes.COMBINES * is_reordered(nfd, chr(code))
        flags[code] |= unicode_classes.COMPATIBLE * (nfkd(chr(code)) != chr(code))
        flags[code] |= unicode_classes.STRIPPED * (strip_marks(chr(code)) == "")
        flags[code] |= unicode_classes.EXTENDS * (replace_graphemes(f"A{chr(code)}") == "B")
    return flags


def make_charsmap():
    """Returns a precompiled character map: "A", and each grapheme that begins with it, becomes "B"."""
    base, leaf, key = 256, 10, ord("A")
    units = [0] * 512
    units[0] = base << 10
    units[base ^ key] = key | 1 << 8 | (base ^ key ^ leaf) << 10
    units[leaf] = 1 << 31
    return struct.pack("<I512I", 4 * len(units), *units) + b"B\0"


def is_reordered(nfd, character):
    """Returns whether NFD swaps a character with a mark of the lowest or of the highest combining class."""
    lowest, highest = "\u0334", "\u0345"
    return nfd(character + lowest) == lowest + character or nfd(highest + character) == character + highest


def compute_library_lowercase():
    """Returns the lower case of each code point that differs from its lower case."""
    normalized = normalize_all_code_points("lowercase")
    return {code: lowercase for code, lowercase in normalized.items() if lowercase != chr(code)}


def find_lowercase_runs(lowercase):
    """Returns runs `(first, last, step, distance)` of code points with the same distance to lower case."""
    runs = []
    for code, target in sorted(lowercase.items()):
        distance = target - code
        if runs and runs[-1][3] == distance:
            first, last, step, _ = runs[-1]
            if code - last == step or (first == last and code - last <= MAX_STEP):
                runs[-1] = (first, code, code - last, distance)
                continue
        runs.append((code, code, 1, distance))
    return runs


def main():
    flags = compute_library_flags()
    lowercase = compute_library_lowercase()
    assert {code for code, text in lowercase.items() if len(text) > 1} == {unicode_classes.DOTTED_CAPITAL_I}
    single = {code: ord(text) for code, text in lowercase.items() if len(text) == 1}
    starts = np.flatnonzero(np.diff(flags, prepend=255))
    lines = [f"# Code points in tokenizers {version('tokenizers')}: start of run, bits"]
    lines += [f"{start:x} {flags[start]}" for start in starts]
    lines.append("# Lower case: first, last, step, distance")
    lines += [
        f"{first:x} {last:x} {step} {distance}" for first, last, step, distance in find_lowercase_runs(single)
    ]
    PATH.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
