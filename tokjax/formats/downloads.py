"""Names of tokenizers, and download of their files: from the Hugging Face hub, and from URLs.

A string with a scheme is a name. Another string is a path if something exists there, or if it looks like one:

    "hf://Qwen/Qwen3-8B"                        repository, default revision
    "hf://Qwen/Qwen3-8B@main/tokenizer.json"    repository, revision, path of a file or directory in it
    "Qwen/Qwen3-8B", "Qwen/Qwen3-8B@main"       the same, unless the path exists
    "tiktoken://cl100k_base", "cl100k_base"     encoding
    "gpt2"                                      error: the name of a repository and of an encoding
    "s3://bucket/model"                         URL of a directory or a file, for fsspec
    "model/tokenizer.json", "./Qwen/Qwen3-8B"   path

`huggingface_hub` determines the endpoint, the token, offline mode and the location of its cache
(`HF_ENDPOINT`, `HF_TOKEN`, `HF_HUB_OFFLINE`, `HF_HUB_CACHE`). Only the files of one tokenizer are downloaded,
selected by the rules for directories:

    files of the repository         steps, all at the commit of the revision
    model.safetensors
    tokenizer_config.json     ──▶   1. download tokenizer_config.json
    special_tokens_map.json   ──▶   2. download special_tokens_map.json
    tokenizer.json            ──▶   3. download tokenizer.json
    tokenizer.model                 4. record the commit of the revision in the cache

After an interrupted download, the cache has no tokenizer for the commit, instead of one without its settings.

Files at a URL are copied to a temporary directory, with fsspec. A URL that ends in the name of a tokenizer
file is that of a file. It is copied with the other file of a pair and its configuration files, if they exist
beside it. Other URLs are those of directories. `cat_file` reports only files that do not exist as missing,
and raises another error if a server fails. Without its configuration files, a tokenizer would be another one.
"""

from __future__ import annotations

import inspect
import logging
import os
import re
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

from tokjax._util.atomic_files import expand_home
from tokjax._util.imports import import_optional
from tokjax._util.limits import exceeds_limit, get_limit
from tokjax._util.urls import get_file_system, is_url
from tokjax.errors import (
    Hint,
    InvalidArgumentError,
    TokenizerFormatError,
    TokenizerNotFoundError,
    TokjaxError,
)
from tokjax.formats.file_formats import find_tokenizers, list_candidates, select_files
from tokjax.formats.tiktoken_files import ENCODINGS, describe_missing_ranks
from tokjax.formats.tokenizer_files import CHAT_TEMPLATES_DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_log = logging.getLogger("tokjax")

_ADVICE = {
    "OfflineModeIsEnabled": "load it once without HF_HUB_OFFLINE, or pass the path of its files",
    "GatedRepoError": "accept its conditions at {page}, then run `hf auth login`, or set HF_TOKEN",
    "RevisionNotFoundError": "pass a branch, tag or commit: {main!r}",
    "RepositoryNotFoundError": "check the name; if it is private, run `hf auth login`, or set HF_TOKEN",
}
"""Advice for errors of `huggingface_hub`."""
_OTHER_ADVICE = "check the network, HF_ENDPOINT and HF_TOKEN, or pass the path of its files"
HUB_SCHEME = "hf://"
TIKTOKEN_SCHEME = "tiktoken://"
_REPOSITORY = re.compile(
    r"(?!(?:datasets|spaces|kernels|buckets)/)(?P<repository>(?:\w[\w.-]*/)?\w[\w.-]*)"
    r"(?:@(?P<revision>refs/(?:pr|convert)/[\w.-]+|[^/@]+))?(?:/(?P<path>(?!.*\.\.)[^/@][^@]*?)/?)?",
    re.ASCII,
)
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
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


@contextmanager
def open_files(path: Any) -> Iterator[Any]:
    """Makes the files of a tokenizer available for the time of a `with` block.

    Args:
        path: parsed name of a repository, a URL, or a path.

    Yields:
        Path of a file or directory; `path` itself if it is not a name.

    Raises:
        TokenizerFormatError: the files are not those of one tokenizer, or exceed the limit `file_bytes`.
        TokenizerNotFoundError: the files are not available.
    """
    if isinstance(path, RepositoryName):
        yield fetch_repository(path)
    elif isinstance(path, str) and "://" in path:
        with tempfile.TemporaryDirectory(prefix="tokjax-") as directory:
            try:
                yield _copy(path.rstrip("/"), Path(directory))
            except TokenizerFormatError as error:
                parent = path.rpartition("/")[0] if is_file_name(path) else path.rstrip("/")
                raise TokenizerFormatError(error.message.replace(directory, f"copy of {parent}")) from error
    else:
        yield path


