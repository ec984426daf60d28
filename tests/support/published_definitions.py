"""The pipelines of published byte-level tokenizers, as their `tokenizer.json` defines them.

Each one gets the same vocabulary: all bytes and all pairs of bytes, whose merges have a random order. So the
tokens of a text depend on every boundary of its pre-tokens.
"""

import copy
import json
import random
from functools import cache

from tokenizers import Tokenizer

import tokjax
from tokjax.pretokenize.bytes_to_unicode import ALPHABET


def make_split(expression, behavior="Isolated", *, invert=False):
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": behavior, "invert": invert}


def make_digits(individual_digits):
    return {"type": "Digits", "individual_digits": individual_digits}


def make_byte_level(*, use_regex):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def make_sequence(*steps, use_regex=False):
    return {"type": "Sequence", "pretokenizers": [*steps, make_byte_level(use_regex=use_regex)]}


def make_whitespace_tokens(first_id):
    """Returns added tokens of spaces and tabs, as in GPT-NeoX and Phi."""
    names = [" " * length for length in range(24, 1, -1)] + ["\t" * length for length in range(9, 1, -1)]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}
    return [{"id": first_id + i, "content": name, **flags} for i, name in enumerate(names)]


NFC = {"type": "NFC"}
_CASES = (r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]")
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"


def make_cased(ending, numbers=r"\p{N}{1,3}", symbols=_SYMBOLS):
    upper, lower = _CASES
    start = r"[^\r\n\p{L}\p{N}]?"
    return f"{start}{upper}*{lower}+{ending}|{start}{upper}+{lower}*{ending}|{numbers}|{symbols}|{_SPACE}"


CL100K = _ENDING + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN_2 = CL100K.replace("{1,3}", "")
QWEN_3_5 = (
    _ENDING
    + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Letters with upper and lower case. Characters that NFC replaces by others are escaped.
DEEPSEEK_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗ"
    "\u1f59\u1f5b\u1f5d\u1f5f-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌ\u1fd0-\u1fd3\u1fd6-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ"
    "\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⲲⲳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
_DEEPSEEK_CJK = "[一-龥ࠀ-一가-퟿]+"
_DEEPSEEK_V3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
    r" ?[\p{P}\p{S}]+[\r\n]*|" + _SPACE
)
_KIMI = (
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
    rf"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}&&[^\p{{Han}}]]+{_ENDING}?|[^\r\n\p{{L}}\p{{N}}]?"
    rf"[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}&&[^\p{{Han}}]]+[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}&&[^\p{{Han}}]]*"
    rf"{_ENDING}?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACE}"
)
_EXAONE = (
    _ENDING + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|"
    r"\s*[\r\n]|\s+(?!\S)|\s+"
)

