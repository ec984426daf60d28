"""Encoding of texts with Hugging Face's `tokenizers` library, and its errors.

1. Reject disallowed special tokens in the texts.
2. Encode the texts with the library. Its tokenizer either matches all special tokens in a text or none
   (`encode_special_tokens`), so there are two instances, and other combinations raise an error.
3. Reject special tokens that the library found although they are not in the text: normalization can turn
   "<|END|>" into "<|end|>".
4. Compute masks, type ids and offsets. The library's spans are in characters and can overlap; here they are
   in bytes, and `separate_spans` separates them.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.imports import import_optional
from tokjax.core.protocol import BYTE_PIECE
from tokjax.core.ragged import make_row_splits
from tokjax.core.utf8 import find_character_starts, is_encodable, to_characters, to_utf8
from tokjax.errors import (
    DisallowedSpecialTokenError,
    InvalidArgumentError,
    MissingExtraError,
    TokenizerFormatError,
)
from tokjax.formats.huggingface.definition import get_steps, is_byte_level
from tokjax.models.base import TokenizerRecord
from tokjax.models.byte_spans import separate_spans
from tokjax.pretokenize.bytes_to_unicode import map_bytes_to_unicode
from tokjax.pretokenize.special_tokens import has_special, reject_special_in_texts, resolve_special

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tokjax.core.encode_options import SpecialOptions
    from tokjax.core.utf8 import Text
    from tokjax.core.vocabulary import Vocabulary
    from tokjax.errors import TokjaxError

    Columns = tuple[dict[str, NDArray[Any]], NDArray[np.int64]]

_SURROGATES_TO_REPLACEMENT = dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


class EncodeOptions(NamedTuple):
    """Options of `encode_batch_result` with the same names."""

    add_special_tokens: bool
    return_offsets: bool
    return_masks: bool


def import_tokenizers() -> Any:
    """Imports the `tokenizers` library. Version 1 has no `from_str`, offsets and word ids.

    Raises:
        MissingExtraError: the library is not installed, or in a version that has another interface.
    """
    tokenizers = import_optional("tokenizers", extra="huggingface", purpose="this tokenizer")
    version: str = tokenizers.__version__
    if not (0, 22) <= tuple(map(int, version.split(".")[:2])) < (1, 0):
        raise MissingExtraError(
            f"this tokenizer needs tokenizers>=0.22,<1, and version {version} is installed; "
            "pip install 'tokjax[huggingface]'"
        )
    return tokenizers


def load_library_tokenizer(definition: str) -> Any:
    """Loads the library's `Tokenizer` for a definition, without padding and truncation.

    Raises:
        MissingExtraError: the library is not installed, or in a version that has another interface.
        TokenizerFormatError: the library can't read the definition.
    """
    tokenizers = import_tokenizers()
    with raise_as(TokenizerFormatError, "the tokenizers library can't read it"):
        instance = tokenizers.Tokenizer.from_str(definition)
    instance.no_padding()
    instance.no_truncation()
    return instance


@contextmanager
def raise_as(error_type: type[TokjaxError], message: str) -> Iterator[None]:
    """Converts errors of the library to errors of tokjax.

    A panic in Rust, for example in a pattern that backtracks for too long, is a `BaseException` in Python.

    Args:
        error_type: type of the new error.
        message: first part of its message.
    """
    try:
        yield
    except (KeyboardInterrupt, MemoryError, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise error_type(f"{message}: {error}") from error


@dataclass(frozen=True)
class LibraryRecord(TokenizerRecord):
    """Base class of `HuggingFaceTokenizer`: its fields, and what encoding needs of them.

    Attributes:
        definition: contents of a `tokenizer.json`, as JSON text.
        vocabulary: token ids and token bytes.
        reason: why the tokenizer does not run as a built-in type.
    """

    definition: str
    vocabulary: Vocabulary
    reason: str

    @cached_property
    def contents(self) -> dict[str, Any]:
        """The parsed definition."""
        contents: dict[str, Any] = json.loads(self.definition)
        return contents

    @cached_property
    def pipeline(self) -> dict[str, Any]:
        """The definition without the vocabulary of its model: the part that encoding and decoding use."""
        return select_pipeline(self.contents)

    @cached_property
    def library_tokenizer(self) -> Any:
        """The library's `Tokenizer`. Do not change its settings."""
        return load_library_tokenizer(self.definition)

    @cached_property
    def special_as_text_tokenizer(self) -> Any:
        """The library's `Tokenizer`, with special tokens in texts encoded as ordinary text."""
        instance = load_library_tokenizer(self.definition)
        instance.encode_special_tokens = True
        return instance

    @cached_property
    def names_by_special_id(self) -> dict[int, str]:
        """Id to name of the special tokens, except for the unknown token of the model.

        Another token than that of the model can have the role in configuration files.
        """
        model, library = self.pipeline["model"], self.library_tokenizer
        unknown_id = model.get("unk_id")
        if unknown_id is None and model.get("unk_token") is not None:
            unknown_id = library.token_to_id(model["unk_token"])
        return {id_: name for name, id_ in self.vocabulary.special.items() if id_ != unknown_id}

    @cached_property
    def prefix_ids(self) -> frozenset[int]:
        """Ids of the tokens that a normalizer or pre-tokenizer adds before texts, such as `▁`."""
        steps = [*get_steps(self.pipeline, "normalizer"), *get_steps(self.pipeline, "pre_tokenizer")]
        forms = {" "} | {step.get("prepend") or step.get("replacement") or " " for step in steps}
        if is_byte_level(self.pipeline):
            forms = {map_bytes_to_unicode(form.encode("utf-8")) for form in forms}
        ids = map(self.library_tokenizer.token_to_id, forms)
        return frozenset(id_ for id_ in ids if id_ is not None)

    @cached_property
    def span_bytes(self) -> list[bytes]:
        """Bytes of the text span of each id, for `separate_spans`. Other ids have the bytes of their form.

        Trimmed spans leave out spaces, and a byte token such as `<0xE6>` spans one byte.
        """
        trims = any(step.get("trim_offsets") for step in get_steps(self.pipeline, "post_processor"))
        byte_level, span_bytes = is_byte_level(self.pipeline), [b""] * self.vocabulary.size
        for id_, token in self.vocabulary.bytes_by_id.items():
            if not byte_level and BYTE_PIECE.fullmatch(token):
                span_bytes[id_] = bytes([int(token[3:5], 16)])
            else:
                span_bytes[id_] = token.strip(b" ") if byte_level and trims else token
        return span_bytes