def fetch_repository(name: RepositoryName) -> Path:
    """Downloads the tokenizer files of a repository to the cache, unless they are there.

    If the hub can't be reached or denies access, the files in the cache are used, as `huggingface_hub` does.

    Args:
        name: name of the repository, with a revision and a path in it.

    Returns:
        Path of the directory in the cache that has the files; path of the file for a name with the path of a
        file.

    Raises:
        InvalidArgumentError: the name of the repository is invalid.
        MissingExtraError: `huggingface_hub` is not installed.
        TokenizerFormatError: the repository has no tokenizer, or several of one format, or a file exceeds the
            limit `file_bytes`.
        TokenizerNotFoundError: there is no such repository, revision or path, or access is denied, or the hub
            can't be reached and the cache does not have the files. The message says which.
    """
    purpose = f"loading {name.text!r} from the Hugging Face hub"
    if not name.text.startswith(HUB_SCHEME):
        purpose = f"no file or directory {name.text!r} exists, and {purpose}"
    hub = import_optional("huggingface_hub", extra="hub", purpose=purpose)
    for module in ("errors", "constants"):  # so that the package has them
        import_optional(f"huggingface_hub.{module}", extra="hub", purpose=purpose)
    try:
        return _download(hub, name)
    except TokjaxError:
        raise
    except hub.errors.HFValidationError as error:
        raise InvalidArgumentError(f"{name.text!r} is not the name of a repository: {error}") from error
    except Exception as error:  # also of the answer of a login page, which is not that of a hub
        if isinstance(error, OSError) and error.errno is not None:  # of a disk, not of the network
            error.add_note(
                f"while files of {name} were written to the cache of huggingface_hub; set HF_HUB_CACHE to "
                "a directory that can be written, or HF_HUB_OFFLINE=1 to use the files in the cache"
            )
            raise
        return _find_cached(hub, name, error)


def _download(hub: Any, name: RepositoryName) -> Path:
    """Downloads the files, and returns the path in the cache. Raises the errors of `huggingface_hub`."""
    timeout = hub.constants.HF_HUB_ETAG_TIMEOUT  # that of hf_hub_download; model_info has none by default
    info = hub.HfApi().model_info(
        name.repository, revision=name.revision, files_metadata=True, timeout=timeout
    )
    sizes = {file.rfilename: file.size for file in info.siblings}
    files = _select_files(name, sizes)
    nbytes = sum(sizes[file] or 0 for file in files)
    if exceeded := exceeds_limit("file_bytes", nbytes):
        raise TokenizerFormatError(f"{name}: {', '.join(files)} have {nbytes:,} bytes; {exceeded}")
    if not _COMMIT.fullmatch(info.sha or ""):  # the library makes a path of it
        raise TokenizerNotFoundError(f"{name}: the hub answers with {info.sha!r:.80}, which is no commit")
    # At last by its revision: this records the commit, which later loads without the hub need.
    for file, revision in [*((file, info.sha) for file in files), (files[-1], name.revision)]:
        path = _fetch_file(hub, name.repository, file, revision, sizes[file])
    return path.parents[files[-1].count("/")] / name.path


def _fetch_file(hub: Any, repository: str, file: str, revision: str, nbytes: int | None) -> Path:
    """Returns the path of a file in the cache. It is downloaded unless a file of the right size is there.

    The library compares the sizes of downloads, but not those of files that are in the cache.
    """
    options: dict[str, Any] = {"revision": revision}
    if "tqdm_class" in inspect.signature(hub.hf_hub_download).parameters:
        options["tqdm_class"] = _make_counter(hub, file, nbytes)
    path = Path(hub.hf_hub_download(repository, file, **options))
    if nbytes not in (None, path.stat().st_size):
        path = Path(hub.hf_hub_download(repository, file, force_download=True, **options))
    return path


def _make_counter(hub: Any, file: str, nbytes: int | None) -> type:
    """Returns a class for the progress of a download, which stops it after the announced number of bytes.

    If the hub announces none, the limit `file_bytes` applies.
    """
    maximum = get_limit("file_bytes") if nbytes is None else nbytes

    class Counter(hub.utils.tqdm):  # type: ignore[misc]
        received = 0.0

        def update(self, n: float | None = 1) -> Any:
            self.received += n or 0
            if self.received > maximum:
                which = "of the limit file_bytes" if nbytes is None else "that the hub announced"
                raise OSError(f"{file} has more than the {maximum:,} bytes {which}")
            return super().update(n)

    return Counter


