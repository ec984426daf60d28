"""Tokenizers that split texts into words with a custom function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tokjax.core.ragged import make_row_splits
from tokjax.core.utf8 import find_character_starts
from tokjax.core.vocabulary import Vocabulary  # noqa: TC001 (the types of fields are read)
from tokjax.errors import InvalidArgumentError
from tokjax.models.word_base import make_word_vocabulary
from tokjax.models.wordpiece import LongestMatchModel
from tokjax.pretokenize.normalization import BertNormalizer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.bpe.chunks import EncodedSegments, Pieces, Segments
    from tokjax.core.vocabulary import Role

SplitFunction: TypeAlias = Callable[[str], Iterable[str] | Iterable[tuple[int, int]]]
"""Returns the words of a text, or the position of each word: `(start, stop)`, as in `text[start:stop]`."""


@dataclass(frozen=True, repr=False)
class CallableTokenizer(LongestMatchModel):
    """Tokenizer that splits texts with a custom function. Create it with `from_callable`.

    Decoding puts spaces between words. The tokenizer can be pickled if the function can. It can't be saved to
    a file.

    Attributes:
        vocabulary: token ids and words.
        split: function that splits a text into words.
        name: name that identifies the function in the fingerprint.
    """

    model = "callable"
    normalizer = BertNormalizer(False, False, False, False)
    continuing_prefix = None
    max_word_characters = None

    vocabulary: Vocabulary
    split: SplitFunction = field(repr=False)
    name: str

    @property
    def _pre_tokenizer(self) -> _CallablePreTokenizer:
        return _CallablePreTokenizer(self.split, self.name)

    def encode_segments(
        self,
        segments: Segments,
        threads: int = 1,  # noqa: ARG002 (the function may not be thread-safe)
        *,
        sources: bool = True,
    ) -> EncodedSegments:
        """Encodes segments of ordinary text, independently of one another, in one thread."""
        return super().encode_segments(segments, sources=sources)

    def _to_fingerprint_json(self) -> Any:
        if not self.name:
            raise InvalidArgumentError(
                f"the function {self.split!r} has no qualified name to identify it in a fingerprint; "
                "pass from_callable(..., name=NAME)"
            )
        return [self.model, self.name, self.vocabulary]


def from_callable(
    split: SplitFunction,
    tokens: Mapping[str, int] | Sequence[str],
    *,
    name: str | None = None,
    special_tokens: Sequence[str] = (),
    unk_token: str = "[UNK]",
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = "[PAD]",
) -> CallableTokenizer:
    """Makes a tokenizer that splits texts into words with a custom function.

    Args:
        split: function of a text that returns its words in order, or the position of each word: `(start,
            stop)`, as in `text[start:stop]`. Words must be substrings of the text. Text between words is
            skipped.
        tokens: word to id, or a list of all words in the order of their ids; special tokens included.
        name: name that identifies the function in `fingerprint`, so that a dataset is not opened with a
            tokenizer that splits differently. `None` uses the qualified name of the function. A function
            without one (a lambda, a `partial`) needs `name` for a fingerprint.
        special_tokens: special tokens in addition to those named below.
        unk_token: token for a word that is not among the tokens; it has the span of that word.
        bos_token: special token to insert at the start of a text, if any.
        eos_token: special token to insert at the end of a text, if any.
        pad_token: special token that pads a batch. It is ignored if it has the default name and is not among
            the tokens.

    Raises:
        InvalidArgumentError: `split` is not callable, a special token is not among the tokens, or an id is
            used twice.

    >>> from tokjax import encode_result
    >>> words = from_callable(str.split, ["[UNK]", "to", "be"])
    >>> encode_result(words, "to be or").offsets.tolist()
    [[1, 3], [4, 6], [7, 9]]
    """
    if not callable(split):
        raise InvalidArgumentError(f"split must be a function of a text, not {split!r}")
    roles: dict[Role, str | None]
    roles = {"bos": bos_token, "eos": eos_token, "pad": pad_token, "unk": unk_token}
    vocabulary = make_word_vocabulary(tokens, special_tokens, roles)
    if name is None:
        qualname = getattr(split, "__qualname__", "")  # has a "<" for lambdas and local functions
        name = (
            ""
            if not qualname or "<" in qualname
            else f"{getattr(split, '__module__', 'builtins')}.{qualname}"
        )
    return CallableTokenizer(vocabulary, split, name)


class _CallablePreTokenizer(NamedTuple):
    """Pre-tokenizer of a function, which gets each text as a whole.

    Attributes:
        split: the function.
        name: its name, for errors.
    """

    split: SplitFunction
    name: str

    def find_spans(self, text: str) -> list[tuple[int, int]]:
        """Returns the spans of the words of a text, in characters.

        A word that is a string is located at its first occurrence after the word before it.

        Raises:
            InvalidArgumentError: a word is empty, not in the rest of the text, or of the wrong type.
        """
        word_spans: list[tuple[int, int]] = []
        min_start = 0
        for word in self.split(text):
            start, stop = _find_span(word, text, min_start)
            if not min_start <= start < stop <= len(text):
                raise InvalidArgumentError(
                    f"{self.name or 'the function'} returned the word {word!r}, which is not in the text at "
                    f"or after character {min_start}; return words as they are, in order, or as positions "
                    "(start, stop)"
                )
            word_spans.append((start, stop))
            min_start = stop
        return word_spans

    def find_split(self, text: str, target: int) -> int:  # noqa: ARG002 (part of `PreTokenizer`)
        """Returns the end of the text."""
        return len(text)

    def find_bounds(
        self,
        text: bytes,
        pieces: Pieces,
        ends: NDArray[np.int64],  # noqa: ARG002 (part of `PreTokenizer`)
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the byte positions at which words start and stop, as `PreTokenizer` specifies."""
        firsts = make_row_splits([len(piece) + 1 for piece in pieces.texts]).tolist()
        spans = [
            (first + start, first + stop)
            for first, piece in zip(firsts, pieces.texts, strict=False)
            for start, stop in self.find_spans(piece)
        ]
        starts, stops = find_character_starts(text)[np.array(spans, np.int64).reshape(-1, 2)].T
        return starts, stops


def _find_span(word: Any, text: str, min_start: int) -> tuple[int, int]:
    """Returns the character span of a word; `(-1, -1)` if it is neither a string nor a pair of integers."""
    if isinstance(word, str):
        start = text.find(word, min_start)
        return start, start + len(word)
    if isinstance(word, Sequence) and len(word) == 2 and all(isinstance(bound, int) for bound in word):
        return word[0], word[1]
    return -1, -1
