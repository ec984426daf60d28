"""Spans of the tokens of a BPE model whose words have more or fewer symbols than characters.

Without an unknown token, the library's model drops the characters of a word that are not in its vocabulary,
and merges the others as if they were adjacent. It counts offsets in the remaining characters, so that they
are those of other letters from the first dropped character on. Here, they are counted in all characters,
which a second tokenizer finds. It has the same steps, but an unknown token and no merges, so that its tokens
are the characters:

    word                       a    X    b    c    d         with the merge of b and c, and without X
    characters, with spans     a    ?    b    c    d         [0, 1) [1, 2) [2, 3) [3, 4) [4, 5)
    tokens                     a         bc        d
    the library's spans        a    Xb        c              [0, 1) [1, 3) [3, 4)
    spans here                 a         bc        d         [0, 1) [2, 4) [4, 5)

With byte fallback, a model makes byte tokens of an unknown character *and* of the prefix or suffix of words.
The library counts each as a byte of the word, so that spans leave the word. Here, they end with it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.formats.huggingface.definition import get_steps
from tokjax.formats.huggingface.loaded_definition import load_library_tokenizer
from tokjax.pretokenize.bytes_to_unicode import ALPHABET

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    from tokjax.formats.huggingface.loaded_definition import LoadedDefinition


class _Characters(NamedTuple):
    """The characters of words, in order.

    Attributes:
        spans: the library's spans, in characters of the text, `int64`, shape `(characters, 2)`.
        words: number of the word of each one, `int64`, shape `(characters,)`.
        is_known: mask of those that are in the vocabulary, shape `(characters,)`.
    """

    spans: NDArray[np.int64]
    words: NDArray[np.int64]
    is_known: NDArray[np.bool_]

    def take(self, mask: NDArray[np.bool_]) -> _Characters:
        """Returns the characters of a mask."""
        return _Characters(self.spans[mask], self.words[mask], self.is_known[mask])

    def clip_to_words(self, spans: NDArray[np.int64], words: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns spans, shape `(n, 2)`, clipped to the span of the word of each, shape `(n,)`."""
        firsts = np.flatnonzero(np.diff(self.words, prepend=-1))
        starts = np.minimum.reduceat(self.spans[:, 0], firsts)
        stops = np.maximum.reduceat(self.spans[:, 1], firsts)
        index = np.searchsorted(self.words[firsts], words)
        return np.clip(spans, starts[index, None], stops[index, None])


def has_byte_affix(model: Mapping[str, Any]) -> bool:
    """Returns whether a model makes byte tokens of the prefix or suffix of words."""
    affixes = "continuing_subword_prefix", "end_of_word_suffix"
    return bool(model.get("byte_fallback")) and any(map(model.get, affixes))


def needs_character_spans(loaded: LoadedDefinition) -> bool:
    """Returns whether the library's spans can be those of other characters."""
    return has_byte_affix(loaded.pipeline["model"]) or _drops_characters(loaded)


def _drops_characters(loaded: LoadedDefinition) -> bool:
    """Returns whether the model of a definition may drop characters that are not in its vocabulary."""
    model, library = loaded.pipeline["model"], loaded.library_tokenizer
    if type(library.model).__name__ != "BPE" or model.get("unk_token") or model.get("byte_fallback"):
        return False
    encodes_bytes = any(
        step.get("type") == "ByteLevel"
        for step in (*get_steps(loaded.pipeline, "normalizer"), *get_steps(loaded.pipeline, "pre_tokenizer"))
    )
    has_affix = model.get("continuing_subword_prefix") or model.get("end_of_word_suffix")
    return (
        not encodes_bytes
        or bool(has_affix)
        or not library.get_vocab(with_added_tokens=False).keys() >= {*ALPHABET}
    )


