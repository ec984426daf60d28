"""Encoding of texts with the `tokenizers` library.

1. Reject disallowed special tokens in the texts.
2. Encode the texts with the library. Its tokenizer either matches all special tokens in a text or none
   (`encode_special_tokens`), so there are two instances, and other combinations raise an error.
3. Reject special tokens that the library found although they are not in the text: normalization can turn
   "<|END|>" into "<|end|>".
4. Compute offsets from those of the library (`library_spans.py`), masks and type ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.core.ragged import make_row_splits
from tokjax.core.utf8 import is_encodable, to_characters
from tokjax.errors import DisallowedSpecialTokenError, InvalidArgumentError
from tokjax.formats.huggingface.dropped_characters import CharacterSpans, needs_character_spans
from tokjax.formats.huggingface.library_spans import LibrarySpans
from tokjax.formats.huggingface.loaded_definition import raise_as
from tokjax.pretokenize.special_tokens import has_special, reject_special_in_texts, resolve_special

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tokjax.core.encode_options import SpecialOptions
    from tokjax.core.utf8 import Text
    from tokjax.core.vocabulary import Vocabulary
    from tokjax.formats.huggingface.loaded_definition import LoadedDefinition

    Columns = tuple[dict[str, NDArray[Any]], NDArray[np.int64]]

_SURROGATES_TO_REPLACEMENT = dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


class EncodeOptions(NamedTuple):
    """Options of `encode_batch_result` with the same names."""

    add_special_tokens: bool
    return_offsets: bool
    return_masks: bool


@dataclass(frozen=True)
class LibraryEncoder:
    """Encodes texts into the columns of a batch.

    Attributes:
        loaded: definition of the tokenizer.
        vocabulary: token ids and token bytes.
    """

    loaded: LoadedDefinition
    vocabulary: Vocabulary

    def encode(self, texts: Sequence[Text], options: EncodeOptions, special: SpecialOptions) -> Columns:
        """Encodes texts.

        Args:
            texts: texts.
            options: which tokens to insert, and which columns to compute.
            special: options `allowed_special` and `disallowed_special`.

        Returns:
            The columns of a batch by name, `ids` included, and its row splits.

        Raises:
            DisallowedSpecialTokenError: a text contains a disallowed special token, or becomes one.
            InvalidArgumentError: the library can't encode the texts with these options.
        """
        encodings, rows, library = self._encode_rows(texts, options, special)
        ids = np.concatenate([np.zeros(0, np.int32), *rows])
        columns: dict[str, NDArray[Any]] = {"ids": ids}
        if options.return_offsets:
            columns |= self._compute_source_columns(texts, encodings, rows, library)
        if options.return_masks:
            mask = _concatenate([encoding.special_tokens_mask for encoding in encodings])
            mask[self.vocabulary.is_special.take(ids)] = 1
            types = _concatenate([encoding.type_ids for encoding in encodings])
            columns |= {"special_tokens_mask": mask, "token_type_ids": types}
        return columns, make_row_splits(map(len, rows))

    @cached_property
    def _spans(self) -> LibrarySpans:
        return LibrarySpans(self.loaded, self.vocabulary)

    @cached_property
    def _special_by_id(self) -> dict[int, str]:
        """Id to name of the special tokens, except for the unknown token of the model."""
        unknown_id = self.loaded.unknown_id
        return {id_: name for name, id_ in self.vocabulary.special.items() if id_ != unknown_id}

    def _encode_rows(
        self, texts: Sequence[Text], options: EncodeOptions, special: SpecialOptions
    ) -> tuple[list[Any], list[NDArray[np.int32]], Any]:
        """Returns the encoding and the ids of each text, `int32`, and the library's tokenizer of these."""
        names = self.vocabulary.special_names
        allowed, disallowed = resolve_special(names, **special)
        characters = [to_characters(text) for text in texts]
        reject_special_in_texts(characters, disallowed)
        valid_texts = list(map(_replace_surrogates, characters))
        ordinary = frozenset[str]()
        if special.get("disallowed_special", "all") != "all":
            ordinary = names - allowed - disallowed if allowed or disallowed else names
        library = self._select_library_tokenizer(valid_texts, allowed, ordinary)
        encodings, rows = _encode_valid_texts(library, valid_texts, options)
        matched = self._find_special(encodings, rows)
        if library is self.loaded.library_tokenizer and not matched.keys().isdisjoint(ordinary):
            # Normalization made a special token of text that the caller wants as ordinary text.
            library = self.loaded.special_as_text_tokenizer
            encodings, rows = _encode_valid_texts(library, valid_texts, options)
            matched = self._find_special(encodings, rows)
        _reject_special(matched, ordinary, disallowed)
        return encodings, rows, library

    def _select_library_tokenizer(
        self, texts: list[str], allowed: frozenset[str], ordinary: frozenset[str]
    ) -> Any:
        """Returns the library's tokenizer that matches allowed special tokens and encodes others as text.

        Args:
            texts: texts.
            allowed: special tokens to match in texts.
            ordinary: special tokens to encode as ordinary text.

        Raises:
            InvalidArgumentError: the texts contain special tokens of both kinds.
        """
        if not any(has_special(text, ordinary) for text in texts):
            return self.loaded.library_tokenizer
        if any(has_special(text, allowed) for text in texts):
            raise InvalidArgumentError(
                "the tokenizers library matches all special tokens in a text or none, but the texts contain "
                f"allowed ones and ones to encode as ordinary text ({sorted(ordinary)[:5]}); allow all of "
                "them, or disallow the others"
            )
        return self.loaded.special_as_text_tokenizer

    def _find_special(self, encodings: list[Any], rows: list[NDArray[np.int32]]) -> dict[str, int]:
        """Returns the special tokens that the library matched in texts, with the index of a text.

        The unknown token of the model and tokens that the template inserts are left out.
        """
        matched: dict[str, int] = {}
        is_special, names = self.vocabulary.is_special, self._special_by_id
        for row, (encoding, ids) in enumerate(zip(encodings, rows, strict=True)):
            positions = is_special.take(ids).nonzero()[0].tolist()
            inserted = encoding.special_tokens_mask if positions else ()
            for position in positions:
                if not inserted[position] and (name := names.get(int(ids[position]))) is not None:
                    matched[name] = row
        return matched

    def _get_offsets(
        self, text: Text, encoding: Any, library: Any
    ) -> Sequence[tuple[int, int]] | NDArray[np.int64]:
        """Returns the spans of the tokens in characters of the text, from an encoding by `library`."""
        if self._character_spans is None:
            offsets: Sequence[tuple[int, int]] = encoding.offsets
            return offsets
        valid_text = _replace_surrogates(to_characters(text))
        return self._character_spans.correct(
            valid_text, encoding, encode_special_tokens=library.encode_special_tokens
        )

    @cached_property
    def _character_spans(self) -> CharacterSpans | None:
        """Corrects spans, if those of the library can be those of other characters."""
        return CharacterSpans(self.loaded) if needs_character_spans(self.loaded) else None

    def _compute_source_columns(
        self, texts: Sequence[Text], encodings: Sequence[Any], rows: Sequence[NDArray[np.int32]], library: Any
    ) -> dict[str, NDArray[Any]]:
        """Computes the columns `offsets`, `word_ids` and `sequence_ids`."""
        inserted = [_to_array(encoding.special_tokens_mask) for encoding in encodings]
        offsets = [
            self._spans.locate(text, self._get_offsets(text, encoding, library), ids, mask == 0)
            for text, encoding, ids, mask in zip(texts, encodings, rows, inserted, strict=True)
        ]
        word_ids = [[-1 if i is None else i for i in encoding.word_ids] for encoding in encodings]
        return {
            "offsets": np.concatenate([np.zeros((0, 2), np.int64), *offsets]),
            "word_ids": _concatenate(word_ids),
            # The library's own sequence ids are wrong after two post-processors.
            "sequence_ids": -np.concatenate([np.zeros(0, np.int32), *inserted]),
        }


