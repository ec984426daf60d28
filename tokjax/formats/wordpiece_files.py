"""BERT's `vocab.txt`: one token per line; the id of a token is its line number, from 0."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tokjax._util.atomic_files import check_path
from tokjax.errors import Hint, TokenizerFormatError
from tokjax.formats.huggingface.adapter import build_huggingface_tokenizer
from tokjax.formats.huggingface.built_in import check_special_words
from tokjax.formats.huggingface.definition import RequiresLibraryError
from tokjax.formats.huggingface.export import build_tokenizer_json
from tokjax.formats.huggingface.tokenizer_json import convert_files
from tokjax.formats.tokenizer_files import (
    BERT_ROLES,
    read_companion_config,
    read_lines,
)
from tokjax.formats.transformers_files import find_difference
from tokjax.models.format_errors import as_format_errors, check_vocab_size
from tokjax.models.vocabulary_changes import replace_roles
from tokjax.models.wordpiece import wordpiece
from tokjax.pretokenize.special_tokens import check_comparisons

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from tokjax.core.vocabulary import Role
    from tokjax.formats.huggingface.adapter import HuggingFaceTokenizer
    from tokjax.models.base import SegmentModel

_PLAIN = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "bert", "distilbert", "electra")
_RWKV = re.compile(r"""\d+ b?(['"]).*\1 \d+""")


def read_wordpiece(
    path: str | os.PathLike[str],
    roles: Mapping[Role, str | None],
    *,
    special_tokens: Sequence[str] = (),
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
    handle_chinese_chars: bool | None = None,
    **options: Any,
) -> SegmentModel | HuggingFaceTokenizer:
    r"""Reads a `vocab.txt`. Lines may end in `\r\n`.

    Settings that are not passed are read from the `tokenizer_config.json` in the same directory, if it
    exists. If it names a class that splits texts otherwise, or tokens that the vocabulary does not have,
    transformers reads the directory.

    Args:
        path: path of the file.
        roles: role to the name of a special token, as in `wordpiece`. Without a name, it is the one that the
            configuration has.
        special_tokens: names of additional special tokens, as in `wordpiece`.
        lowercase: whether texts are converted to lower case. `None` uses `do_lower_case` of the
            configuration. Without it, the value is `True` as for BERT, or an error if the vocabulary has
            tokens in upper case.
        strip_accents: whether nonspacing marks are removed. `None` uses `strip_accents` of the configuration,
            or else the value of `lowercase`.
        handle_chinese_chars: whether CJK ideographs are separate words. `None` uses `tokenize_chinese_chars`
            of the configuration, or else `True`.
        **options: other options of `wordpiece`.

    Returns:
        A tokenizer that runs on the `tokenizers` library if text can become a special token, such as `User`
        with lower case and the special token `user`; else a `WordPieceTokenizer`.

    Raises:
        FileNotFoundError: the file does not exist.
        MissingExtraError: the tokenizer has to run on the library, or transformers has to read the files,
            and it is not installed.
        TokenizerFormatError: the file is not such a vocabulary, or `lowercase` cannot be determined.
    """
    source = check_path(path)
    tokens: dict[str, int] = {}
    for number, token in read_lines(source):
        if number == 1 and _RWKV.fullmatch(token):
            raise TokenizerFormatError(
                f"{source}: a vocabulary of RWKV (lines of an id, a Python literal and a length), which is "
                "not supported; register a custom type that wraps its tokenizer (docs/extending.md)"
            )
        if not token or token in tokens:
            problem = "is empty" if not token else f"duplicate of {token!r} in line {tokens[token] + 1}"
            raise TokenizerFormatError(f"{source}, line {number}: {problem}; each line must be a new token")
        tokens[token] = number - 1
    check_vocab_size(len(tokens), str(source))
    companion = read_companion_config(source.parent)
    config = companion.config
    reason = find_difference(source, tokens, companion, _PLAIN)
    if reason is not None:
        return convert_files(
            {"vocab.txt": source},
            reason,
            tokens,
            roles,
            special_tokens=special_tokens or None,
            lowercase=lowercase,
            strip_accents=strip_accents,
            handle_chinese_chars=handle_chinese_chars,
            **options,
        )
    if lowercase is None:
        lowercase = config.get("do_lower_case")
    if lowercase is None:
        lowercase = _is_lower_case(tokens, str(source))
    declared = companion.roles
    special_tokens = [*special_tokens, *companion.special]
    # BERT inserts CLS and SEP, even if the configuration declares other tokens as BOS and EOS.
    cls_and_sep = {role: declared.get(other, f"[{other.upper()}]") for role, other in BERT_ROLES.items()}
    inserted = {**declared, **{role: name for role, name in cls_and_sep.items() if name in tokens}, **roles}
    names = {f"{role}_token": name for role, name in inserted.items() if role not in ("cls", "sep")}
    if strip_accents is None:
        strip_accents = config.get("strip_accents")
    if handle_chinese_chars is None:
        handle_chinese_chars = config.get("tokenize_chinese_chars", True)
    with as_format_errors(str(source)):
        check_comparisons({*special_tokens})
        tokenizer = wordpiece(
            tokens,
            special_tokens=list(dict.fromkeys(special_tokens)),
            lowercase=lowercase,
            strip_accents=strip_accents,
            handle_chinese_chars=bool(handle_chinese_chars),
            **(names | options),
        )
    tokenizer = replace_roles(tokenizer, {role: name for role, name in declared.items() if role not in roles})
    try:
        check_special_words(tokenizer.vocabulary, tokenizer.normalizer, "bert")
    except RequiresLibraryError as error:
        definition = json.dumps(build_tokenizer_json(tokenizer))
        return build_huggingface_tokenizer(definition, str(error), tokenizer.vocabulary.roles)
    return tokenizer


def _is_lower_case(tokens: Mapping[str, int], where: str) -> bool:
    """Returns `True` if all tokens are in lower case, otherwise raises.

    Tokens in brackets, such as `[UNK]`, are special and not checked. With `lowercase=True`, a token in upper
    case could never occur, so the vocabulary is then probably a cased one.

    Raises:
        TokenizerFormatError: a token is not in lower case.
    """
    for token in tokens:
        if token != token.lower() and not (token.startswith("[") and token.endswith("]")):
            raise TokenizerFormatError(
                f"{where}: it is unknown whether texts are converted to lower case, and the vocabulary has "
                f"tokens such as {token!r}, which could not occur then",
                hint=Hint(
                    "pass lowercase=False (or True)",
                    "put a tokenizer_config.json with do_lower_case into its directory",
                ),
            )
    return True