def _select_files(name: RepositoryName, files: Collection[str]) -> list[str]:
    """Selects the files to download, the tokenizer itself last.

    Args:
        name: name of the repository.
        files: paths of all files in the repository.

    Raises:
        TokenizerFormatError: the name is that of a directory without a tokenizer.
        TokenizerNotFoundError: there is no such file or directory.
    """
    is_file = name.path in files
    directory, _, file = name.path.rpartition("/") if is_file else (name.path, "", None)
    prefix = f"{directory}/" if directory else ""
    below = [path.removeprefix(prefix) for path in files if path.startswith(prefix)]
    if not below:
        lacking = f"file or directory {name.path!r}" if name.path else "files"
        raise TokenizerNotFoundError(f"{name}: the repository has no {lacking}")
    if not is_file and (others := _find_directories(below)) and "" not in others:
        names_to_pass = " or ".join(repr(str(name._replace(path=prefix + other))) for other in others[:10])
        raise TokenizerFormatError(
            f"{name}: no tokenizer in this directory, but in others: pass {names_to_pass}"
        )
    present = [path for path in below if "/" not in path]
    templates = [path for path in below if path.rpartition("/")[0] == CHAT_TEMPLATES_DIRECTORY]
    return [prefix + path for path in (*templates, *select_files(present, file, str(name)))]


def _find_directories(files: Collection[str]) -> list[str]:
    """Returns the directories that have a tokenizer, among those of files."""
    present: dict[str, list[str]] = {}
    for file in files:
        directory, _, file_name = file.rpartition("/")
        present.setdefault(directory, []).append(file_name)
    return [directory for directory in sorted(present) if find_tokenizers(present[directory])]


def _find_cached(hub: Any, name: RepositoryName, error: Exception) -> Path:
    """Returns the path of the tokenizer in the cache.

    Args:
        hub: the module `huggingface_hub`.
        name: name of the repository.
        error: why the files can't be downloaded.

    Raises:
        TokenizerNotFoundError: the cache has no tokenizer for the revision.
    """
    names: list[str] = []
    with suppress(FileNotFoundError):
        snapshot = hub.snapshot_download(
            name.repository, revision=name.revision, local_files_only=True, allow_patterns=[]
        )
        path = Path(snapshot, name.path)
        # (links to files that were deleted are not counted)
        names = [file.name for file in (path.iterdir() if path.is_dir() else [path]) if file.exists()]
        if path.is_dir():
            names = [" and ".join(found) for _, found in find_tokenizers(names)]
    if not names or isinstance(error, hub.errors.RevisionNotFoundError):
        raise _describe_failure(hub, name, error) from error
    if not isinstance(error, hub.errors.OfflineModeIsEnabled):
        _log.warning("%s: using %s in the cache, since the hub failed: %s", name, names[0], _shorten(error))
    return path


def _describe_failure(hub: Any, name: RepositoryName, error: Exception) -> TokenizerNotFoundError:
    """Returns the error that explains why the files of a repository are not available."""
    if isinstance(error, hub.errors.LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    endpoint = hub.constants.ENDPOINT
    advice = _ADVICE.get(type(error).__name__, _OTHER_ADVICE).format(
        page=f"{endpoint}/{name.repository}", main=str(name._replace(revision="main"))
    )
    where = "" if name.text.startswith(HUB_SCHEME) else "no such file or directory, and "
    return TokenizerNotFoundError(
        f"{name.text!r}: {where}{endpoint} failed with {_shorten(error)}, and its tokenizer at the revision "
        f"{name.revision!r} is not in the cache {hub.constants.HF_HUB_CACHE}",
        hint=Hint(advice, advice),
    )


def _shorten(error: Exception) -> str:
    """Returns the type of an error, and the beginning of its message in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300].rstrip(".")


def _copy(url: str, directory: Path) -> Path:
    """Copies the files of a tokenizer to a directory, and returns the path of the file or directory.

    Raises:
        TokenizerFormatError: the files exceed the limit `file_bytes`, or there is no tokenizer.
        TokenizerNotFoundError: the URL can't be read.
    """
    parent, _, last = url.rpartition("/")
    file = last if is_file_name(last) else None
    nbytes, limit = 0, int(get_limit("file_bytes"))
    try:
        system, root = get_file_system(parent if file else url)
        present = [] if file else [Path(path).name for path in system.ls(root, detail=False)]
        names = list_candidates(file) if file else select_files(present, None, url)
        for name in names:
            try:
                data = system.cat_file(f"{root}/{name}", start=0, end=limit - nbytes + 1)
            except FileNotFoundError:
                if file in (None, name):
                    raise
                continue
            nbytes += len(data)
            if exceeded := exceeds_limit("file_bytes", nbytes):
                raise TokenizerFormatError(f"{url}: the files have at least {nbytes:,} bytes; {exceeded}")
            (directory / name).write_bytes(data)
    except TokjaxError:
        raise
    except Exception as error:  # file systems have exceptions of many libraries
        raise TokenizerNotFoundError(f"{url} can't be read: {type(error).__name__}: {error}") from error
    return directory / file if file else directory
