"""Write `bert_characters.txt` from the installed tokenizers: `python -m tests.support.generate_bert_characters`."""

from importlib.metadata import version
from pathlib import Path

import numpy as np
from tokenizers import normalizers, pre_tokenizers

from tokjax.pretokenize import unicode_classes as bc
from tokjax.pretokenize.unicode_classes import CODE_POINTS

PATH = Path(bc.__file__).with_name("bert_characters.txt")
ALL_OFF = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
CODES = [code for code in range(CODE_POINTS) if not 0xD800 <= code <= 0xDFFF]
LOWERCASE_RUNS = 2


def make_normalizer(option):
    """What one step of BERT's normaliser makes of each code point."""
    normalizer = normalizers.BertNormalizer(**(ALL_OFF | {option: True}))
    return {code: normalizer.normalize_str(chr(code)) for code in CODES}


def compute_library_bits():
    """The bits of each code point."""
    nfd = normalizers.NFD().normalize_str
    split = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    bits = np.zeros(CODE_POINTS, np.uint8)
    for code, cleaned in make_normalizer("clean_text").items():
        bits[code] |= bc.DROPPED * (cleaned == "")
    for code, parted in make_normalizer("handle_chinese_chars").items():
        bits[code] |= bc.CHINESE * (parted != chr(code))
    for code, stripped in make_normalizer("strip_accents").items():
        bits[code] |= bc.ACCENT * (stripped == "")
    for code in CODES:
        bits[code] |= bc.DECOMPOSES * (nfd(chr(code)) != chr(code))
        bits[code] |= bc.PUNCTUATION * (len(split(f"a{chr(code)}b")) == 3)
        bits[code] |= bc.COMBINES * is_reordered(nfd, chr(code))
    return bits


def is_reordered(nfd, character):
    """Whether a normal form moves a character past a mark of the lowest class, or that one past it."""
    lowest, highest = "\u0334", "\u0345"
    return nfd(character + lowest) == lowest + character or nfd(highest + character) == character + highest


def compute_library_lowercase():
    """The lower case of each code point that has another."""
    return {code: lower for code, lower in make_normalizer("lowercase").items() if lower != chr(code)}


def find_lowercase_runs(lower):
    """First, last, step and distance of code points whose lower case is equally far."""
    runs = []
    for code, target in sorted(lower.items()):
        distance = target - code
        if runs and runs[-1][3] == distance:
            first, last, step, _ = runs[-1]
            if code - last == step or (first == last and code - last <= LOWERCASE_RUNS):
                runs[-1] = (first, code, code - last, distance)
                continue
        runs.append((code, code, 1, distance))
    return runs


def main():
    bits = compute_library_bits()
    lower = compute_library_lowercase()
    assert {code for code, text in lower.items() if len(text) > 1} == {bc.DOTTED_CAPITAL_I}
    single = {code: ord(text) for code, text in lower.items() if len(text) == 1}
    starts = np.flatnonzero(np.diff(bits, prepend=255))
    lines = [f"# Code points in tokenizers {version('tokenizers')}: start of run, bits"]
    lines += [f"{start:x} {bits[start]}" for start in starts]
    lines.append("# Lower case: first, last, step, distance")
    lines += [
        f"{first:x} {last:x} {step} {distance}" for first, last, step, distance in find_lowercase_runs(single)
    ]
    PATH.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
