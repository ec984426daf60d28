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

_REPOSITORY = r"(?P<repository>(?:\w[\w.-]*/)?\w[\w.-]*)"
_REVISION = r"(?:@(?P<revision>refs/(?:pr|convert)/[\w.-]+|[^/@]+))?"
_SHORT_FORM = re.compile(_REPOSITORY + _REVISION, re.ASCII)
_PATH = r"(?:/(?P<path>(?!.*\.\.)[^/@][^@]*?)/?)?"
_HUB_NAME = re.compile(
    r"hf://(?!(?:datasets|spaces|kernels|buckets)/)(?:models/)?" + _REPOSITORY + _REVISION + _PATH, re.ASCII
)
_HUB_SCHEME = "hf://"
_TIKTOKEN_SCHEME = "tiktoken://"
_HUB_PAGE = re.compile(
    r"https?://(?:www\.)?(?:huggingface\.co|hf\.co)/(?P<repository>[\w.-]+/[\w.-]+)"
    r"(?:/(?:tree|blob)/(?P<revision>[^/?#]+)(?P<path>/[^?#]*)?)?/?(?:[?#].*)?",
    re.ASCII,
)
_FILE_NAME = re.compile(r"(?i).*\.(json|model(\.v\w+)?|txt|tiktoken|vocab|bpe|codes|gz|tsv)")
DEFAULT_REVISION = "main"
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
    revision: str = DEFAULT_REVISION
    path: str = ""

    @property
    def has_scheme(self) -> bool:
        """Whether the name was passed with its scheme, so that it can't be a path."""
        return self.text.startswith(_HUB_SCHEME)

    def __str__(self) -> str:
        """Returns the name with its scheme and revision."""
        path = f"/{self.path}" if self.path else ""
        return f"{_HUB_SCHEME}{self.repository}@{quote(self.revision, safe='')}{path}"


class EncodingName(NamedTuple):
    """Name of an encoding of tiktoken.

    Attributes:
        encoding: name of the encoding.
    """

    encoding: str


class UrlName(NamedTuple):
    """URL of a file or directory.

    Attributes:
        url: the URL.
    """

    url: str


def is_file_name(text: str) -> bool:
    """Returns whether a string ends like the name of a tokenizer file, so that it does not name a repository.

    >>> is_file_name("model/tokenizer.json"), is_file_name("mistralai/Mistral-7B-v0.3")
    (True, False)
    """
    return _FILE_NAME.fullmatch(text) is not None


def parse_name(text: object) -> RepositoryName | EncodingName | UrlName | None:
    """Parses the name of a tokenizer.

    Returns:
        The name; `None` if the string is the path of an existing file or directory, or if `text` is not a
        string.

    Raises:
        InvalidArgumentError: the name of a repository is invalid, or the string is both the name of a
            repository and of an encoding, or the URL of a page of the Hugging Face hub.
        TokenizerNotFoundError: the string is a path at which there is no file.
    """
    if not isinstance(text, str):
        return None
    if text.startswith(_TIKTOKEN_SCHEME):
        return EncodingName(text.removeprefix(_TIKTOKEN_SCHEME))
    if text.startswith(_HUB_SCHEME):
        return _parse_repository(text)
    if is_url(text):
        _reject_page(text)
        return UrlName(text)
    return None if os.path.exists(text) else _parse_short_form(text)  # noqa: PTH110 (long and empty names)


def _reject_page(url: str) -> None:
    """Raises an error for the address of a page of the hub, as copied from a browser."""
    page = _HUB_PAGE.fullmatch(url)
    if page is not None:
        revision = f"@{page['revision']}" if page["revision"] else ""
        name = f"{_HUB_SCHEME}{page['repository']}{revision}{(page['path'] or '').rstrip('/')}"
        raise InvalidArgumentError(f"{url!r} is a page of the Hugging Face hub; pass {name!r}")


def _parse_short_form(text: str) -> RepositoryName | EncodingName:
    if text in ENCODINGS:
        return _get_encoding_name(text)
    found = _SHORT_FORM.fullmatch(text)
    if found is None or is_file_name(text):
        expanded = expand_home(text)
        help_ = _HELP if expanded is None else f"~ is not expanded: pass {expanded!r}"
        raise TokenizerNotFoundError(f"{text[:200]!r}: no such file or directory, and not a name; {help_}")
    return RepositoryName(text, found["repository"], unquote(found["revision"] or DEFAULT_REVISION))


def _parse_repository(text: str) -> RepositoryName:
    found = _HUB_NAME.fullmatch(text)
    if found is None:
        raise InvalidArgumentError(
            f"{text!r} does not name a model of the Hugging Face hub; expected "
            "'hf://OWNER/NAME[@REVISION][/PATH]'"
        )
    revision = unquote(found["revision"] or DEFAULT_REVISION)
    return RepositoryName(text, found["repository"], revision, found["path"] or "")


def _get_encoding_name(text: str) -> EncodingName:
    if text == "gpt2":  # the only one that is also a repository
        raise InvalidArgumentError(
            "'gpt2' is an encoding of tiktoken and a repository of the Hugging Face hub; pass "
            f"'{_TIKTOKEN_SCHEME}gpt2' or '{_HUB_SCHEME}gpt2'"
        )
    if not ENCODINGS[text].in_tiktoken:
        raise TokenizerNotFoundError(
            f"{text!r}: no such file or directory, and {describe_missing_ranks(text)}, or "
            f"'{_HUB_SCHEME}{text}' for a repository of this name"
        )
    return EncodingName(text)
