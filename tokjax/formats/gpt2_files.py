"""GPT-2's two files: a JSON file that maps tokens to ids, and a list of merges."""

from __future__ import annotations

from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from tokjax._util.atomic_files import check_path
from tokjax.core.template import EMPTY_TEMPLATE
from tokjax.core.vocabulary import TEMPLATE_ROLES, make_vocabulary
from tokjax.errors import InvalidArgumentError, TokenizerFormatError
from tokjax.formats.huggingface.byte_level_definition import build_split_steps
from tokjax.formats.huggingface.declared_tokens import merge_declared_tokens
from tokjax.formats.huggingface.definition import decode_byte_level_forms
from tokjax.formats.huggingface.export import build_template_step
from tokjax.formats.huggingface.tokenizer_json import build_tokenizer
from tokjax.formats.tokenizer_files import (
    make_template_of_each_text,
    parse_token_ids,
    read_companion_config,
    read_json_object,
    read_lines,
    resolve_roles,
)
from tokjax.formats.transformers_classes import find_tokenizer_class, reject_word_merges
from tokjax.models.byte_bpe import Normalizer, get_default_normalizer, make_byte_level_bpe
from tokjax.models.format_errors import as_format_errors
from tokjax.models.roles_and_templates import replace_roles
from tokjax.pretokenize.bytes_to_unicode import ALPHABET, map_bytes_to_unicode, map_unicode_to_bytes
from tokjax.pretokenize.special_tokens import check_comparisons

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from tokjax.core.template import Template
    from tokjax.core.vocabulary import Role
    from tokjax.formats.huggingface.adapter import HuggingFaceTokenizer
    from tokjax.formats.tokenizer_files import CompanionConfig
    from tokjax.models.base import SegmentModel
    from tokjax.pretokenize.patterns import Pattern

_END_OF_TEXT = "<|endoftext|>"
_GPT2 = "GPT2Tokenizer"
_HEADER = "#version"
_END_OF_WORD = "</w>"
_FLAGS = MappingProxyType(dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False))
_PATTERNS: Mapping[str | None, Pattern] = {"Qwen2Tokenizer": "qwen2", "Qwen3_5Tokenizer": "qwen3_5"}
"""Split patterns by class, if it is not that of GPT-2."""


