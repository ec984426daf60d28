"""Training bundles: directories with a tokenizer, and a record of how it was trained.

A bundle contains

* `tokenizer.tokjax.json`, as `save_tokenizer` writes it;
* `manifest.json`, written last, an object with these fields:
    * `"format"`: `"tokjax-training-bundle"`;
    * `"version"`: 2;
    * `"created"`: time in UTC, in ISO 8601;
    * `"options"`: name and options of the trainer;
    * `"merges"`: the two ids of each merge, in order, as a string; empty unless it is a byte-level BPE;
    * `"sources"`: path, size, modification time and SHA-256 of each source file; the SHA-256 is null if the
      file was deleted or changed before the bundle was written;
    * `"stats"`: statistics of the training text;
    * `"tokenizer"`: fingerprint of the tokenizer;
    * `"versions"`: versions of Python and of the libraries;
    * `"checksum"`: checksum of the object without this field, as in `tokjax_json`.
"""

from __future__ import annotations

import json
import platform
import re
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax._util.atomic_files import (
    DirectoryKind,
    NotRegularFileError,
    compute_file_sha256,
    compute_json_checksum,
    get_replaced_path,
    open_atomic_directory,
    read_regular,
    resolve,
    write_atomically,
)
from tokjax._util.display import short_repr
from tokjax._util.limits import parse_json
from tokjax._util.urls import reject_urls
from tokjax.core import protocol
from tokjax.corpus.files import SourceFile
from tokjax.errors import BundleError, BundleExistsError, TokenizerFormatError
from tokjax.formats.tokjax_json import TOKENIZER_FILE, read_tokjax, save_tokenizer
from tokjax.trainer.results import Trained, TrainingStats

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping


_FORMAT, _VERSION = "tokjax-training-bundle", 2
_MANIFEST = "manifest.json"
_LIBRARIES = ("tokjax", "numpy", "regex", "sentencepiece")


class BundleSource(NamedTuple):
    """A file that a vocabulary was trained on.

    Attributes:
        path: absolute path.
        nbytes: size in bytes when it was read.
        modified_ns: modification time when it was read, in nanoseconds since 1970.
        sha256: SHA-256 of its bytes, in hexadecimal; `None` if the file was deleted or changed before the
            bundle was written.
    """

    path: str
    nbytes: int
    modified_ns: int
    sha256: str | None


@short_repr
class TrainingBundle(NamedTuple):
    """A training bundle on disk.

    Attributes:
        path: path of the directory.
        trained: result of the trainer: tokenizer, statistics, options and, for BPE, merges.
        sources: source files; empty if the texts came from an iterable.
        created: time at which the bundle was written, in UTC, in ISO 8601.
        versions: name to version, of Python and of the libraries that made the bundle.
    """

    path: Path
    trained: Trained[Any]
    sources: tuple[BundleSource, ...]
    created: str
    versions: Mapping[str, str]


def save_training_bundle(
    trained: Trained[Any], path: str | os.PathLike[str], *, overwrite: bool = False
) -> TrainingBundle:
    """Writes the result of a trainer to a directory. The write is atomic.

    The source files are read once more, to compute their checksums.

    Args:
        trained: result of a `train_` function.
        path: path of the directory.
        overwrite: whether to replace an existing bundle.

    Returns:
        The bundle, as loaded from the directory.

    Raises:
        BundleExistsError: `path` exists and `overwrite` is `False`, or `path` contains files that are not of
            a bundle, or another process is writing it.
        InvalidArgumentError: `path` is a URL.
    """
    reject_urls(path)
    target = resolve(path)
    with open_atomic_directory(target, _BUNDLE, overwrite=overwrite) as directory:
        save_tokenizer(trained.tokenizer, directory / TOKENIZER_FILE)
        manifest = _build_manifest(trained)
        manifest["checksum"] = compute_json_checksum(manifest)
        data = json.dumps(manifest, indent=1).encode("ascii")
        write_atomically(directory / _MANIFEST, lambda file: file.write(data))
    return load_training_bundle(target)