def _replace_surrogates(characters: str) -> str:
    """Returns a text that the library can encode, with as many characters."""
    if characters.isascii() or is_encodable(characters):
        return characters
    return characters.translate(_SURROGATES_TO_REPLACEMENT)


def _encode_valid_texts(
    library: Any, texts: list[str], options: EncodeOptions
) -> tuple[list[Any], list[NDArray[np.int32]]]:
    """Returns the library's encodings of texts, and the ids of each text."""
    encode = library.encode_batch if options.return_offsets else library.encode_batch_fast
    with raise_as(InvalidArgumentError, "the tokenizers library can't encode these texts"):
        encodings: list[Any] = encode(texts, add_special_tokens=options.add_special_tokens)
    return encodings, [_to_array(encoding.ids) for encoding in encodings]


def _reject_special(matched: Mapping[str, int], ordinary: frozenset[str], disallowed: frozenset[str]) -> None:
    """Raises for special tokens that the library matched although they are disallowed or ordinary text."""
    for name, row in matched.items():
        if name not in disallowed:
            continue
        raise DisallowedSpecialTokenError(
            f"text {row} becomes the special token {name!r} when it is normalized, which is not allowed; to "
            f"match it, pass allowed_special={{{name!r}}}"
        )
    for name, row in matched.items():
        if name not in ordinary:
            continue
        raise InvalidArgumentError(
            f"text {row} contains {name!r}, which this model encodes as a special token even where ordinary "
            "text is requested; allow it with allowed_special=, or disallow it"
        )


def _to_array(values: Sequence[int]) -> NDArray[np.int32]:
    return np.array(values, np.int32)


def _concatenate(rows: Sequence[Sequence[int]]) -> NDArray[np.int32]:
    return np.concatenate([np.zeros(0, np.int32), *map(_to_array, rows)])
