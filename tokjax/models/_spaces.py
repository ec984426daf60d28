"""Blanks that a tokenizer puts before texts, or leaves out of spans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from tokjax.models._assembly import Corrections
from tokjax.text.special import WHITE_SPACE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.models._assembly import EncodedSegments
    from tokjax.models.engine.chunks import Segments
    from tokjax.vocabulary import Vocabulary

Trim = Literal["all", "but_first"]
TRIMS: tuple[Trim | None, ...] = ("all", "but_first", None)


def with_prefix_spaces(segments: Segments) -> Segments:
    """Segments with a blank before each, unless it begins with one, or is empty."""
    texts = [text if not text or text.startswith(" ") else " " + text for text in segments.texts]
    return segments._replace(texts=texts)


def without_prefixes(
    encoded: EncodedSegments, given: Segments, split: Segments, byte_lengths: NDArray[np.int64]
) -> Corrections:
    """What blanks that were put before segments change in the spans of their first ids.

    If such a space is a token by itself, its span is empty.

    Args:
        encoded: the ids.
        given: the segments.
        split: the same, with a blank before some of them.
        byte_lengths: of each id of the vocabulary.
    """
    added = (len(new) > len(old) for old, new in zip(given.texts, split.texts, strict=True))
    prefixed = np.flatnonzero(np.fromiter(added, bool, len(given.texts)))
    places = encoded.splits.take(prefixed)
    return Corrections(places, byte_lengths.take(encoded.ids.take(places)) - 1)


class Blanks(NamedTuple):
    """The spaces at the ends of each id of a vocabulary; all white space of added tokens.

    Attributes:
        leading: how many bytes of them it begins with, `int64`, shape `(size,)`.
        trailing: how many bytes of them it ends with.
        only: which tokens are nothing else, `bool`, shape `(size,)`.
        begins_with_one: which tokens begin with a single one, `bool`, shape `(size,)`.
    """

    leading: NDArray[np.int64]
    trailing: NDArray[np.int64]
    only: NDArray[np.bool_]
    begins_with_one: NDArray[np.bool_]

    def trimmed(self, ids: NDArray[np.int32], offsets: NDArray[np.int64], trim: Trim) -> NDArray[np.int64]:
        """Spans without the blanks at the ends of tokens, as Hugging Face's `trim_offsets` does.

        Args:
            ids: of all tokens.
            offsets: their 1-based spans.
            trim: `"but_first"` to keep a single blank where a text begins.
        """
        starts, stops = offsets[:, 0], offsets[:, 1]
        leading, trailing = self.leading.take(ids), self.trailing.take(ids)
        only = self.only.take(ids)
        is_kept = trim == "but_first"
        kept = (starts <= 1) & self.begins_with_one.take(ids) & is_kept
        leading[kept] = 0
        first = np.where(only & ~kept, stops, np.minimum(starts + leading, stops))
        last = np.where(stops > trailing, np.maximum(stops - trailing, first), stops)
        return np.stack([first, np.where(only, first, last)], axis=1)


def blanks_of(vocabulary: Vocabulary) -> Blanks:
    """Returns the spaces at the ends of each id."""
    leading, trailing = (np.zeros(vocabulary.size, np.int64) for _ in range(2))
    only = np.zeros(vocabulary.size, bool)
    for id_, token in vocabulary.bytes_by_id.items():
        leading[id_] = len(token) - len(token.lstrip(b" "))
        trailing[id_] = len(token) - len(token.rstrip(b" "))
        only[id_] = leading[id_] == len(token)
    begins_with_one = leading == 1
    for name in vocabulary.parting:
        id_, rest = vocabulary.id_of(name), name.lstrip(WHITE_SPACE)
        leading[id_] = len(name.encode("utf-8")) - len(rest.encode("utf-8"))
        trailing[id_] = len(name.encode("utf-8")) - len(name.rstrip(WHITE_SPACE).encode("utf-8"))
        only[id_] = not rest
        begins_with_one[id_] = len(name) - len(rest) == 1
    return Blanks(leading, trailing, only, begins_with_one)