@dataclass(frozen=True)
class CharacterSpans:
    """Corrects the spans of tokens in words with unknown characters.

    Attributes:
        loaded: definition of a tokenizer for which `needs_character_spans` is true.
    """

    loaded: LoadedDefinition

    def correct(self, text: str, encoding: Any, *, encode_special_tokens: bool) -> NDArray[np.int64]:
        """Returns the spans of the tokens of a text, in characters, `int64`, shape `(num_tokens, 2)`.

        Args:
            text: the text, without lone surrogates.
            encoding: the library's encoding of the text.
            encode_special_tokens: whether special tokens in the text are encoded as ordinary text.
        """
        spans = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        characters = self._find_characters(text, encode_special_tokens)
        unknown = np.unique(characters.words[~characters.is_known])
        if not len(unknown):
            return spans
        words = _to_array(encoding.word_ids)
        tokens = np.flatnonzero(np.isin(words, unknown))
        spans[tokens] = characters.clip_to_words(spans[tokens], words[tokens])
        counts = self._num_characters.take(encoding.ids)
        # The number of known characters shows that merging made the tokens, unlike with `ignore_merges`.
        num_words = int(characters.words.max()) + 1
        in_tokens = np.bincount(words[words >= 0], counts[words >= 0], num_words)
        is_corrected = in_tokens == np.bincount(characters.words, characters.is_known, num_words)
        is_corrected[np.setdiff1d(np.arange(num_words), unknown)] = False
        tokens = np.flatnonzero((words >= 0) & is_corrected.take(words, mode="clip"))
        if len(tokens):
            known = characters.take(characters.is_known & is_corrected[characters.words])
            spans[tokens] = _join_spans(known.spans, counts[tokens])
        return spans

    def _find_characters(self, text: str, encode_special_tokens: bool) -> _Characters:
        library, unknown_id = self._libraries[encode_special_tokens]
        encoding = library.encode(text, add_special_tokens=False)
        spans = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        return _Characters(
            spans, _to_array(encoding.word_ids), np.array(encoding.ids, np.int64) != unknown_id
        )

    @cached_property
    def _libraries(self) -> list[tuple[Any, int]]:
        """Tokenizers whose tokens are characters, and the ids of their unknown tokens.

        The first one matches special tokens, and the second one encodes them as text.
        """
        contents = self.loaded.contents
        vocab = contents["model"]["vocab"]
        unknown = _find_unused_name({*self.loaded.library_tokenizer.get_vocab(with_added_tokens=True)})
        model = contents["model"] | {
            "vocab": {**vocab, unknown: max(vocab.values(), default=-1) + 1},
            "merges": [],
            "unk_token": unknown,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "dropout": None,
        }
        libraries = [load_library_tokenizer(json.dumps(contents | {"model": model})) for _ in range(2)]
        libraries[1].encode_special_tokens = True
        return [(library, library.token_to_id(unknown)) for library in libraries]

    @cached_property
    def _num_characters(self) -> NDArray[np.int64]:
        """Number of characters of a word that each id is made of, `int64`, shape `(size,)`."""
        model = self.loaded.pipeline["model"]
        prefix, suffix = (
            model.get(name) or "" for name in ("continuing_subword_prefix", "end_of_word_suffix")
        )
        forms: dict[str, int] = self.loaded.library_tokenizer.get_vocab(with_added_tokens=True)
        counts = np.ones(max(forms.values()) + 1, np.int64)
        for form, id_ in forms.items():
            counts[id_] = max(len(form.removeprefix(prefix).removesuffix(suffix)), 1)
        return counts


def _join_spans(spans: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the spans of tokens: from the first to the last of their characters whose span is not empty.

    Args:
        spans: spans of the characters of all tokens, shape `(characters, 2)`.
        counts: number of characters of each token, at least 1, shape `(num_tokens,)`.
    """
    firsts = np.cumsum(counts) - counts
    starts, stops = spans[:, 0], spans[:, 1]
    is_empty = starts >= stops
    first = np.minimum.reduceat(np.where(is_empty, np.iinfo(np.int64).max, starts), firsts)
    last = np.maximum.reduceat(np.where(is_empty, -1, stops), firsts)
    return np.where((last < 0)[:, None], spans.take(firsts, axis=0), np.stack([first, last], axis=1))


def _find_unused_name(forms: Collection[str]) -> str:
    return max(forms, key=len, default="") + "?"


def _to_array(word_ids: list[int | None]) -> NDArray[np.int64]:
    return np.array([-1 if word is None else word for word in word_ids], np.int64)
