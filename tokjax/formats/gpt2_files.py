"""GPT-2's two files: a JSON file that maps tokens to ids, and a list of merges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tokjax._util.atomic_files import check_path
from tokjax.core.template import EMPTY_TEMPLATE
from tokjax.core.vocabulary import TEMPLATE_ROLES, make_vocabulary
from tokjax.errors import TokenizerFormatError
from tokjax.formats.huggingface.definition import decode_byte_level_forms
from tokjax.formats.huggingface.tokenizer_json import convert_files
from tokjax.formats.tokenizer_files import (
    parse_token_ids,
    read_companion_config,
    read_json_object,
    read_merges,
    resolve_roles,
)
from tokjax.formats.transformers_files import find_difference
from tokjax.models.byte_bpe import ByteLevelBPE, Normalizer
from tokjax.models.format_errors import as_format_errors
from tokjax.models.word_bpe import END_OF_WORD
from tokjax.pretokenize.bytes_to_unicode import ALPHABET, BYTES, map_unicode_to_bytes
from tokjax.pretokenize.special_tokens import check_comparisons

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tokjax.core.vocabulary import Role
    from tokjax.formats.huggingface.adapter import HuggingFaceTokenizer
    from tokjax.models.base import SegmentModel
    from tokjax.pretokenize.patterns import Pattern

    BytePair = tuple[bytes, bytes]

_END_OF_TEXT = "<|endoftext|>"
_PLAIN = ("GPT2Tokenizer", "gpt2")


def read_gpt2(
    vocab: str | os.PathLike[str],
    merges: str | os.PathLike[str],
    roles: Mapping[Role, str | None],
    *,
    pattern: Pattern | None = None,
    special_tokens: Sequence[str] | None = None,
    normalizer: Normalizer | Literal["auto"] | None = "auto",
    add_prefix_space: bool = False,
) -> SegmentModel | HuggingFaceTokenizer:
    r"""Reads `vocab.json` and `merges.txt`, or `encoder.json` and `vocab.bpe`, which have the same contents.

    The list of merges may begin with a line `#version: ...`. Lines may end in `\r\n`. Empty lines at the end
    are ignored.

    Args:
        vocab: path of the JSON file that maps tokens to ids.
        merges: path of the file with one pair of tokens per line.
        roles: role to the name of a special token. Without a name, it is the token that the configuration
            files name, if any; for EOS, if they name none, `<|endoftext|>` if it exists.
        pattern: split pattern, as in `byte_level_bpe`; the files do not contain it. `None` is `"gpt2"`.
        special_tokens: names of the special tokens. `None` uses `<|endoftext|>`, if it is in the vocabulary,
            and those that the configuration files in the directory of `vocab` name.
        normalizer: normalization of texts, as in `byte_level_bpe`.
        add_prefix_space: whether a space is added before text that does not begin with one.

    Returns:
        A tokenizer that inserts no special tokens into texts, like GPT-2's. Use `with_template` to insert
        some. If the configuration files name another class than GPT-2's, or declare tokens that the
        vocabulary does not have, the tokenizer of transformers, converted.

    Raises:
        FileNotFoundError: a file does not exist.
        InvalidArgumentError: an option is invalid, or a role names a token that is not special.
        MissingExtraError: transformers has to read the files, and is not installed.
        TokenizerFormatError: a file is damaged or in another format, or the two files do not match.
    """
    source = check_path(vocab)
    forms = parse_token_ids(read_json_object(source), str(source))
    companion = read_companion_config(source.parent)
    reason = find_difference(source, forms, companion, _PLAIN, [_END_OF_TEXT], normalizes=False)
    if reason is None and any(companion.config.get(f"add_{role}_token") for role in TEMPLATE_ROLES):
        reason = "its configuration files set add_bos_token or add_eos_token"
    if reason is None and not companion.special.keys().isdisjoint(ALPHABET):
        reason = f"its configuration files declare a byte of {source.name} as special"
    if reason is not None:
        return convert_files(
            {"vocab.json": source, "merges.txt": check_path(merges)},
            reason,
            forms,
            roles,
            pattern=pattern,
            special_tokens=special_tokens,
            normalizer=None if normalizer == "auto" else str(normalizer),
            add_prefix_space=add_prefix_space or None,
        )
    _check_has_all_bytes(source, forms)
    if special_tokens is None:
        special_tokens = [name for name in (*companion.special, _END_OF_TEXT) if name in forms]
    missing = [name for name in special_tokens if name not in forms]
    if missing:
        raise TokenizerFormatError(f"{source}: the special token {missing[0]!r} is not in the vocabulary")
    special = {name: forms[name] for name in special_tokens}
    ordinary, unreachable_ids = decode_byte_level_forms(
        {form: id_ for form, id_ in forms.items() if form not in special}
    )
    pairs = _read_merges(check_path(merges), forms, ordinary)
    with as_format_errors(str(source)):
        check_comparisons(special)
        vocabulary = make_vocabulary(
            ordinary,
            special,
            resolve_roles(special, roles, {"eos": _END_OF_TEXT, **companion.declared_roles}),
            EMPTY_TEMPLATE,
            unreachable_ids=unreachable_ids,
        )
        return ByteLevelBPE(
            vocabulary, pattern or "gpt2", normalizer, merges=pairs, add_prefix_space=add_prefix_space
        )


def _check_has_all_bytes(source: Path, forms: Mapping[str, int]) -> None:
    """Raises `TokenizerFormatError` for a vocabulary that has no token for some byte."""
    if any(character + END_OF_WORD in forms for character in ALPHABET):
        raise TokenizerFormatError(
            f"{source}: has tokens that end in {END_OF_WORD!r}, as in CLIP and OpenAI's GPT, and no file "
            "says how texts are split into words; put the tokenizer_config.json beside it, or call "
            "tokjax.word_bpe(TOKENS, MERGES, splitter=...)"
        )
    missing = [byte for byte, character in zip(BYTES, ALPHABET, strict=True) if character not in forms]
    if missing:
        raise TokenizerFormatError(
            f"{source}: has no token for the byte 0x{missing[0]:02x}, as GPT-2's files have; put the "
            "tokenizer_config.json beside it, so that transformers can read it"
        )


def _read_merges(path: Path, forms: Mapping[str, int], ordinary: Mapping[bytes, int]) -> list[BytePair]:
    """Reads the pairs of a list of merges.

    Args:
        path: path of the file.
        forms: written form to id of all tokens.
        ordinary: token bytes to id of the tokens that may occur in merges.

    Raises:
        TokenizerFormatError: a line is not a pair of tokens whose concatenation is a token, or is a
            duplicate.
    """
    pairs = []
    for (left, right), number in read_merges(path, forms).items():
        pair = _parse_pair(left, right, ordinary, f"{path}, line {number}")
        if b"".join(pair) not in ordinary:
            raise TokenizerFormatError(
                f"{path}, line {number}: '{left} {right}' merges to {left + right!r}, which is not a token"
            )
        pairs.append(pair)
    return pairs


def _parse_pair(left: str, right: str, ordinary: Mapping[bytes, int], where: str) -> BytePair:
    """Returns the bytes of two tokens that are written as `bytes_to_unicode` writes bytes.

    Raises:
        TokenizerFormatError: one of them is not a token.
    """
    tokens = map_unicode_to_bytes(left), map_unicode_to_bytes(right)
    for form, token in zip((left, right), tokens, strict=True):
        if token is None or token not in ordinary:
            raise TokenizerFormatError(f"{where}: {form!r} is not a token of the vocabulary")
    return tokens  # type: ignore[return-value]
