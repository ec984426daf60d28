"""CLIP's merge file, `bpe_simple_vocab_16e6.txt.gz`, and its `vocab.json` and `merges.txt` for transformers.

The merge file contains no vocabulary. The ids follow from the order of the merges: first the 256 bytes, then
the 256 bytes at the end of a word (`</w>`), then one token per merge, then the two special tokens.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any

from tokjax.errors import TokenizerFormatError
from tokjax.formats.added_tokens import read_added_special_tokens
from tokjax.formats.huggingface.adapter import HuggingFaceTokenizer, build_huggingface_tokenizer
from tokjax.formats.huggingface.decoders import OUTER_WHITESPACE
from tokjax.formats.tokenizer_files import (
    as_path,
    decompress_header,
    parse_token_ids,
    read_companion_config,
    read_decompressed,
    read_json_object,
)
from tokjax.formats.word_bpe_files import read_merges
from tokjax.models.format_errors import as_format_errors
from tokjax.models.roles_and_templates import with_roles
from tokjax.pretokenize.bytes_to_unicode import ALPHABET

if TYPE_CHECKING:
    import os
    from pathlib import Path

START, END = "<|startoftext|>", "<|endoftext|>"
_HEADER = '"bpe_simple_vocab_16e6.txt#version'
_END_OF_WORD = "</w>"
_MAX_MERGES = 48894
"""Number of merges that CLIP uses. With 2 x 256 byte tokens and 2 special tokens, it has 49,408 tokens. The
rest of the file is ignored."""
_PATTERN = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
_REASON = "its tokens mark the end of a word, and texts are converted to lower case"


def read_clip(
    path: str | os.PathLike[str],
    merges: str | os.PathLike[str] | None = None,
    *,
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = None,
) -> HuggingFaceTokenizer:
    """Reads CLIP's merge file, with or without gzip compression, or its `vocab.json` and `merges.txt`.

    The ids equal those of `CLIPTokenizer` in transformers. Texts are normalized to NFC and lower case, each
    run of whitespace becomes one space, and `<|startoftext|>` and `<|endoftext|>` are inserted around each
    text. OpenAI's original code also repairs texts with ftfy and unescapes HTML. If you need that, do it
    before encoding. The tokenizer runs on the `tokenizers` library.

    Args:
        path: path of `bpe_simple_vocab_16e6.txt.gz`, or of its decompressed contents, of which only the first
            48,894 merges are used; or path of `vocab.json`.
        merges: path of `merges.txt`, if `path` is that of `vocab.json`.
        bos_token: special token in the role of BOS; `None` for `<|startoftext|>`.
        eos_token: special token in the role of EOS; `None` for `<|endoftext|>`.
        pad_token: special token that pads a batch; `None` for `<|endoftext|>`.

    Raises:
        FileNotFoundError: the file does not exist.
        InvalidArgumentError: a role names a token that is not special.
        MissingExtraError: the `tokenizers` library is not installed.
        TokenizerFormatError: the file is damaged, or is not CLIP's merge file.
    """
    source = as_path(path)
    ids, pairs = _parse_merge_file(source) if merges is None else _parse_pair(source, as_path(merges))
    definition = json.dumps(_build_definition(ids, pairs), ensure_ascii=False)
    with as_format_errors(str(source)):
        tokenizer = build_huggingface_tokenizer(definition, _REASON, {"bos": START, "eos": END, "pad": END})
    return with_roles(tokenizer, bos_token=bos_token, eos_token=eos_token, pad_token=pad_token)


def is_clip_header(header: bytes) -> bool:
    """Returns whether the first bytes of a file are those of CLIP's merge file, compressed or not."""
    return decompress_header(header).startswith(_HEADER.encode("ascii"))


def _parse_merge_file(source: Path) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Returns token ids and merges of CLIP's merge file."""
    merges = _parse_merges(source)
    merged = ["".join(merge) for merge in merges]
    forms = [*ALPHABET, *(character + _END_OF_WORD for character in ALPHABET), *merged, START, END]
    ids = {form: id_ for id_, form in enumerate(forms)}
    if len(ids) < len(forms):
        raise TokenizerFormatError(
            f"{source}: two merges produce the same token, or one produces a special token"
        )
    return ids, merges


def _parse_pair(source: Path, merges_path: Path) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Returns token ids and merges of CLIP's `vocab.json` and `merges.txt`."""
    ids = parse_token_ids(read_json_object(source), str(source))
    companion = read_companion_config(source.parent)
    special = {*companion.special, *read_added_special_tokens(source, ids, companion)}
    if not {START, END} <= ids.keys() or not special <= {START, END}:
        raise TokenizerFormatError(
            f"{source}: expected the special tokens {START!r} and {END!r} and no others, as in CLIP; pass a "
            "tokenizer.json"
        )
    return ids, read_merges(merges_path, ids).pairs


def _parse_merges(source: Path) -> list[tuple[str, str]]:
    """Returns the first `_MAX_MERGES` pairs of the file, after a check that each part is a known token."""
    data = read_decompressed(source)
    try:
        header, *lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise TokenizerFormatError(f"{source}: not UTF-8: {error}") from error
    if not header.startswith(_HEADER):
        raise TokenizerFormatError(
            f"{source}: begins with {header[:60]!r}; CLIP's merge file begins with {_HEADER!r}"
        )
    tokens = {*ALPHABET, *(character + _END_OF_WORD for character in ALPHABET)}
    merges: list[tuple[str, str]] = []
    for number, line in enumerate(islice(filter(None, map(str.strip, lines)), _MAX_MERGES), 2):
        left, _, right = line.partition(" ")
        if left not in tokens or right not in tokens or left.endswith(_END_OF_WORD):
            raise TokenizerFormatError(
                f"{source}, line {number}: expected two tokens that exist before this line, got {line!r}"
            )
        merges.append((left, right))
        tokens.add(left + right)
    return merges


def _build_definition(ids: dict[str, int], merges: list[tuple[str, str]]) -> dict[str, Any]:
    """Builds the `tokenizer.json` that transformers uses for CLIP, with a decoder that removes `</w>`."""
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
                {"type": "Replace", "pattern": {"Regex": OUTER_WHITESPACE}, "content": ""},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": END,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": _END_OF_WORD,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": ids,
            "merges": merges,
        },
    }
