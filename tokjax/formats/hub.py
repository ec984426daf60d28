"""Download of tokenizer files from the Hugging Face hub, with the `huggingface_hub` library and its cache.

The library determines the endpoint, the token, offline mode and the location of the cache (`HF_ENDPOINT`,
`HF_TOKEN`, `HF_HUB_OFFLINE`, `HF_HUB_CACHE`). Only the files of one tokenizer are downloaded, selected by the
rules for directories:

    files of the repository         steps, all at the commit of the revision
    model.safetensors
    tokenizer_config.json     ──▶   1. download tokenizer_config.json
    special_tokens_map.json   ──▶   2. download special_tokens_map.json
    tokenizer.json            ──▶   3. download tokenizer.json
    tokenizer.model                 4. record the commit of the revision in the cache

After an interrupted download, the cache has no tokenizer for the commit, instead of one without its settings.
"""

from __future__ import annotations

import errno
import inspect
import logging
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokjax._util.imports import import_optional
from tokjax._util.limits import exceeds_limit
from tokjax.errors import (
    Hint,
    InvalidArgumentError,
    TokenizerFormatError,
    TokenizerNotFoundError,
    TokjaxError,
)
from tokjax.formats.detection import find_tokenizer_names, select_files
from tokjax.formats.tokenizer_files import CHAT_TEMPLATES_DIRECTORY, CONFIG_FILE
from tokjax.formats.tokjax_json import TOKENIZER_FILE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tokjax.formats.names import RepositoryName

_log = logging.getLogger("tokjax")

