"""CLIP's list of merges, `bpe_simple_vocab_16e6.txt.gz`, which determines its vocabulary."""

from __future__ import annotations

import gzip
import json
import zlib
from itertools import islice
from typing import TYPE_CHECKING, Any

from tokjax.errors import TokenizerFormatError
from tokjax.formats.huggingface.adapter import HuggingFaceTokenizer, build_huggingface_tokenizer
from tokjax.formats.tokenizer_files import as_path, read_bytes, with_roles
from tokjax.models.format_errors import as_format_errors
from tokjax.pretokenize.bytes_to_unicode import ALPHABET

if TYPE_CHECKING:
    import os
    from pathlib import Path

START, END = "<|startoftext|>", "<|endoftext|>"
_HEADER = '"bpe_simple_vocab_16e6.txt#version'
_GZIP = b"\x1f\x8b"
_END_OF_WORD = "</w>"
_MAX_MERGES = 48894
"""CLIP has 49,408 tokens: 256 bytes, each alone and at the end of a word, these merges and two special ones.
The rest of the file is not used."""
_MAX_BYTES = 1 << 26
_PATTERN = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
_OUTER_WHITESPACE = r"\A[\s\x1c-\x1f]+|[\s\x1c-\x1f]+\z"  # what Python's strip() takes away
_REASON = "its tokens tell the end of a word, and texts are put in lower case"


def read_clip(
    path: str | os.PathLike[str],
    *,
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = None,
) -> HuggingFaceTokenizer:
    """Read CLIP's list of merges, compressed or not.

    The tokenizer gives the ids of transformers' `CLIPTokenizer`: texts are normalized to NFC and lower case,
    runs of white space become one space, and `<|startoftext|>` and `<|endoftext|>` are put around each.
    (OpenAI's own code also repairs texts with ftfy and unescapes HTML; do that before, if you need it.) It
    runs on the `tokenizers` library.

    Args:
        path: `bpe_simple_vocab_16e6.txt.gz`, or what is in it. Of the merges the first 48,894 count.
        bos_token: which special token begins a text; `<|startoftext|>` unless another is named.
        eos_token: which special token ends a text; `<|endoftext|>`, likewise.
        pad_token: which special token pads a batch; `<|endoftext|>`, likewise.

    Raises:
        FileNotFoundError: there is no such file.
        InvalidArgumentError: a role is given to a token that is not special.
        MissingExtraError: the `tokenizers` library is not installed.
        TokenizerFormatError: the file is damaged, or is not such a list.
    """
    source = as_path(path)
    merges = _parse_merges(source)
    merged = ["".join(merge) for merge in merges]
    forms = [*ALPHABET, *(character + _END_OF_WORD for character in ALPHABET), *merged, START, END]
    ids = {form: id_ for id_, form in enumerate(forms)}
    if len(ids) < len(forms):
        raise TokenizerFormatError(f"{source}: two merges make the same token, or make a special one")
    definition = json.dumps(_build_definition(ids, merges), ensure_ascii=False)
    with as_format_errors(str(source)):
        tokenizer = build_huggingface_tokenizer(definition, _REASON, {"bos": START, "eos": END, "pad": END})
    return with_roles(tokenizer, {"bos": bos_token, "eos": eos_token, "pad": pad_token})


def is_clip_header(beginning: bytes) -> bool:
    """Returns whether a file that begins like this is CLIP's list of merges, compressed or not."""
    if beginning.startswith(_GZIP):
        try:
            beginning = zlib.decompressobj(wbits=31).decompress(beginning, len(_HEADER))
        except zlib.error:
            return False
    return beginning.startswith(_HEADER.encode("ascii"))


def _parse_merges(source: Path) -> list[tuple[str, str]]:
    data = read_bytes(source)
    if data.startswith(_GZIP):
        try:
            with gzip.open(source) as file:
                data = file.read(_MAX_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise TokenizerFormatError(f"{source}: not gzip, or cut short: {error}") from error
        if len(data) > _MAX_BYTES:
            raise TokenizerFormatError(f"{source}: has more than {_MAX_BYTES:,} bytes, unpacked")
    try:
        header, *lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise TokenizerFormatError(f"{source}: not UTF-8: {error}") from error
    if not header.startswith(_HEADER):
        raise TokenizerFormatError(
            f"{source}: begins with {header[:60]!r}, and CLIP's merges with {_HEADER!r}"
        )
    seen = {*ALPHABET, *(character + _END_OF_WORD for character in ALPHABET)}
    merges: list[tuple[str, str]] = []
    for number, line in enumerate(islice(filter(None, map(str.strip, lines)), _MAX_MERGES), 2):
        left, _, right = line.partition(" ")
        if left not in seen or right not in seen or left.endswith(_END_OF_WORD):
            raise TokenizerFormatError(
                f"{source}, line {number}: two tokens made before are expected, not {line!r}"
            )
        merges.append((left, right))
        seen.add(left + right)
    return merges


def _build_definition(ids: dict[str, int], merges: list[tuple[str, str]]) -> dict[str, Any]:
    """Returns the `tokenizer.json` that transformers makes for CLIP, with a decoder for the ends of words."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": ids[name], "content": name, **flags, "special": True} for name in (START, END)
        ],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "NFC"},
                {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
                {"type": "Lowercase"},
            ],
        },
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": _PATTERN}, "behavior": "Removed", "invert": True},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            ],
        },
        "post_processor": {
            "type": "RobertaProcessing",
            "sep": [END, ids[END]],
            "cls": [START, ids[START]],
            "trim_offsets": False,
            "add_prefix_space": False,
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
                {"type": "Replace", "pattern": {"String": _END_OF_WORD}, "content": " "},
                {"type": "Replace", "pattern": {"Regex": _OUTER_WHITESPACE}, "content": ""},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": _END_OF_WORD,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": ids,
            "merges": merges,
        },
    }