PIPELINES = {
    "GPT-2, Phi": {"pre_tokenizer": make_byte_level(use_regex=True), "whitespace_tokens": True},
    "GPT-NeoX, MPT": {
        "pre_tokenizer": make_byte_level(use_regex=True),
        "normalizer": NFC,
        "whitespace_tokens": True,
    },
    "cl100k": {"pre_tokenizer": make_sequence(make_split(CL100K, "Removed", invert=True))},
    "o200k": {"pre_tokenizer": make_sequence(make_split(make_cased(f"{_ENDING}?"), "Removed", invert=True))},
    "Llama 3": {"pre_tokenizer": make_sequence(make_split(CL100K)), "ignore_merges": True},
    "Llama 4": {"pre_tokenizer": make_sequence(make_split(make_cased(f"{_ENDING}?")))},
    "Qwen 2, Qwen 3": {"pre_tokenizer": make_sequence(make_split(QWEN_2)), "normalizer": NFC},
    "Qwen 3.5": {"pre_tokenizer": make_sequence(make_split(QWEN_3_5)), "normalizer": NFC},
    "DeepSeek V2": {
        "pre_tokenizer": make_sequence(
            make_split("[\r\n]"),
            make_split(f"\\s?[{DEEPSEEK_LETTERS}]+"),
            make_split("\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+"),
            make_split("\\s+$"),
            make_split(_DEEPSEEK_CJK),
            make_digits(True),
        ),
        "normalizer": {"type": "Sequence", "normalizers": []},
    },
    "DeepSeek Coder": {
        "pre_tokenizer": make_sequence(
            make_split("[\r\n]"),
            make_split("\\s?\\p{L}+"),
            make_split("\\s?\\p{P}+"),
            make_split(_DEEPSEEK_CJK),
            make_digits(True),
        ),
    },
    "DeepSeek V3, DeepSeek R1": {
        "pre_tokenizer": make_sequence(
            make_split(r"\p{N}{1,3}"), make_split("[一-龥\u3040-ゟ゠-ヿ]+"), make_split(_DEEPSEEK_V3)
        ),
        "normalizer": {"type": "Sequence", "normalizers": []},
    },
    "Tekken": {
        "pre_tokenizer": make_sequence(make_split(make_cased("", r"\p{N}"))),
        "ignore_merges": True,
    },
    "StarCoder, SmolLM, Granite": {"pre_tokenizer": make_sequence(make_digits(True), use_regex=True)},
    "Command R": {
        "pre_tokenizer": make_sequence(make_digits(True), use_regex=True),
        "normalizer": NFC,
    },
    "Kimi K2": {"pre_tokenizer": make_sequence(make_split(_KIMI, "Removed", invert=True))},
    "Falcon": {
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Punctuation", "behavior": "Contiguous"},
                make_byte_level(use_regex=True),
                make_digits(False),
                make_split("[0-9][0-9][0-9]"),
            ],
        },
    },
    "Falcon, single digits": {
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Punctuation", "behavior": "Isolated"},
                make_byte_level(use_regex=True),
                make_digits(True),
            ],
        },
    },
    "BLOOM": {"pre_tokenizer": make_sequence(make_split(" ?[^(\\s|[.,!?…。，、।۔،])]+"))},
    "SuperBPE, stage 1": {"pre_tokenizer": make_sequence(make_split(make_cased("")))},
    "SuperBPE, stage 2": {
        "pre_tokenizer": make_sequence(make_split(r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]{2,}[\r\n/]*| +(?!\S)"))
    },
    "SuperBPE, digits from the right": {
        "pre_tokenizer": make_sequence(make_split(r"\p{N}+"), make_split(r"(?=(\d{3})+(?!\d))"))
    },
    "digits from the right only": {
        "pre_tokenizer": make_sequence(make_split(r"(?=(\d{3})+(?!\d))"), use_regex=True)
    },
    "EXAONE": {"pre_tokenizer": make_sequence(make_split(_EXAONE)), "normalizer": NFC},
}
"""The parts of each definition that differ: `pre_tokenizer`, `normalizer`, the model's `ignore_merges`, and
whether there are added tokens of whitespace."""


@cache
def make_merges(seed=0):
    """Returns all pairs of bytes in random order, except those that Falcon's bytes and digits would join."""
    digits = {form for form in ALPHABET if form.isnumeric()}
    pairs = [
        [left, right]
        for left in ALPHABET
        for right in ALPHABET
        if not (left in digits and not left.isascii() and right in digits and right.isascii())
    ]
    random.Random(seed).shuffle(pairs)
    return pairs


def build_definition(name, merges=None):
    """Returns the `tokenizer.json` of a pipeline as a `dict`."""
    parts = PIPELINES[name]
    merges = make_merges() if merges is None else merges
    forms = [*ALPHABET, *map("".join, merges)]
    definition = {
        "version": "1.0",
        "added_tokens": make_whitespace_tokens(len(forms)) if parts.get("whitespace_tokens") else [],
        "normalizer": parts.get("normalizer"),
        "pre_tokenizer": parts["pre_tokenizer"],
        "post_processor": None,
        "decoder": make_byte_level(use_regex=True),
        "model": {
            "type": "BPE",
            "ignore_merges": parts.get("ignore_merges", False),
            "vocab": {form: i for i, form in enumerate(forms)},
            "merges": merges,
        },
    }
    return copy.deepcopy(definition)


@cache
def make_published_pair(name):
    """Returns the tokenizer of the library and that of tokjax."""
    definition = json.dumps(build_definition(name), ensure_ascii=False)
    reference = Tokenizer.from_str(definition)
    return reference, tokjax.formats.from_huggingface(reference)
