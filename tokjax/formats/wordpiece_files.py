"""BERT's `vocab.txt`: a token in each line, whose number is its id."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tokjax.errors import Hint, TokenizerFormatError
from tokjax.formats.tokenizer_files import as_path, read_companion_config, read_lines
from tokjax.models.format_errors import as_format_errors, check_vocab_size
from tokjax.models.wordpiece import WordPieceTokenizer, wordpiece
from tokjax.pretokenize.special_tokens import check_comparisons

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

_RWKV = re.compile(r"""\d+ b?(['"]).*\1 \d+""")


def read_wordpiece(
    path: str | os.PathLike[str],
    *,
    special_tokens: Sequence[str] = (),
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
    handle_chinese_chars: bool | None = None,
    **options: Any,
) -> WordPieceTokenizer:
    r"""Read a `vocab.txt`. Lines may end in `\r\n`.

    Args:
        path: the file.
        special_tokens: as in `wordpiece`.
        lowercase: each character becomes its lower case. `None` for what the `tokenizer_config.json` beside
            the file says, or else yes, as for BERT, unless there are tokens that are not lower case.
        strip_accents: as in `wordpiece`; `None` for what that file says, or else as `lowercase` says.
        handle_chinese_chars: as in `wordpiece`; `None` for what that file says, or else yes.
        **options: the other options of `wordpiece`.

    Raises:
        FileNotFoundError: there is no such file.
        TokenizerFormatError: the file is no such vocabulary, or does not say whether it is one of lower case.
    """
    source = as_path(path)
    tokens: dict[str, int] = {}
    for number, token in read_lines(source):
        if number == 1 and _RWKV.fullmatch(token):
            raise TokenizerFormatError(
                f"{source}: a vocabulary of RWKV (lines of an id, a Python literal and a length), which is "
                "not supported; register a type of your own that wraps its tokenizer (docs/extending.md)"
            )
        if not token or token in tokens:
            what = "is empty" if not token else f"holds {token!r} once more, after line {tokens[token] + 1}"
            raise TokenizerFormatError(f"{source}, line {number}: {what}; each line is a token of its own")
        tokens[token] = number - 1
    check_vocab_size(len(tokens), str(source))
    companion = read_companion_config(source.parent)
    config = companion.config
    special_tokens = [*special_tokens, *(name for name in companion.additional_special if name in tokens)]
    options = {f"{role}_token": name for role, name in companion.roles.items() if name in tokens} | options
    if lowercase is None:
        lowercase = config.get("do_lower_case")
    if strip_accents is None:
        strip_accents = config.get("strip_accents")
    if handle_chinese_chars is None:
        handle_chinese_chars = config.get("tokenize_chinese_chars", True)
    if lowercase is None:
        lowercase = _is_lower_case(tokens, str(source))
    with as_format_errors(str(source)):
        check_comparisons(special_tokens)
        return wordpiece(
            tokens,
            special_tokens=list(dict.fromkeys(special_tokens)),
            lowercase=lowercase,
            strip_accents=strip_accents,
            handle_chinese_chars=bool(handle_chinese_chars),
            **options,
        )


def _is_lower_case(tokens: Mapping[str, int], where: str) -> bool:
    """True, if that loses no token: those in brackets are special."""
    for token in tokens:
        if token != token.lower() and not (token.startswith("[") and token.endswith("]")):
            raise TokenizerFormatError(
                f"{where}: does not say whether texts are made lower case, and has tokens such as {token!r}, "
                "which could not be then",
                hint=Hint(
                    "pass lowercase=False (or True)",
                    "put a tokenizer_config.json with do_lower_case beside it",
                ),
            )
    return True
