"""What a report is made of: kinds of text and tokenizers, each with a name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from tokjax.core.errors import InvalidArgumentError
from tokjax.core.utf8 import nbytes_of, to_characters
from tokjax.corpus.files import as_they_are
from tokjax.corpus.sources import Source, files_of
from tokjax.reports.records import TextSize

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokjax.core.utf8 import Text

Texts: TypeAlias = Source | Mapping[str, Source]
"""A source, or the name of each kind of text with its source."""
ONLY_KIND = "text"
"""The name of texts that are not told apart."""

_SPLIT_AT_ONCE = 1 << 16


def named_sources(texts: Texts) -> dict[str, Source]:
    """The kinds of text by name.

    Raises:
        InvalidArgumentError: a name that is none, a source that is none, or no kind at all.
    """
    sources = dict(texts) if isinstance(texts, Mapping) else {ONLY_KIND: texts}
    if not sources:
        raise InvalidArgumentError("texts is an empty mapping; pass {NAME: source}, or one source")
    _check_names("kind of text", sources)
    for source in sources.values():
        files_of(source)
    return sources


def named_tokenizers(tokenizer: Any, name: str, against: Mapping[str, Any] | None) -> dict[str, Any]:
    """All tokenizers by name, the one that a report is about first.

    Raises:
        InvalidArgumentError: a name that is none, or that stands twice.
    """
    if not isinstance(against, (Mapping, type(None))):
        raise InvalidArgumentError(
            f"against must map names to tokenizers, not be a {type(against).__name__}; "
            "pass {NAME: tokenizer}"
        )
    others = against or {}
    _check_names("tokenizer", [name, *others])
    if name in others:
        raise InvalidArgumentError(
            f"{name!r} names two tokenizers, one of them in against; pass name= for the first of them"
        )
    return {name: tokenizer, **others}


def nbytes_of_files(sources: Iterable[Source]) -> int | None:
    """How many bytes sources have, or `None` where one of them is not made of files."""
    by_source = list(map(files_of, sources))
    if None in by_source:
        return None
    return sum(file.nbytes for files in by_source if files is not None for file in as_they_are(files))


def size_of(documents: Iterable[Text]) -> TextSize:
    r"""How much text some documents are.

    >>> size_of(["naïve café", b"\xff\n"])
    TextSize(documents=2, nbytes=14, characters=12, words=3)
    """
    return sum(map(_size_of_one, documents), TextSize())


def _size_of_one(document: Text) -> TextSize:
    readable = to_characters(document)
    characters = len(document) if isinstance(document, str) else len(readable)
    return TextSize(1, nbytes_of(document), characters, _num_words(readable))


def _num_words(text: str) -> int:
    """`len(text.split())`, but a long text's words are never held all at once."""
    count = 0
    for start in range(0, len(text), _SPLIT_AT_ONCE):
        count += len(text[start : start + _SPLIT_AT_ONCE].split())
        cuts_a_word = start > 0 and not text[start - 1].isspace() and not text[start].isspace()
        count -= cuts_a_word
    return count


def _check_names(what: str, names: Iterable[object]) -> None:
    for name in names:
        if not isinstance(name, str) or not name:
            raise InvalidArgumentError(f"the name of a {what} must be a text, not {name!r}")
