"""Real text to measure on, from Debian packages and from this interpreter: `python -m benchmarks corpus DIR`.

English: the kernel's documentation and a dictionary. Several languages: manual pages. Code: Python files.
Packages are downloaded and unpacked, not installed. The same packages give the same files.
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

PACKAGES = {"en": ("linux-doc-6.1", "dict-gcide"), "multi": ("manpages-ja", "manpages-de", "manpages-fr")}
DICTIONARY_CHARACTERS = 4000
"""A dictionary is one file: it is cut into documents of so many characters."""
BODY = re.compile(r"<body.*?>(.*)</body>", re.DOTALL | re.IGNORECASE)
NOT_SHOWN = re.compile(r"<(script|style).*?</\1>", re.DOTALL | re.IGNORECASE)


def fetch_corpus(directory: Path, megabytes: float, say: Callable[[str], None]) -> list[Path]:
    """Write `en.txt`, `multi.txt`, `code.txt` and `large.txt`, documents joined by `<|endoftext|>`.

    Args:
        directory: where to.
        megabytes: of each text at most; of the large one, which has documents of all, five times as much.
        say: tells the user where it is.

    Returns:
        The files.

    Raises:
        InputError: a package can't be fetched.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise InputError(
            "texts are fetched as Debian packages, with apt-get and dpkg, which are not here; put *.txt "
            f"files with documents joined by {SEPARATOR} into a directory, and name it with --texts"
        )
    packages = directory / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    texts = {}
    for name, wanted in PACKAGES.items():
        roots = [download_package(package, packages, say) for package in wanted]
        texts[name] = [document for root in roots for document in iter_documents(root)]
    texts["code"] = list(iter_code_documents())
    texts["large"] = [document for documents in texts.values() for document in documents]
    limits = {name: int(megabytes * 1e6) * (5 if name == "large" else 1) for name in texts}
    return [write_documents(directory / f"{name}.txt", texts[name], limits[name]) for name in texts]


def download_package(package: str, directory: Path, say: Callable[[str], None]) -> Path:
    """The files of a Debian package, downloaded if they are not there."""
    target = directory / package
    if not target.exists():
        say(f"fetching {package}")
        _run(["apt-get", "download", "-q", package], directory)
        [archive] = directory.glob(f"{package}_*.deb")
        part = directory / f"{package}.part"
        _run(["dpkg", "-x", str(archive), str(part)], directory)
        part.rename(target)
    return target


def _run(command: list[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it says nothing"]
        raise InputError(f"{' '.join(command)} failed: {said[-1]}; try: apt-get update")


def iter_documents(root: Path) -> Iterator[str]:
    """The texts of a package."""
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        name = path.name.removesuffix(".gz")
        if name.endswith(".html"):
            yield strip_markup(read(path))
        elif name.endswith((".rst", ".txt")) or "man" in path.relative_to(root).parts:
            yield read(path)
        elif name.endswith(".dict.dz"):
            text, step = read(path), DICTIONARY_CHARACTERS
            yield from (text[start : start + step] for start in range(0, len(text), step))


def iter_code_documents() -> Iterator[str]:
    """The Python files of this interpreter and its packages."""
    roots = {Path(sysconfig.get_path(kind)) for kind in ("stdlib", "purelib")}
    for path in sorted({path for root in roots for path in root.rglob("*.py")}):
        yield read(path)


def read(path: Path) -> str:
    """The text of a file, which may be compressed; nothing of one that can't be read."""
    open_file = gzip.open if path.suffix in {".gz", ".dz"} else open
    try:
        with open_file(path, "rt", encoding="utf-8", errors="replace") as file:
            return str(file.read())
    except (OSError, EOFError, zlib.error):
        return ""


def strip_markup(page: str) -> str:
    """What a page of HTML says, its paragraphs kept apart."""
    found = BODY.search(page)
    text = NOT_SHOWN.sub("", found[1] if found else page)
    text = html.unescape(re.sub(r"<[^>]+>", "", text))
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", text)).strip()


def write_documents(path: Path, documents: Iterable[str], limit: int) -> Path:
    """Write documents in a mixed order that is always the same, until there are about that many bytes."""
    mixed = [document for document in documents if document.strip() and SEPARATOR not in document]
    random.Random(0).shuffle(mixed)
    size = 0
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        for i, document in enumerate(mixed):
            size += file.write((SEPARATOR * (i > 0) + document).encode("utf-8", "replace"))
            if size >= limit:
                break
    part.replace(path)
    return path