_MAIN_FILE = "tokenizer.json"
_WEIGHTS = (".bin", ".ckpt", ".gguf", ".h5", ".msgpack", ".npz", ".onnx", ".pt", ".pth", ".safetensors")
"""Ends of the names of files with the weights of models."""


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
    if not name.has_scheme:
        purpose = f"no file or directory {name.text!r} exists, and {purpose}"
    hub = import_optional("huggingface_hub", extra="hub", purpose=purpose)
    errors = import_optional("huggingface_hub.errors", extra="hub", purpose=purpose)
    import_optional("huggingface_hub.constants", extra="hub", purpose=purpose)  # so that the package has them
    try:
        return _download(hub, errors, name, *_list_files(hub, errors, name))
    except TokjaxError:
        raise
    except errors.HFValidationError as error:
        raise InvalidArgumentError(f"{name.text!r} is not the name of a repository: {error}") from error
    except (OSError, errors.HTTPError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of a disk, not of the network
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                error.add_note(
                    f"while files of {name} were written to the cache of huggingface_hub; set HF_HUB_CACHE "
                    "to a directory that is not read-only, or HF_HUB_OFFLINE=1 to use the files in the cache"
                )
            raise
        cached = None if isinstance(error, errors.RevisionNotFoundError) else _find_cached(hub, name)
        if cached is None:
            raise _describe_failure(hub, errors, name, error) from error
        if not isinstance(error, errors.OfflineModeIsEnabled):
            _log.warning("%s: using the files in the cache, since the hub failed: %s", name, _shorten(error))
        _warn_about_unknown_files(hub, name, cached)
        return cached


def check_hub_options(name: RepositoryName, options: Mapping[str, Any]) -> None:
    """Raises an error for an option of `from_pretrained` in transformers that the name or a setting replaces.

    Args:
        name: name of the repository.
        options: options of `load_tokenizer`.

    Raises:
        InvalidArgumentError: there is such an option.
    """
    calls = {
        "revision": f"pass {str(name._replace(revision=str(options.get('revision'))))!r}",
        "subfolder": f"pass {str(name._replace(path=str(options.get('subfolder'))))!r}",
        "token": "set HF_TOKEN, or run `hf auth login`",
        "cache_dir": "set HF_HUB_CACHE",
        "local_files_only": "set HF_HUB_OFFLINE=1",
    }
    for option, call in calls.items():
        if option in options:
            raise InvalidArgumentError(f"load_tokenizer has no option {option!r}; {call}")


def _list_files(hub: Any, errors: Any, name: RepositoryName) -> tuple[str, dict[str, int | None]]:
    """Returns the commit of the revision and the size of each file. Raises errors of `huggingface_hub`."""
    timeout = hub.constants.HF_HUB_ETAG_TIMEOUT  # that of hf_hub_download; model_info has none by default
    try:
        info = hub.HfApi().model_info(
            name.repository, revision=name.revision, files_metadata=True, timeout=timeout
        )
        return info.sha, {file.rfilename: file.size for file in info.siblings}
    except errors.HFValidationError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:  # as from the page of a login
        raise ConnectionError(f"its answer is not that of a hub: {_shorten(error)}") from error


def _download(
    hub: Any, errors: Any, name: RepositoryName, commit: str, sizes: Mapping[str, int | None]
) -> Path:
    """Downloads the files, and returns the path in the cache. Raises the errors of `huggingface_hub`."""
    files = _select_files(name, sizes)
    nbytes = sum(sizes[file] or 0 for file in files)
    if exceeded := exceeds_limit("file_bytes", nbytes):
        raise TokenizerFormatError(f"{name}: {', '.join(files)} have {nbytes:,} bytes; {exceeded}")
    paths = [_fetch_file(hub, name.repository, file, commit, sizes[file]) for file in files]
    prefix = files[-1].removesuffix(files[-1].rpartition("/")[2])
    for file in (f"{prefix}{_MAIN_FILE}", f"{prefix}{CONFIG_FILE}"):
        if file not in sizes and _is_unknown(hub, name.repository, commit, file):
            # The library records in the cache that there is no such file, which loads without the hub need.
            with suppress(OSError, errors.HTTPError):
                hub.hf_hub_download(name.repository, file, revision=commit)
    # Records the commit of the revision, which later loads without the hub need.
    hub.hf_hub_download(name.repository, files[-1], revision=name.revision)
    snapshot = paths[-1].parents[files[-1].count("/")]
    return snapshot / name.path


def _fetch_file(hub: Any, repository: str, file: str, commit: str, nbytes: int | None) -> Path:
    """Returns the path of a file in the cache. It is downloaded unless a file of the right size is there.

    The library compares the sizes of downloads, but not those of files that are in the cache.
    """
    options: dict[str, Any] = {"revision": commit}
    if nbytes is not None and "tqdm_class" in inspect.signature(hub.hf_hub_download).parameters:
        options["tqdm_class"] = _make_counter(hub, file, nbytes)
    path = Path(hub.hf_hub_download(repository, file, **options))
    if nbytes not in (None, path.stat().st_size):
        path = Path(hub.hf_hub_download(repository, file, force_download=True, **options))
    return path


def _make_counter(hub: Any, file: str, nbytes: int) -> type:
    """Returns a class for the progress of a download, which stops it after the announced number of bytes."""

    class Counter(hub.utils.tqdm):  # type: ignore[misc]
        received = 0.0

        def update(self, n: float | None = 1) -> Any:
            self.received += n or 0
            if self.received > nbytes:
                raise OSError(f"{file} has more than the {nbytes:,} bytes that the hub announced")
            return super().update(n)

    return Counter


def _select_files(name: RepositoryName, files: Collection[str]) -> list[str]:
    """Selects the files to download, the tokenizer itself last.

    Args:
        name: name of the repository.
        files: paths of all files in the repository.

    Raises:
        TokenizerFormatError: the name is that of a file with weights, or a directory without a tokenizer.
        TokenizerNotFoundError: there is no such file or directory.
    """
    is_file = name.path in files
    if is_file and name.path.endswith(_WEIGHTS):
        repository = str(name._replace(path=""))
        raise TokenizerFormatError(
            f"{name}: the file has weights, not a tokenizer; for that of the repository, pass {repository!r}"
        )
    directory = name.path.rpartition("/")[0] if is_file else name.path
    prefix = f"{directory}/" if directory else ""
    below = [file.removeprefix(prefix) for file in files if file.startswith(prefix)]
    present = sorted(file for file in below if "/" not in file)
    if not below:
        lacking = f"file or directory {name.path!r}" if name.path else "files"
        raise TokenizerNotFoundError(f"{name}: the repository has no {lacking}")
    if not is_file and not find_tokenizer_names(present):
        _suggest_directories(name, below)
    selected = select_files(present, name.path.rpartition("/")[2] if is_file else None, str(name))
    templates = [file for file in below if file.rpartition("/")[0] == CHAT_TEMPLATES_DIRECTORY]
    return [prefix + file for file in [*templates, *selected]]


def _suggest_directories(name: RepositoryName, files: Collection[str]) -> None:
    """Raises `TokenizerFormatError` if directories in that of a name have a tokenizer.

    Args:
        name: name of a directory of a repository.
        files: paths of the files in the directory.
    """
    present: dict[str, list[str]] = {}
    for file in files:
        directory, _, file_name = file.rpartition("/")
        present.setdefault(directory, []).append(file_name)
    found = [directory for directory in sorted(present) if find_tokenizer_names(present[directory])]
    if found:
        paths = ["/".join(filter(None, (name.path, directory))) for directory in found[:10]]
        names_to_pass = " or ".join(repr(str(name._replace(path=path))) for path in paths)
        raise TokenizerFormatError(
            f"{name}: no tokenizer in this directory, but in others: pass {names_to_pass}"
        )


def _find_cached(hub: Any, name: RepositoryName) -> Path | None:
    """Returns the path of the tokenizer in the cache, or `None` if the cache has none for the revision."""
    try:
        snapshot = hub.snapshot_download(
            name.repository, revision=name.revision, local_files_only=True, allow_patterns=[]
        )
    except FileNotFoundError:
        return None
    path = Path(snapshot, name.path)
    is_there = _find_cached_names(path) if path.is_dir() else path.exists()
    return path if is_there else None


def _find_cached_names(directory: Path) -> list[tuple[str, ...]]:
    # (links to files that were deleted are not counted)
    return find_tokenizer_names([entry.name for entry in directory.iterdir() if entry.exists()])


def _is_unknown(hub: Any, repository: str, revision: str, path: str) -> bool:
    """Returns whether the cache neither has a file nor knows that the repository has none."""
    return hub.try_to_load_from_cache(repository, path, revision=revision) is None


def _warn_about_unknown_files(hub: Any, name: RepositoryName, cached: Path) -> None:
    """Logs a warning if the repository may have a file that the cache lacks and that changes the tokenizer.

    The cache can have a part of the files, downloaded by another program or for the path of a file.
    """
    names = _find_cached_names(cached)[0] if cached.is_dir() else (cached.name,)
    if names == (TOKENIZER_FILE,) or (names != (_MAIN_FILE,) and not cached.is_dir()):
        return
    decisive = CONFIG_FILE if names == (_MAIN_FILE,) else _MAIN_FILE
    directory = name.path if cached.is_dir() else name.path.rpartition("/")[0]
    if _is_unknown(hub, name.repository, name.revision, f"{directory}/{decisive}".lstrip("/")):
        _log.warning(
            "%s: the cache has %s, but no %s; if the repository has one, the ids or the special tokens may "
            "differ: load the tokenizer once with a network",
            name,
            " and ".join(names),
            decisive,
        )


def _describe_failure(
    hub: Any, errors: Any, name: RepositoryName, error: Exception
) -> TokenizerNotFoundError:
    """Returns the error that explains why the files of a repository are not available.

    Args:
        hub: the module `huggingface_hub`.
        errors: the module `huggingface_hub.errors`.
        name: name of the repository.
        error: error of the library.
    """
    if isinstance(error, errors.LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    endpoint, cache = hub.constants.ENDPOINT, hub.constants.HF_HUB_CACHE
    repository = f"the repository {name.repository!r}"
    not_cached = f"its tokenizer at the revision {name.revision!r} is not in the cache {cache}"
    status = getattr(getattr(error, "response", None), "status_code", None)
    login = "run `hf auth login`, or set HF_TOKEN"
    if isinstance(error, errors.OfflineModeIsEnabled):
        cause = f"HF_HUB_OFFLINE is set, and {not_cached}"
        advice = "load it once without HF_HUB_OFFLINE, or pass the path of its files"
    elif isinstance(error, errors.GatedRepoError):
        cause = f"{repository} is gated, and access was denied"
        advice = f"accept its conditions at {endpoint}/{name.repository}, then {login}"
    elif isinstance(error, errors.RevisionNotFoundError):
        cause = f"{repository} has no revision {name.revision!r}"
        advice = f"pass a branch, tag or commit: {str(name._replace(revision='main'))!r}"
    elif isinstance(error, errors.RepositoryNotFoundError) or status == 404:
        cause = f"{endpoint} has no repository {name.repository!r}, or it is private"
        advice = f"check the name; for a private repository, {login}"
    elif status is not None:
        cause = f"{endpoint} answered with the status {status}, and {not_cached}: {_shorten(error)}"
        advice = f"the token may be invalid: {login}" if status in (401, 403) else "try again later"
    else:
        cause = f"{endpoint} can't be reached or did not send all files, and {not_cached}: {_shorten(error)}"
        advice = "check the network and HF_ENDPOINT, or pass the path of its files"
    where = "" if name.has_scheme else "no such file or directory, and "
    return TokenizerNotFoundError(f"{name.text!r}: {where}{cause}", hint=Hint(advice, advice))


def _shorten(error: Exception) -> str:
    """Returns the type of an error, and the first line of its message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]