def is_bundle(path: Path) -> bool:
    """Returns whether a directory has the files of a training bundle, which may be damaged."""
    return (path / _MANIFEST).is_file() and (path / TOKENIZER_FILE).is_file()


def load_training_bundle(path: str | os.PathLike[str]) -> TrainingBundle:
    """Loads a bundle that `save_training_bundle` wrote, and verifies all checksums.

    Raises:
        BundleError: `path` is not a bundle, a file of it is missing, damaged or altered, or this tokjax does
            not read its version.
    """
    directory = resolve(path)
    manifest = _read_manifest(directory)
    try:
        tokenizer: Any = read_tokjax(directory / TOKENIZER_FILE)
        if protocol.fingerprint(tokenizer) != manifest["tokenizer"]:
            raise ValueError(f"{TOKENIZER_FILE} is not the tokenizer of the manifest")
        merges = tuple(_parse_merges(manifest["merges"], tokenizer))
        sources = tuple(BundleSource(**source) for source in manifest["sources"])
        values = manifest["stats"] | {"notes": tuple(manifest["stats"]["notes"])}
        stats = TrainingStats(**values, files=tuple(SourceFile(*source[:3]) for source in sources))
        trained = Trained(tokenizer, stats, manifest["options"], merges)
        return TrainingBundle(directory, trained, sources, manifest["created"], manifest["versions"])
    except (TokenizerFormatError, OSError) as error:
        raise BundleError(f"{directory}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BundleError(f"{directory}: the values of the bundle are inconsistent: {error}") from error


def _read_manifest(directory: Path) -> dict[str, Any]:
    file = directory / _MANIFEST
    try:
        manifest = parse_json(read_regular(file))
    except (FileNotFoundError, NotADirectoryError):
        moved = get_replaced_path(directory)
        hint = (
            f"; its writer was killed while it replaced the bundle: run it again, or rename {moved.name} "
            f"to {directory.name}"
            if not directory.exists() and moved.exists()
            else ""
        )
        raise BundleError(f"{directory} is not a training bundle: it has no {_MANIFEST}{hint}") from None
    except NotRegularFileError:
        raise BundleError(f"{file}: is not a regular file") from None
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{file}: invalid or truncated JSON: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise BundleError(f"{file}: not the manifest of a training bundle")
    if manifest.get("version") != _VERSION:
        raise BundleError(
            f"{file}: has version {manifest.get('version')!r} of the format; this tokjax reads version "
            f"{_VERSION}"
        )
    stored = manifest.pop("checksum", None)
    if stored != compute_json_checksum(manifest):
        raise BundleError(f"{file}: altered or damaged: its contents do not have the checksum {stored!r}")
    return manifest


def _build_manifest(trained: Trained[Any]) -> dict[str, Any]:
    stats = asdict(trained.stats)
    del stats["files"]
    ids = trained.tokenizer.vocabulary.ordinary
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "options": dict(trained.options),
        "merges": [f"{ids[left]} {ids[right]}" for left, right in trained.merges],
        "sources": [_make_source(file)._asdict() for file in trained.stats.files],
        "stats": stats,
        "tokenizer": protocol.fingerprint(trained.tokenizer),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in _LIBRARIES},
    }


def _make_source(file: SourceFile) -> BundleSource:
    """Computes the SHA-256 of a source file, unless the file was changed or deleted after training."""
    path = Path(file.path)
    try:
        stat = path.stat()
        unchanged = (stat.st_size, stat.st_mtime_ns) == (file.nbytes, file.modified_ns)
        return BundleSource(*file, compute_file_sha256(path) if unchanged else None)
    except OSError:
        return BundleSource(*file, None)


def _parse_merges(merges: list[str], tokenizer: Any) -> Iterator[tuple[bytes, bytes]]:
    for merge in merges:
        left, right = map(int, merge.split())
        yield tokenizer.vocabulary.bytes_by_id[left], tokenizer.vocabulary.bytes_by_id[right]


_BUNDLE = DirectoryKind(
    "training bundle",
    _read_manifest,
    re.compile(r"manifest\.json|tokenizer\.tokjax\.json|\..*\.partial"),
    BundleExistsError,
)