def select_pipeline(contents: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a parsed definition without the tokens and merges of its model."""
    model = {name: part for name, part in contents["model"].items() if name not in ("vocab", "merges")}
    return {**contents, "model": model}


def encode_by_library(
    tokenizer: LibraryRecord, texts: Sequence[Text], options: EncodeOptions, special: SpecialOptions
) -> Columns:
    """Encodes texts.

    Args:
        tokenizer: the tokenizer.
        texts: texts.
        options: which tokens to insert, and which columns to compute.
        special: options `allowed_special` and `disallowed_special`.

    Returns:
        The columns of a batch by name, `ids` included, and its row splits.

    Raises:
        DisallowedSpecialTokenError: a text contains a disallowed special token, or becomes one.
        InvalidArgumentError: the library can't encode the texts with these options.
    """
    encodings, rows = _encode_rows(tokenizer, texts, options, special)
    ids = np.concatenate([np.zeros(0, np.int32), *rows])
    columns: dict[str, NDArray[Any]] = {"ids": ids}
    inserted = _concatenate([encoding.special_tokens_mask for encoding in encodings])
    if options.return_offsets:
        offsets = [_compute_offsets(tokenizer, *row) for row in zip(texts, encodings, rows, strict=True)]
        word_ids = [[-1 if i is None else i for i in encoding.word_ids] for encoding in encodings]
        columns["offsets"] = np.concatenate([np.zeros((0, 2), np.int64), *offsets])
        columns["word_ids"] = _concatenate(word_ids)
        columns["sequence_ids"] = -inserted  # the library's are wrong after two post-processors
    if options.return_masks:
        columns["special_tokens_mask"] = inserted | tokenizer.vocabulary.is_special.take(ids)
        columns["token_type_ids"] = _concatenate([encoding.type_ids for encoding in encodings])
    return columns, make_row_splits(map(len, rows))


def _encode_rows(
    tokenizer: LibraryRecord, texts: Sequence[Text], options: EncodeOptions, special: SpecialOptions
) -> tuple[list[Any], list[NDArray[np.int32]]]:
    """Returns the library's encoding and the ids of each text, `int32`."""
    names = tokenizer.vocabulary.special_names
    allowed, disallowed = resolve_special(names, **special)
    characters = [to_characters(text) for text in texts]
    reject_special_in_texts(characters, disallowed)
    valid_texts = list(map(_replace_surrogates, characters))
    ordinary = frozenset[str]()
    if special.get("disallowed_special", "all") != "all":
        ordinary = names - allowed - disallowed if allowed or disallowed else names
    as_text = _encodes_special_as_text(valid_texts, allowed, ordinary)
    encodings, rows = _encode_valid_texts(tokenizer, valid_texts, options, as_text)
    matched = _find_special(tokenizer, encodings, rows)
    if not as_text and not matched.keys().isdisjoint(ordinary):
        # Normalization made a special token of text that the caller wants as ordinary text.
        encodings, rows = _encode_valid_texts(tokenizer, valid_texts, options, as_text=True)
        matched = _find_special(tokenizer, encodings, rows)
    _reject_special(matched, ordinary, disallowed)
    return encodings, rows


def _encodes_special_as_text(texts: list[str], allowed: frozenset[str], ordinary: frozenset[str]) -> bool:
    """Returns whether texts contain special tokens to encode as ordinary text.

    Args:
        texts: texts.
        allowed: special tokens to match in texts.
        ordinary: special tokens to encode as ordinary text.

    Raises:
        InvalidArgumentError: the texts contain special tokens of both kinds.
    """
    if not any(has_special(text, ordinary) for text in texts):
        return False
    if any(has_special(text, allowed) for text in texts):
        raise InvalidArgumentError(
            "the tokenizers library matches all special tokens in a text or none, but the texts contain "
            f"allowed ones and ones to encode as ordinary text ({sorted(ordinary)[:5]}); allow all of "
            "them, or disallow the others"
        )
    return True


def _encode_valid_texts(
    tokenizer: LibraryRecord, texts: list[str], options: EncodeOptions, as_text: bool
) -> tuple[list[Any], list[NDArray[np.int32]]]:
    """Returns the library's encodings of texts, and the ids of each text."""
    library = tokenizer.special_as_text_tokenizer if as_text else tokenizer.library_tokenizer
    encode = library.encode_batch if options.return_offsets else library.encode_batch_fast
    with raise_as(InvalidArgumentError, "the tokenizers library can't encode these texts"):
        encodings: list[Any] = encode(texts, add_special_tokens=options.add_special_tokens)
    return encodings, [np.array(encoding.ids, np.int32) for encoding in encodings]


def _find_special(
    tokenizer: LibraryRecord, encodings: list[Any], rows: list[NDArray[np.int32]]
) -> dict[str, int]:
    """Returns the special tokens that the library matched in texts, with the index of a text.

    The unknown token of the model and tokens that the template inserts are left out.
    """
    matched: dict[str, int] = {}
    is_special, names = tokenizer.vocabulary.is_special, tokenizer.names_by_special_id
    for row, (encoding, ids) in enumerate(zip(encodings, rows, strict=True)):
        positions = is_special.take(ids).nonzero()[0].tolist()
        inserted = encoding.special_tokens_mask if positions else ()
        for position in positions:
            if not inserted[position] and (name := names.get(int(ids[position]))) is not None:
                matched[name] = row
    return matched


def _reject_special(matched: Mapping[str, int], ordinary: frozenset[str], disallowed: frozenset[str]) -> None:
    """Raises for special tokens that the library matched although they are disallowed or ordinary text."""
    for name, row in matched.items():
        if name in disallowed:
            raise DisallowedSpecialTokenError(
                f"text {row} becomes the special token {name!r} when it is normalized, which is not allowed; "
                f"to match it, pass allowed_special={{{name!r}}}"
            )
    for name, row in matched.items():
        if name in ordinary:
            raise InvalidArgumentError(
                f"text {row} contains {name!r}, which this model encodes as a special token even where "
                "ordinary text is requested; allow it with allowed_special=, or disallow it"
            )


def _compute_offsets(
    tokenizer: LibraryRecord, text: Text, encoding: Any, ids: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Returns the 1-based half-open byte spans of the tokens of a text, `int64`, shape `(num_tokens, 2)`."""
    data = to_utf8(text)
    characters = np.array(encoding.offsets, np.int64).reshape(-1, 2)
    # Offsets can exceed the text where the model adds a suffix to words, so they are clipped.
    spans = find_character_starts(data).take(characters, mode="clip") + 1
    inserted = np.array(encoding.special_tokens_mask, bool)
    spans[inserted] = 0
    spans[~inserted] = separate_spans(
        spans[~inserted], ids[~inserted], tokenizer.span_bytes, tokenizer.prefix_ids, data
    )
    return spans


def _replace_surrogates(characters: str) -> str:
    """Returns a text that the library can encode, with as many characters."""
    if characters.isascii() or is_encodable(characters):
        return characters
    return characters.translate(_SURROGATES_TO_REPLACEMENT)


def _concatenate(rows: Sequence[Sequence[int]]) -> NDArray[np.int32]:
    return np.concatenate([np.zeros(0, np.int32), *(np.array(row, np.int32) for row in rows)])
