"""Tokenizers around a function that splits texts into words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tokjax.bpe.encoded_segments import EncodedSegments
from tokjax.core import protocol
from tokjax.core.ragged import make_row_splits
from tokjax.core.utf8 import from_characters, to_characters, to_utf8
from tokjax.errors import InvalidArgumentError
from tokjax.models.base import SegmentModel
from tokjax.models.word_base import make_word_vocabulary, word_vocabulary_to_json
from tokjax.offsets import char_to_byte_spans

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from tokjax.bpe.chunks import Segments
    from tokjax.core.vocabulary import Vocabulary

SplitFunction: TypeAlias = Callable[[str], Iterable[str] | Iterable[tuple[int, int]]]
"""Gives the words of a text, or where each of them stands: `(start, stop)`, as for `text[start:stop]`."""
_OPTIONAL_TOKENS = ("[PAD]",)


@dataclass(frozen=True)
class CallableTokenizer(SegmentModel):
    """A tokenizer around a function that splits texts. Make one with `from_callable`.

    Decoding puts blanks between words. It pickles if the function does; it can't be written to a file.

    Attributes:
        vocabulary: ids and words.
        split: the function.
        name: what stands for the function in the fingerprint.
    """

    model = "callable"

    vocabulary: Vocabulary
    split: SplitFunction
    name: str

    def encode_segments(
        self,
        segments: Segments,
        threads: int = 1,  # noqa: ARG002 (it may share state)
        *,
        sources: bool = True,
    ) -> EncodedSegments:
        """Encode stretches of ordinary text, each on its own."""
        ids: list[int] = []
        lengths: list[int] = []
        spans = [np.zeros((0, 2), np.int64)]
        as_bytes = from_characters if segments.hold_bytes else to_utf8
        for text in map(as_bytes, segments.texts):
            characters = to_characters(text)
            word_spans = _find_spans(characters, list(self.split(characters)), self.name)
            ids += [self._token_ids.get(characters[start:stop], self._unknown) for start, stop in word_spans]
            lengths.append(len(word_spans))
            if sources:
                spans.append(char_to_byte_spans(text, np.array(word_spans, np.int64).reshape(-1, 2)) - 1)
        splits = make_row_splits(lengths)
        if not sources:
            return EncodedSegments(np.array(ids, np.int32), splits, None)
        begins = np.ones(len(ids), bool)
        return EncodedSegments(np.array(ids, np.int32), splits, begins, np.concatenate(spans))

    @cached_property
    def _unknown(self) -> int:
        return self.vocabulary.require_role("unk", "a vocabulary of words")

    @cached_property
    def _token_ids(self) -> dict[str, int]:
        return {token.decode("utf-8"): id_ for token, id_ in self.vocabulary.ordinary.items()}

    def _described(self) -> Any:
        if not self.name:
            raise InvalidArgumentError(
                f"the function {self.split!r} has no name of its own, so a fingerprint can't tell it from "
                "others; pass from_callable(..., name=NAME)"
            )
        return [self.model, self.name, word_vocabulary_to_json(self.vocabulary)]


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
    """A tokenizer around a function that splits texts into words.

    Args:
        split: gives the words of a text, in order, or the place of each: `(start, stop)`, as for
            `text[start:stop]`. Words have to stand in the text as they are; what is between them is left out.
        tokens: word to id, or all words in the order of their ids. Special tokens are among them.
        name: what stands for the function in `fingerprint`, so that a dataset is not opened with another one;
            `None` for the name that it has. A function that has none of its own (a lambda, a `partial`) needs
            it there.
        special_tokens: which tokens are special besides those named below.
        unk_token: stands for a word that is not among the tokens, with that word's span.
        bos_token: begins a text, if any does.
        eos_token: ends a text, if any does.
        pad_token: pads a batch. (It is left out where `tokens` has none of the default name.)

    Raises:
        InvalidArgumentError: `split` is no function, a special token is not among the tokens, or an id is
            used twice.

    >>> from tokjax import encode_result
    >>> words = from_callable(str.split, ["[UNK]", "to", "be"])
    >>> encode_result(words, "to be or").offsets.tolist()
    [[1, 3], [4, 6], [7, 9]]
    """
    if not callable(split):
        raise InvalidArgumentError(f"split must be a function of a text, not {split!r}")
    roles = {"bos": bos_token, "eos": eos_token, "pad": pad_token, "unk": unk_token}
    table = make_word_vocabulary(tokens, special_tokens, roles, optional_tokens=_OPTIONAL_TOKENS)
    table.require_role("unk", "a vocabulary of words")
    if name is None:
        own = getattr(split, "__qualname__", "")
        name = "" if not own or "<" in own else f"{getattr(split, '__module__', 'builtins')}.{own}"
    return CallableTokenizer(table, split, name)


def _find_spans(text: str, words: list[Any], name: str) -> list[tuple[int, int]]:
    """Where the words stand: found from the left, if they are given as text."""
    word_spans: list[tuple[int, int]] = []
    done = 0
    for word in words:
        start, stop = _find_span(word, text, done)
        if not done <= start < stop <= len(text):
            raise InvalidArgumentError(
                f"{name or 'the function'} gave the word {word!r}, which does not stand in the text at or "
                f"behind character {done}; give the words as they are, in order, or as places (start, stop)"
            )
        word_spans.append((start, stop))
        done = stop
    return word_spans


def _find_span(word: Any, text: str, done: int) -> tuple[int, int]:
    """Where a word stands; nowhere for what is none."""
    if isinstance(word, str):
        start = text.find(word, done)
        return start, start + len(word)
    if isinstance(word, Sequence) and len(word) == 2 and all(isinstance(bound, int) for bound in word):
        return word[0], word[1]
    return -1, -1


@protocol.decode_bytes.register(CallableTokenizer)
def _decode_bytes(
    tokenizer: CallableTokenizer, ids: ArrayLike, *, skip_special_tokens: bool = False
) -> bytes:
    flat: NDArray[np.int32] = protocol.as_flat_ids(ids)
    table = tokenizer.vocabulary
    table.check_ids(flat)
    shown_ids = flat[~table.is_special.take(flat)] if skip_special_tokens else flat
    return b" ".join(map(table.bytes_by_id.__getitem__, shown_ids.tolist()))


protocol.decode_batch.register(CallableTokenizer)(protocol.decode_row_by_row)
