"""GPT-2's two files: a table of tokens and ids, and a list of merges."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from tokjax.core.template import EMPTY_TEMPLATE
from tokjax.core.vocabulary import make_vocabulary
from tokjax.errors import InvalidArgumentError, TokenizerFormatError
from tokjax.formats.huggingface.adapter import HuggingFaceTokenizer, build_huggingface_tokenizer
from tokjax.formats.huggingface.definition import decode_byte_level_forms
from tokjax.formats.tokenizer_files import (
    as_path,
    parse_token_ids,
    read_companion_config,
    read_json_object,
    read_lines,
    resolve_roles,
)
from tokjax.models.byte_bpe import ByteLevelBPE, Normalizer, make_byte_level_bpe
from tokjax.models.format_errors import as_format_errors
from tokjax.pretokenize.bytes_to_unicode import map_bytes_to_unicode, map_unicode_to_bytes
from tokjax.pretokenize.patterns import make_pattern_splitter
from tokjax.pretokenize.special_tokens import check_comparisons

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_END_OF_TEXT = "<|endoftext|>"
_HEADER = "#version"
_END_OF_WORD = "a</w>"
_ADDED_FILE = "added_tokens.json"


def read_gpt2(
    vocab: str | os.PathLike[str],
    merges: str | os.PathLike[str],
    *,
    pattern: str = "gpt2",
    special_tokens: Sequence[str] | None = None,
    normalizer: Normalizer | Literal["auto"] | None = "auto",
    add_prefix_space: bool = False,
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = None,
    unk_token: str | None = None,
) -> ByteLevelBPE | HuggingFaceTokenizer:
    r"""Read `vocab.json` and `merges.txt`, or `encoder.json` and `vocab.bpe`, which are the same.

    The list of merges may begin with a line `#version: ...`; lines may end in `\r\n`, and empty ones at the
    end are passed over.

    Args:
        vocab: the file with the JSON object of tokens and ids.
        merges: the file with a pair of tokens in each line.
        pattern: how text is split, as in `byte_level_bpe`; the files do not say.
        special_tokens: which tokens are special. `None` for those with a role in the `tokenizer_config.json`
            or `special_tokens_map.json` beside `vocab`, and `<|endoftext|>`, as far as there are such tokens.
        normalizer: as in `byte_level_bpe`.
        add_prefix_space: whether a blank is put before text that does not begin with one; also where the
            `tokenizer_config.json` says so.
        bos_token: which special token begins a text; like the next three, as those files say, or else none.
        eos_token: which special token ends a text; `<|endoftext|>` if there is one and no other is named.
        pad_token: which special token pads a batch.
        unk_token: which special token stands for the unknown.

    Returns:
        A tokenizer that puts nothing around texts, as GPT-2's does; `with_template` changes that. If the
        vocabulary lacks some of the 256 bytes, it runs on the `tokenizers` library, and leaves these bytes
        out of texts, as transformers does.

    Raises:
        FileNotFoundError: there is no such file.
        InvalidArgumentError: an option makes no sense.
        TokenizerFormatError: a file is damaged, or is none of these, or the two do not belong together.
    """
    source = as_path(vocab)
    forms = parse_token_ids(read_json_object(source), str(source))
    companion = read_companion_config(source.parent)
    companion_roles = companion.roles
    _check_is_gpt2(source, forms, companion.config)
    add_prefix_space = bool(add_prefix_space or companion.config.get("add_prefix_space"))
    if special_tokens is None:
        named = (*companion_roles.values(), *companion.additional_special, _END_OF_TEXT)
        special_tokens = [name for name in dict.fromkeys(named) if name in forms]
    missing = [name for name in special_tokens if name not in forms]
    if missing:
        raise TokenizerFormatError(f"{source}: has no token {missing[0]!r}, which is to be special")
    special = {name: forms[name] for name in dict.fromkeys(special_tokens)}
    roles = resolve_roles(
        special,
        {"bos": bos_token, "eos": eos_token, "pad": pad_token, "unk": unk_token},
        {"eos": _END_OF_TEXT, **companion_roles},
    )
    with as_format_errors(str(source)):
        ordinary = decode_byte_level_forms({form: id_ for form, id_ in forms.items() if form not in special})
    pairs = read_merges(as_path(merges), ordinary)
    if any(bytes([byte]) not in ordinary for byte in range(256)):
        definition = _build_definition(
            forms, special, pairs, pattern, normalizer, add_prefix_space=add_prefix_space
        )
        named_roles = {role: name for role, name in roles.items() if name is not None}
        with as_format_errors(str(source)):
            return build_huggingface_tokenizer(
                definition, "its vocabulary does not hold every single byte", named_roles
            )
    with as_format_errors(str(source)):
        check_comparisons(special)
        table = make_vocabulary(ordinary, special, roles, EMPTY_TEMPLATE)
        return make_byte_level_bpe(
            table, pattern, normalizer, merges=pairs, add_prefix_space=add_prefix_space
        )


def _build_definition(
    forms: Mapping[str, int],
    special: Mapping[str, int],
    merges: Sequence[tuple[bytes, bytes]],
    pattern: str,
    normalizer: Normalizer | Literal["auto"] | None,
    *,
    add_prefix_space: bool,
) -> str:
    """Returns the `tokenizer.json` that transformers makes of the two files."""
    by_pattern = {"type": "Split", "pattern": {"Regex": make_pattern_splitter(pattern).expression}}
    split = [] if pattern == "gpt2" else [{**by_pattern, "behavior": "Isolated", "invert": False}]
    if split and add_prefix_space:  # (the library would put a space before every word)
        raise InvalidArgumentError(
            f"add_prefix_space=True with pattern={pattern!r} needs a vocabulary of every single byte"
        )
    byte_level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": not split}
    normalizes = normalizer == "nfc" or (normalizer == "auto" and pattern == "qwen2")
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    contents = {
        "version": "1.0",
        "added_tokens": [
            {"id": id_, "content": name, **flags, "special": True}
            for name, id_ in sorted(special.items(), key=lambda item: item[1])
        ],
        "normalizer": {"type": "NFC"} if normalizes else None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [*split, {**byte_level, "add_prefix_space": add_prefix_space}],
        },
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": dict(forms),
            "merges": [(map_bytes_to_unicode(left), map_bytes_to_unicode(right)) for left, right in merges],
        },
    }
    return json.dumps(contents, ensure_ascii=False)


def _check_is_gpt2(source: Path, forms: Mapping[str, int], config: Mapping[str, Any]) -> None:
    """Refuse tables of other tokenizers that are written alike, and tokens that stand in other files."""
    if _END_OF_WORD in forms:
        raise TokenizerFormatError(
            f"{source}: its words end in '</w>', so it is no byte-level BPE as GPT-2's; pass a tokenizer.json"
        )
    companion = source.parent / _ADDED_FILE
    added = read_json_object(companion) if companion.is_file() else {}
    listed = config.get("added_tokens_decoder")
    contents = listed.values() if isinstance(listed, dict) else ()
    names = [*added, *(token.get("content") for token in contents if isinstance(token, dict))]
    for name in names:
        if name not in forms:
            raise TokenizerFormatError(
                f"{source.parent}: adds the token {name!r}, which {source.name} does not hold; pass a "
                "tokenizer.json"
            )


def read_merges(path: Path, ordinary: Mapping[bytes, int]) -> list[tuple[bytes, bytes]]:
    """The pairs in a list of merges.

    Args:
        path: the file.
        ordinary: the tokens that there are.

    Raises:
        TokenizerFormatError: a line is no pair of tokens that make one, or stands twice.
    """
    lines = list(read_lines(path))
    if lines and lines[0][1].startswith(_HEADER):
        del lines[0]
    while lines and not lines[-1][1].strip():
        del lines[-1]
    line_numbers: dict[tuple[bytes, bytes], int] = {}
    for number, line in lines:
        where, parts = f"{path}, line {number}", line.split(" ")
        if len(parts) != 2 or not all(parts):
            raise TokenizerFormatError(
                f"{where}: two tokens with a blank between them are expected, not {line[:60]!r}"
            )
        pair = parse_pair(parts[0], parts[1], ordinary, where)
        if b"".join(pair) not in ordinary:
            raise TokenizerFormatError(f"{where}: {line!r} make {''.join(parts)!r}, which is no token")
        if pair in line_numbers:
            raise TokenizerFormatError(f"{where}: holds {line!r} once more, after line {line_numbers[pair]}")
        line_numbers[pair] = number
    return list(line_numbers)


def parse_pair(left: str, right: str, ordinary: Mapping[bytes, int], where: str) -> tuple[bytes, bytes]:
    """A pair of tokens that is written in stand-ins for bytes.

    Raises:
        TokenizerFormatError: one of them is no token.
    """
    tokens = map_unicode_to_bytes(left), map_unicode_to_bytes(right)
    for form, token in zip((left, right), tokens, strict=True):
        if token is None or token not in ordinary:
            raise TokenizerFormatError(f"{where}: {form!r} is no token of the vocabulary")
    return tokens  # type: ignore[return-value]
