"""Texts for the examples: files of the user, or the source code of Python, which every machine has."""

import hashlib
import inspect
import re
import sysconfig
from pathlib import Path

import tokjax

SEPARATOR = "<|endoftext|>"
FUNCTION = re.compile(r'^ *def (\w+\([^)]*\))[^\n]*:\n\s+[rR]?"""\s*(\S[^\n]*?)\s*(?:"""|\n)', re.MULTILINE)
SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idle_test", "encodings"}  # encodings: tables
LABELS = {"func": "FUNCTION", "class": "CLASS", "meth": "METHOD", "attr": "ATTRIBUTE", "mod": "MODULE"}
LABELS |= {"exc": "EXCEPTION", "obj": "OBJECT", "data": "OBJECT"}
TARGET = r"`(?:~[^`<]*\.|[~!.]*)(?P<name>[^\s`<.][^`<]*)[^`]*`"  # `~package.name`, `.name`, `title <name>`
MARKUP = re.compile(rf":(?:py:)?(?P<role>{'|'.join(LABELS)}):{TARGET}")


def shuffle_paths(paths, root):
    """Returns paths in a fixed pseudorandom order: sorted by a hash of their names relative to `root`."""
    names = {path: path.relative_to(root).as_posix() for path in paths}
    return sorted(names, key=lambda path: hashlib.sha256(names[path].encode()).digest())


def find_standard_library():
    """Returns the source files of the standard library, without its tests."""
    root = Path(sysconfig.get_path("stdlib"))
    return shuffle_paths(
        (p for p in root.rglob("*.py") if not SKIPPED & set(p.relative_to(root).parts)), root
    )


def count_nbytes(megabytes):
    """Converts MB to bytes. Raises an error unless the number is positive and finite."""
    if not 0 < megabytes < 1e9:
        raise tokjax.errors.InvalidArgumentError(
            f"megabytes is {megabytes}; pass the amount of text to read, such as 8"
        )
    return int(megabytes * 1e6)


def read_corpus(paths, megabytes):
    """Returns texts to train on, and held-out texts.

    Every twentieth document is held out, at most 50, of which the first 20,000 characters are used. If there
    are fewer than 20 documents, they are first split into parts of 20,000 characters.

    Args:
        paths: text files, in which `SEPARATOR` ends a document; an empty list for the standard library.
        megabytes: amount of text to train on, in MB. The last document may exceed it.
    """
    nbytes = count_nbytes(megabytes)
    texts = [
        text.decode("utf-8", "replace")
        for text in tokjax.corpus.read_documents(paths or find_standard_library(), SEPARATOR)
    ]
    if len(texts) < 20:  # too few to hold out one in twenty
        texts = [text[i : i + 20_000] for text in texts for i in range(0, len(text), 20_000)]
    train, size = [], 0
    for i, text in enumerate(texts):
        if i % 20 and size < nbytes:
            train.append(text)
            size += len(text.encode("utf-8", "replace"))
    held_out = [text[:20_000] for text in texts[::20][:50]]
    if not train or not held_out:
        raise tokjax.errors.InvalidArgumentError("the corpus is too small: it needs at least two documents")
    return train, held_out


def split_paragraphs(texts):
    """Returns the paragraphs of all texts, which empty lines separate."""
    return [part for text in texts for part in text.split("\n\n") if part.strip()]


def iter_described_functions(texts):
    """Returns the signature and the first line of the docstring of each function in Python source."""
    return [function for text in texts for function in FUNCTION.findall(text)]


def iter_marked_docstrings(packages, limit):
    """Returns paragraphs of docstrings that have a cross-reference such as :func:`name`, without the markup.

    Args:
        packages: directory of Python packages.
        limit: maximum number of paragraphs.

    Returns:
        A list of tuples: the text, the spans of the names as in `remove_markup`, and the path of the file.
    """
    path_by_paragraph = {}
    for path in shuffle_paths(packages.rglob("*.py"), packages):
        source = path.read_text("utf-8", "replace")
        for docstring in re.findall(r'"""(.*?)"""', source, re.DOTALL) if ":`" in source else []:
            marked = filter(MARKUP.search, inspect.cleandoc(docstring).split("\n\n"))
            path_by_paragraph |= {part: path for part in marked if part not in path_by_paragraph}
        if len(path_by_paragraph) >= limit:
            break
    return [(*remove_markup(paragraph), path) for paragraph, path in path_by_paragraph.items()][:limit]


def remove_markup(paragraph):
    """Returns the text without markup, and the names as `(start, stop, label)` in 0-based characters."""
    text, spans, end = "", [], 0
    for match in MARKUP.finditer(paragraph):
        text += paragraph[end : match.start()]
        name = match["name"].rstrip(" .\n")
        spans.append((len(text), len(text) + len(name), LABELS[match["role"]]))
        text, end = text + name, match.end()
    return text + paragraph[end:], spans
