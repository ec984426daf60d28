"""Tokenizers that split texts into words with a custom function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tokjax.bpe.encoded_segments import EncodedSegments
from tokjax.core import protocol
from tokjax.core.decode_stream import find_decode_context, keep_last_visible_id
from tokjax.core.ragged import make_row_splits
from tokjax.core.utf8 import to_characters
from tokjax.errors import InvalidArgumentError
from tokjax.models.base import SegmentModel
from tokjax.models.word_base import make_word_vocabulary
from tokjax.offsets import char_to_byte_spans

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from tokjax.bpe.chunks import Segments
    from tokjax.core.vocabulary import Role, Vocabulary

SplitFunction: TypeAlias = Callable[[str], Iterable[str] | Iterable[tuple[int, int]]]
"""Returns the words of a text, or the position of each word: `(start, stop)`, as in `text[start:stop]`."""


@dataclass(frozen=True, repr=False)
class CallableTokenizer(SegmentModel):
    """Tokenizer that splits texts with a custom function. Create it with `from_callable`.

    Decoding puts spaces between words. The tokenizer can be pickled if the function can. It can't be saved to
    a file.

    Attributes:
        vocabulary: token ids and words.
        split: function that splits a text into words.
        name: name that identifies the function in the fingerprint.
    """

    model = "callable"

    vocabulary: Vocabulary
    split: SplitFunction
    name: str

    def encode_segments(
        self,
        segments: Segments,
        threads: int = 1,  # noqa: ARG002 (the function may not be thread-safe)
        *,
        sources: bool = True,
    ) -> EncodedSegments:
        """Encodes segments of ordinary text, independently of one another, in one thread."""
        ids: list[int] = []
        lengths: list[int] = []
        spans = [np.zeros((0, 2), np.int64)]
        for text in segments.encode():
            characters = to_characters(text)
            word_spans = self.find_pretokens(characters)
            ids += [self._token_ids.get(characters[start:stop], self._unknown) for start, stop in word_spans]
            lengths.append(len(word_spans))
            if sources:
                spans.append(char_to_byte_spans(text, np.array(word_spans, np.int64).reshape(-1, 2)) - 1)
        splits = make_row_splits(lengths)
        if not sources:
            return EncodedSegments(np.array(ids, np.int32), splits, None)
        begins = np.ones(len(ids), bool)
        return EncodedSegments(np.array(ids, np.int32), splits, begins, np.concatenate(spans))

    def find_pretokens(self, text: str) -> list[tuple[int, int]]:
        """Returns the spans of the words that the function returns for a segment."""
        return _find_spans(text, list(self.split(text)), self.name)

    @cached_property
    def _unknown(self) -> int:
        return self.vocabulary.require_role("unk", "a vocabulary of words")

    @cached_property
    def _token_ids(self) -> dict[str, int]:
        return {token.decode("utf-8"): id_ for token, id_ in self.vocabulary.ordinary.items()}

    def _get_repr_options(self) -> dict[str, Any]:
        return {"name": self.name}

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
    vocabulary.require_role("unk", "a vocabulary of words")
    if name is None:
        qualname = getattr(split, "__qualname__", "")  # has a "<" for lambdas and local functions
        name = (
            ""
            if not qualname or "<" in qualname
            else f"{getattr(split, '__module__', 'builtins')}.{qualname}"
        )
    return CallableTokenizer(vocabulary, split, name)


def _find_spans(text: str, words: list[Any], name: str) -> list[tuple[int, int]]:
    """Returns the character spans of words, in order.

    A word that is a string is located at its first occurrence after the word before it.

    Raises:
        InvalidArgumentError: a word is empty, not in the rest of the text, or of the wrong type.
    """
    word_spans: list[tuple[int, int]] = []
    min_start = 0
    for word in words:
        start, stop = _find_span(word, text, min_start)
        if not min_start <= start < stop <= len(text):
            raise InvalidArgumentError(
                f"{name or 'the function'} returned the word {word!r}, which is not in the text at or after "
                f"character {min_start}; return words as they are, in order, or as positions (start, stop)"
            )
        word_spans.append((start, stop))
        min_start = stop
    return word_spans


def _find_span(word: Any, text: str, min_start: int) -> tuple[int, int]:
    """Returns the character span of a word; `(-1, -1)` if it is neither a string nor a pair of integers."""
    if isinstance(word, str):
        start = text.find(word, min_start)
        return start, start + len(word)
    if isinstance(word, Sequence) and len(word) == 2 and all(isinstance(bound, int) for bound in word):
        return word[0], word[1]
    return -1, -1


@protocol.decode_bytes.register(CallableTokenizer)
def _decode_bytes(
    tokenizer: CallableTokenizer, ids: ArrayLike, *, skip_special_tokens: bool = False
) -> bytes:
    flat: NDArray[np.int32] = protocol.as_flat_ids(ids)
    vocabulary = tokenizer.vocabulary
    vocabulary.check_ids(flat)
    visible_ids = flat[~vocabulary.is_special.take(flat)] if skip_special_tokens else flat
    return b" ".join(map(vocabulary.bytes_by_id.__getitem__, visible_ids.tolist()))


protocol.decode_batch.register(CallableTokenizer)(protocol.decode_row_by_row)
find_decode_context.register(CallableTokenizer)(keep_last_visible_id)
