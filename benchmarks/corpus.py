"""Download of real text, from Debian packages and from this interpreter: `python -m benchmarks corpus DIR`.

There are texts of ten kinds, such as prose, code, tables, word lists, and several languages and scripts; see
`PACKAGES`. The code is Python files. Packages are downloaded and unpacked, not installed. The result is
deterministic: the same packages give the same files.
"""

from __future__ import annotations

import gzip
import html
import random
import re
import shutil
import subprocess
import sysconfig
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.inputs import SEPARATOR, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

PACKAGES = {
    "en": ("linux-doc-6.1", "dict-gcide"),
    "multi": ("manpages-ja", "manpages-de", "manpages-fr"),
    "handbook": ("debian-handbook",),
    "wordnet": ("dict-wn",),
    "chinese": ("manpages-zh",),
    "russian": ("manpages-ru",),
    "hindi": ("libreoffice-help-hi",),
    "words": ("wamerican-insane", "wfrench", "wngerman"),
    "tables": ("unicode-data", "ieee-data"),
}
"""The Debian packages of each text."""
LARGE_SOURCES = ("en", "multi", "code")
"""The texts whose documents are in `large.txt`."""
DICTIONARY_CHARACTERS = 4000
"""Characters per document of a dictionary, which is one file and is split."""
BODY = re.compile(r"<body.*?>(.*)</body>", re.DOTALL | re.IGNORECASE)
INVISIBLE = re.compile(r"<(script|style).*?</\1>", re.DOTALL | re.IGNORECASE)


def fetch_corpus(directory: Path, megabytes: float, say: Callable[[str], None]) -> list[Path]:
    """Writes a file for each text of `PACKAGES`, `code.txt` and `large.txt`.

    Documents are joined by `<|endoftext|>`.

    Args:
        directory: directory of the files.
        megabytes: maximum size of each text, in MB. The limit of `large.txt`, which has the documents of
            `LARGE_SOURCES`, is five times as much.
        say: function that shows the current step to the user.

    Returns:
        The paths of the files.

    Raises:
        InputError: a package can't be downloaded.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise InputError(
            "texts are downloaded as Debian packages with apt-get and dpkg, which are not installed; "
            f"put *.txt files with documents joined by {SEPARATOR} into a directory, and pass it as --texts"
        )
    packages = directory / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    texts = {}
    for name, package_names in PACKAGES.items():
        roots = [download_package(package, packages, say) for package in package_names]
        texts[name] = [document for root in roots for document in iter_documents(root)]
    texts["code"] = list(iter_code_documents())
    texts["large"] = [document for name in LARGE_SOURCES for document in texts[name]]
    limits = {name: int(megabytes * 1e6) * (5 if name == "large" else 1) for name in texts}
    return [write_documents(directory / f"{name}.txt", texts[name], limits[name]) for name in texts]


def download_package(package: str, directory: Path, say: Callable[[str], None]) -> Path:
    """Downloads and unpacks a Debian package unless that was done before; returns its directory."""
    target = directory / package
    if not target.exists():
        say(f"downloading {package}")
        _run(["apt-get", "download", "-q", package], directory)
        [archive] = directory.glob(f"{package}_*.deb")
        partial = directory / f"{package}.part"
        _run(["dpkg", "-x", str(archive), str(partial)], directory)
        partial.rename(target)
    return target


def _run(command: list[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no error message"]
        raise InputError(f"{' '.join(command)} failed: {lines[-1]}; try: apt-get update")


def iter_documents(root: Path) -> Iterator[str]:
    """Yields the texts of an unpacked package: HTML, text files, manual pages, dictionaries, word lists."""
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        name = path.name.removesuffix(".gz")
        if name.endswith(".html"):
            yield strip_markup(read(path))
        elif name.endswith((".rst", ".txt")) or "man" in path.relative_to(root).parts:
            yield read(path)
        elif name.endswith(".dict.dz") or path.parent.name == "dict":
            text, step = read(path), DICTIONARY_CHARACTERS
            yield from (text[start : start + step] for start in range(0, len(text), step))


def iter_code_documents() -> Iterator[str]:
    """Yields the Python files of this interpreter and its packages."""
    roots = {Path(sysconfig.get_path(kind)) for kind in ("stdlib", "purelib")}
    for path in sorted({path for root in roots for path in root.rglob("*.py")}):
        yield read(path)


def read(path: Path) -> str:
    """Returns the text of a file, which may be compressed with gzip; `""` if it can't be read."""
    open_file = gzip.open if path.suffix in {".gz", ".dz"} else open
    try:
        with open_file(path, "rt", encoding="utf-8", errors="replace") as file:
            return str(file.read())
    except (OSError, EOFError, zlib.error):
        return ""


def strip_markup(page: str) -> str:
    """Returns the visible text of an HTML page, with an empty line between paragraphs."""
    match = BODY.search(page)
    text = INVISIBLE.sub("", match[1] if match else page)
    text = html.unescape(re.sub(r"<[^>]+>", "", text))
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", text)).strip()


def write_documents(path: Path, documents: Iterable[str], limit: int) -> Path:
    """Writes documents in a fixed pseudorandom order until the file has `limit` bytes; returns the path."""
    shuffled = [document for document in documents if document.strip() and SEPARATOR not in document]
    random.Random(0).shuffle(shuffled)
    size = 0
    partial = path.with_suffix(".part")
    with partial.open("wb") as file:
        for i, document in enumerate(shuffled):
            size += file.write((SEPARATOR * (i > 0) + document).encode("utf-8", "replace"))
            if size >= limit:
                break
    partial.replace(path)
    return path
