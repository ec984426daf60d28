"""Names of tokenizers: repositories of the Hugging Face hub, encodings of tiktoken, and URLs.

A string with a scheme is a name. Another string is a path if something exists there, or if it looks like one:

    "hf://Qwen/Qwen3-8B"                        repository, default revision
    "hf://Qwen/Qwen3-8B@main/tokenizer.json"    repository, revision, path of a file or directory in it
    "Qwen/Qwen3-8B", "Qwen/Qwen3-8B@main"       the same, unless the path exists
    "tiktoken://cl100k_base", "cl100k_base"     encoding
    "gpt2"                                      error: the name of a repository and of an encoding
    "s3://bucket/model"                         URL of a directory or a file, for fsspec
    "model/tokenizer.json", "./Qwen/Qwen3-8B"   path
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple
from urllib.parse import quote, unquote

from tokjax._util.atomic_files import expand_home
from tokjax._util.urls import is_url
from tokjax.errors import InvalidArgumentError, TokenizerNotFoundError
from tokjax.formats.tiktoken_files import ENCODINGS, describe_missing_ranks

HUB_SCHEME = "hf://"
TIKTOKEN_SCHEME = "tiktoken://"
_REPOSITORY = re.compile(
    r"(?!(?:datasets|spaces|kernels|buckets)/)(?P<repository>(?:\w[\w.-]*/)?\w[\w.-]*)"
    r"(?:@(?P<revision>refs/(?:pr|convert)/[\w.-]+|[^/@]+))?(?:/(?P<path>(?!.*\.\.)[^/@][^@]*?)/?)?",
    re.ASCII,
)
_HUB_PAGE = re.compile(
    r"https?://(?:www\.)?(?:huggingface\.co|hf\.co)/([\w.-]+/[\w.-]+)(?:/(?:tree|blob)/([^?#]+?))?/?(?:[?#].*)?",
    re.ASCII,
)
_FILE_NAME = re.compile(r"(?i).*\.(json|model(\.v\w+)?|txt|tiktoken|vocab|bpe|codes|gz|tsv)")
_HELP = (
    "a name is 'OWNER/NAME' or 'hf://OWNER/NAME@REVISION/PATH' for a repository of the Hugging Face hub "
    "(write a slash in a revision as %2F), or 'tiktoken://ENCODING'; URLs are accepted, too"
)
"""Description of names, for errors."""


class RepositoryName(NamedTuple):
    """Name of a repository of the Hugging Face hub.

    Attributes:
        text: name as it was passed.
        repository: owner and name, or only a name for a few old repositories.
        revision: branch, tag or commit.
        path: path of a file or directory in the repository; empty for the top directory.
    """

    text: str
    repository: str
    revision: str
    path: str

    def __str__(self) -> str:
        """Returns the name with its scheme and revision."""
        path = f"/{self.path}" if self.path else ""
        return f"{HUB_SCHEME}{self.repository}@{quote(self.revision, safe='')}{path}"


def is_file_name(text: str) -> bool:
    """Returns whether a string ends like the name of a tokenizer file, so that it does not name a repository.

    >>> is_file_name("model/tokenizer.json"), is_file_name("mistralai/Mistral-7B-v0.3")
    (True, False)
    """
    return _FILE_NAME.fullmatch(text) is not None


def parse_name(text: object) -> RepositoryName | str | None:
    """Parses the name of a tokenizer.

    Returns:
        The name of a repository; a URL, which is `tiktoken://` and a name for an encoding; `None` if the
        string is the path of an existing file or directory, or if `text` is not a string.

    Raises:
        InvalidArgumentError: the name of a repository is invalid, or the string is both the name of a
            repository and of an encoding, or the URL of a page of the Hugging Face hub.
        TokenizerNotFoundError: the string is a path at which there is no file.
    """
    if not isinstance(text, str):
        return None
    if text.startswith(HUB_SCHEME):
        name = _parse_repository(text, text.removeprefix(HUB_SCHEME).removeprefix("models/"))
        if name is None:
            raise InvalidArgumentError(
                f"{text!r} does not name a model of the Hugging Face hub; expected "
                "'hf://OWNER/NAME[@REVISION][/PATH]'"
            )
        return name
    if is_url(text):
        if page := _HUB_PAGE.fullmatch(text):
            name_to_pass = HUB_SCHEME + "@".join(filter(None, page.groups()))
            raise InvalidArgumentError(f"{text!r} is a page of the Hugging Face hub; pass {name_to_pass!r}")
        return text
    return None if os.path.exists(text) else _parse_short_form(text)  # noqa: PTH110 (long and empty names)


def _parse_short_form(text: str) -> RepositoryName | str:
    if text in ENCODINGS:
        return _check_encoding(text)
    name = _parse_repository(text, text)
    if name is None or name.path or is_file_name(text):
        expanded = expand_home(text)
        help_ = _HELP if expanded is None else f"~ is not expanded: pass {expanded!r}"
        raise TokenizerNotFoundError(f"{text[:200]!r}: no such file or directory, and not a name; {help_}")
    return name


def _parse_repository(text: str, name: str) -> RepositoryName | None:
    found = _REPOSITORY.fullmatch(name)
    if found is None:
        return None
    return RepositoryName(
        text, found["repository"], unquote(found["revision"] or "main"), found["path"] or ""
    )


def _check_encoding(text: str) -> str:
    """Returns the URL of an encoding that is named without a scheme."""
    if text == "gpt2":  # the only one that is also a repository
        raise InvalidArgumentError(
            "'gpt2' is an encoding of tiktoken and a repository of the Hugging Face hub; pass "
            f"'{TIKTOKEN_SCHEME}gpt2' or '{HUB_SCHEME}gpt2'"
        )
    if not ENCODINGS[text].in_tiktoken:
        raise TokenizerNotFoundError(
            f"{text!r}: no such file or directory, and {describe_missing_ranks(text)}, or "
            f"'{HUB_SCHEME}{text}' for a repository of this name"
        )
    return TIKTOKEN_SCHEME + text