def read_gpt2(
    vocab: str | os.PathLike[str],
    merges: str | os.PathLike[str],
    *,
    pattern: Pattern | None = None,
    special_tokens: Sequence[str] | None = None,
    normalizer: Normalizer | Literal["auto"] | None = "auto",
    add_prefix_space: bool = False,
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = None,
    unk_token: str | None = None,
) -> SegmentModel | HuggingFaceTokenizer:
    r"""Reads `vocab.json` and `merges.txt`, or `encoder.json` and `vocab.bpe`, which have the same contents.

    The list of merges may begin with a line `#version: ...`. Lines may end in `\r\n`. Empty lines at the end
    are ignored.

    Args:
        vocab: path of the JSON file that maps tokens to ids.
        merges: path of the file with one pair of tokens per line.
        pattern: split pattern, as in `byte_level_bpe`; the files do not contain it. `None` is `"qwen2"` or
            `"qwen3_5"` if a configuration file names that class, and otherwise `"gpt2"`.
        special_tokens: names of the special tokens. `None` uses `<|endoftext|>`, if it is in the vocabulary,
            and all special and added tokens that the configuration files in the directory of `vocab` declare.
            As beside a `tokenizer.json`, those that are not in the vocabulary get the next ids.
        normalizer: normalization of texts, as in `byte_level_bpe`.
        add_prefix_space: whether a space is added before text that does not begin with one. It is also added
            if the `tokenizer_config.json` sets `add_prefix_space`.
        bos_token: special token in the role of BOS. `None` uses the token that the configuration files name,
            if any; this also applies to the next three arguments.
        eos_token: special token in the role of EOS; if the files name none, `<|endoftext|>` if it exists.
        pad_token: special token that pads a batch.
        unk_token: special token for unknown text.

    Returns:
        A tokenizer that inserts no special tokens into texts, like GPT-2's, or BOS and EOS if the
        `tokenizer_config.json` sets `add_bos_token` and `add_eos_token`, like OPT's. Use `with_template`
        to insert others. If some of the 256 bytes are not in the vocabulary, the tokenizer runs on the
        `tokenizers` library and drops these bytes from texts, as transformers does. Added tokens that a
        built-in tokenizer can't match in the same way need the library, too.

    Raises:
        FileNotFoundError: a file does not exist.
        InvalidArgumentError: an option is invalid, or a role names a token that is not special.
        TokenizerFormatError: a file is damaged or in another format, the two files do not match, or the
            configuration names a class with other rules, such as RoBERTa's.
    """
    source = check_path(vocab)
    forms = parse_token_ids(read_json_object(source), str(source))
    companion = read_companion_config(source.parent)
    _check_is_gpt2(source, forms)
    class_name = find_tokenizer_class(source, companion.config)
    pattern = pattern or _PATTERNS.get(class_name, "gpt2")
    add_prefix_space = bool(add_prefix_space or companion.config.get("add_prefix_space"))
    role_names = _find_roles(class_name, companion)
    overrides: dict[Role, str | None] = {
        "bos": bos_token,
        "eos": eos_token,
        "pad": pad_token,
        "unk": unk_token,
    }
    usual_tokens = [*role_names.values(), _END_OF_TEXT]
    added_tokens = _list_added_tokens(source, forms, companion, usual_tokens, special_tokens)
    special = {entry["content"]: entry["id"] for entry in added_tokens if entry["special"]}
    ordinary, unreachable_ids = decode_byte_level_forms(
        {form: id_ for form, id_ in forms.items() if form not in special}
    )
    # Merges may have special tokens.
    special_forms = {form: id_ for form, id_ in forms.items() if form in special}
    pairs = _read_merges(check_path(merges), {**decode_byte_level_forms(special_forms)[0], **ordinary})
    present = {role: name for role, name in overrides.items() if name is not None}
    template = _make_template(companion.config, {**role_names, **present}, special)
    if not _is_like_gpt2(forms, ordinary, added_tokens, special, pairs):
        contents = _build_definition(
            forms, added_tokens, pairs, pattern, normalizer, add_prefix_space=add_prefix_space
        )
        if template != EMPTY_TEMPLATE:
            contents["post_processor"] = build_template_step(template, special)
        return replace_roles(build_tokenizer(None, contents, role_names, str(source)), overrides)
    with as_format_errors(str(source)):
        check_comparisons(special)
        vocabulary = make_vocabulary(
            ordinary,
            special,
            resolve_roles(special, overrides, role_names),
            template,
            unreachable_ids=unreachable_ids,
        )
        return make_byte_level_bpe(
            vocabulary, pattern, normalizer, merges=pairs, add_prefix_space=add_prefix_space
        )


def _find_roles(class_name: str | None, companion: CompanionConfig) -> dict[Role, str]:
    """Returns the names of the tokens with a role, which the class or the configuration files declare.

    GPT-2 has no CLS and SEP tokens that could become BOS and EOS.
    """
    roles: dict[Role, str] = {"eos": _END_OF_TEXT, **companion.declared_roles}
    if class_name == _GPT2 and companion.config.get("add_bos_token"):
        roles.setdefault("bos", _END_OF_TEXT)
    return roles


def _is_like_gpt2(
    forms: Mapping[str, int],
    ordinary: Mapping[bytes, int],
    added_tokens: Sequence[Mapping[str, Any]],
    special: Collection[str],
    merges: Sequence[tuple[bytes, bytes]],
) -> bool:
    """Returns whether all bytes are tokens, and added tokens are special, without options and not in merges.

    Args:
        forms: tokens of the vocabulary to their ids.
        ordinary: bytes of the ordinary tokens to their ids.
        added_tokens: added tokens, as in a `tokenizer.json`.
        special: names of the special tokens.
        merges: pairs of tokens.
    """
    return (
        all(entry == _make_entry(entry["content"], forms) for entry in added_tokens)
        and all(bytes([byte]) in ordinary for byte in range(256))
        and {*map(map_unicode_to_bytes, special)}.isdisjoint(chain(*merges, map(b"".join, merges)))
    )


def _list_added_tokens(
    source: Path,
    forms: Mapping[str, int],
    companion: CompanionConfig,
    usual_tokens: Sequence[str],
    special_tokens: Sequence[str] | None,
) -> list[dict[str, Any]]:
    """Returns the added tokens, as in a `tokenizer.json`.

    Args:
        source: path of the vocabulary.
        forms: tokens of the vocabulary.
        companion: settings from the configuration files in its directory.
        usual_tokens: names of tokens that are special if the vocabulary has them.
        special_tokens: names of the special tokens; `None` for those of the class and the files.
    """
    if special_tokens is not None:
        missing = [name for name in special_tokens if name not in forms]
        if missing:
            raise TokenizerFormatError(f"{source}: the special token {missing[0]!r} is not in the vocabulary")
        return [_make_entry(name, forms) for name in dict.fromkeys(special_tokens)]
    names = [name for name in dict.fromkeys(usual_tokens) if name in forms and name not in companion.special]
    usual = [_make_entry(name, forms) for name in names]
    contents = {"added_tokens": usual, "model": {"vocab": forms}}
    return merge_declared_tokens(contents, source, companion) or usual


