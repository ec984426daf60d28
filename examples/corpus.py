"""Texts that each machine with Python has, and those of the user; nothing of tokens."""

import hashlib
import inspect
import re
import sysconfig
from pathlib import Path

import tokjax

SEPARATOR = "<|endoftext|>"
FUNCTION = re.compile(r'^ *def (\w+\([^)]*\))[^\n]*:\n\s+[rR]?"""\s*(\S[^\n]*?)\s*(?:"""|\n)', re.MULTILINE)
SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idle_test", "encodings"}  # (the last: tables)
LABELS = {"func": "FUNCTION", "class": "CLASS", "meth": "METHOD", "attr": "ATTRIBUTE", "mod": "MODULE"}
LABELS |= {"exc": "EXCEPTION", "obj": "OBJECT", "data": "OBJECT"}
SHOWN = r"`(?:~[^`<]*\.|[~!.]*)(?P<name>[^\s`<.][^`<]*)[^`]*`"  # `~package.name`, `.name`, `words <name>`
MARKUP = re.compile(rf":(?:py:)?(?P<role>{'|'.join(LABELS)}):{SHOWN}")


def shuffle_paths(paths, root):
    """In an order that has nothing to do with their names, and is the same each time."""
    names = {path: path.relative_to(root).as_posix() for path in paths}
    return sorted(names, key=lambda path: hashlib.sha256(names[path].encode()).digest())


def find_standard_library():
    """The files of Python's own source, without its tests."""
    root = Path(sysconfig.get_path("stdlib"))
    return shuffle_paths(
        (p for p in root.rglob("*.py") if not SKIPPED & set(p.relative_to(root).parts)), root
    )


def count_nbytes(megabytes):
    if not 0 < megabytes < 1e9:
        raise tokjax.errors.InvalidArgumentError(
            f"megabytes is {megabytes}; pass how much text to read, such as 8"
        )
    return int(megabytes * 1e6)


def read_corpus(paths, megabytes):
    """Texts to train on, about that much, and held-out ones: every twentieth (of another file, from 20 on).

    Args:
        paths: text files; `SEPARATOR` ends a document. None for the standard library's source.
        megabytes: how much text to train on at most.
    """
    nbytes = count_nbytes(megabytes)
    texts = [
        text.decode("utf-8", "replace")
        for text in tokjax.corpus.read_documents(paths or find_standard_library(), SEPARATOR)
    ]
    if len(texts) < 20:  # a few long ones: cut them up
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
    return [part for text in texts for part in text.split("\n\n") if part.strip()]


def iter_described_functions(texts):
    """The signatures of functions in Python source, and the first lines of their docstrings."""
    return [function for text in texts for function in FUNCTION.findall(text)]


def iter_marked_docstrings(packages, limit):
    """Paragraphs of docstrings that mark a name as :func:`name` does, what they mark, and their files."""
    found = {}
    for path in shuffle_paths(packages.rglob("*.py"), packages):
        source = path.read_text("utf-8", "replace")
        for docstring in re.findall(r'"""(.*?)"""', source, re.DOTALL) if ":`" in source else []:
            marked = filter(MARKUP.search, inspect.cleandoc(docstring).split("\n\n"))
            found |= {paragraph: path for paragraph in marked if paragraph not in found}
        if len(found) >= limit:
            break
    return [(*remove_markup(paragraph), path) for paragraph, path in found.items()][:limit]


def remove_markup(paragraph):
    """What a reader sees, and the spans of 0-based characters that were marked."""
    text, spans, done = "", [], 0
    for match in MARKUP.finditer(paragraph):
        text += paragraph[done : match.start()]
        shown = match["name"].rstrip(" .\n")
        spans.append((len(text), len(text) + len(shown), LABELS[match["role"]]))
        text, done = text + shown, match.end()
    return text + paragraph[done:], spans