def _make_entry(name: str, forms: Mapping[str, int]) -> dict[str, Any]:
    """Returns a special token without options, as in a `tokenizer.json`, with the id -1 if it is new."""
    return {"id": forms.get(name, -1), "content": name, **_FLAGS, "special": True}


def _build_definition(
    forms: Mapping[str, int],
    added_tokens: list[dict[str, Any]],
    merges: Sequence[tuple[bytes, bytes]],
    pattern: Pattern,
    normalizer: Normalizer | Literal["auto"] | None,
    *,
    add_prefix_space: bool,
) -> dict[str, Any]:
    """Builds the `tokenizer.json` that transformers uses for the two files, without a post-processor."""
    split = [] if pattern == "gpt2" else build_split_steps(pattern)
    if split and add_prefix_space:  # ByteLevel after Split would add a space before every pre-token
        raise InvalidArgumentError(
            f"add_prefix_space=True with pattern={pattern!r} needs a vocabulary with every single byte, and "
            "special tokens without options"
        )
    byte_level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": not split}
    if normalizer == "auto":
        normalizer = get_default_normalizer(pattern)
    return {
        "version": "1.0",
        "added_tokens": added_tokens,
        "normalizer": {"type": "NFC"} if normalizer else None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [*split, {**byte_level, "add_prefix_space": add_prefix_space}],
        },
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": dict(forms),
            "merges": [[map_bytes_to_unicode(left), map_bytes_to_unicode(right)] for left, right in merges],
        },
    }


def _make_template(
    config: Mapping[str, Any], names: Mapping[Role, str], special: Collection[str]
) -> Template:
    """Makes the template of classes like GPT-2's, with BOS and EOS if the configuration adds them.

    Args:
        config: contents of `tokenizer_config.json`.
        names: names of the tokens of the roles.
        special: names of the special tokens.
    """
    before, after = (
        [names[role]] if config.get(f"add_{role}_token") and names.get(role) in special else []
        for role in TEMPLATE_ROLES
    )
    return make_template_of_each_text(before, after)


def _check_is_gpt2(source: Path, forms: Mapping[str, int]) -> None:
    """Raises for files of a classic BPE, which look alike."""
    has_all_bytes = all(character in forms for character in ALPHABET)
    has_ends = any(character + _END_OF_WORD in forms for character in ALPHABET)
    if "a" + _END_OF_WORD in forms or (has_ends and not has_all_bytes):
        reject_word_merges(source)


def _read_merges(path: Path, ordinary: Mapping[bytes, int]) -> list[tuple[bytes, bytes]]:
    """Reads the pairs of a list of merges.

    Args:
        path: path of the file.
        ordinary: token bytes to id of the tokens that may occur in merges.

    Raises:
        TokenizerFormatError: a line is not a pair of tokens whose concatenation is a token, or is a
            duplicate.
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
                f"{where}: expected two tokens separated by a space, got {line[:60]!r}"
            )
        pair = _parse_pair(parts[0], parts[1], ordinary, where)
        if b"".join(pair) not in ordinary:
            raise TokenizerFormatError(
                f"{where}: {line!r} merges to {''.join(parts)!r}, which is not a token"
            )
        if pair in line_numbers:
            raise TokenizerFormatError(f"{where}: duplicate of {line!r} in line {line_numbers[pair]}")
        line_numbers[pair] = number
    return list(line_numbers)


def _parse_pair(left: str, right: str, ordinary: Mapping[bytes, int], where: str) -> tuple[bytes, bytes]:
    """Returns the bytes of two tokens that are written as `bytes_to_unicode` writes bytes.

    Raises:
        TokenizerFormatError: one of them is not a token.
    """
    tokens = map_unicode_to_bytes(left), map_unicode_to_bytes(right)
    for form, token in zip((left, right), tokens, strict=True):
        if token is None or token not in ordinary:
            raise TokenizerFormatError(f"{where}: {form!r} is not a token of the vocabulary")
    return tokens  # type: ignore[return-value]
