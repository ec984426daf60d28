"""Tokenizers that run on Hugging Face's `tokenizers` library.

The library normalizes, splits and encodes, so the ids are its ids. This module adds byte offsets without
overlaps, checks of special tokens in texts, and limits for untrusted files.

Encoding a batch:

1. Reject disallowed special tokens in the texts.
2. Encode with the library. Its tokenizer either matches all special tokens in a text or none
   (`encode_special_tokens`), so there are two instances, and other combinations raise an error.
3. Reject special tokens that the library found although they are not in the text: normalization can turn
   "<|END|>" into "<|end|>".
4. Convert character offsets to byte offsets, separate spans that overlap (`separate_spans`), and extend spans
   over all characters that the normalizer made one of (`cover_changed_characters`).
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Unpack

import numpy as np

from tokjax._util.checks import MANY_TEXTS_ADVICE, check_text, check_texts
from tokjax._util.imports import import_optional
from tokjax._util.threads import resolve_num_threads
from tokjax.bpe.array_engine import FEW_CHARACTERS
from tokjax.core import protocol
from tokjax.core.decode_stream import find_decode_context
from tokjax.core.encode_options import SpecialOptions, accept_options
from tokjax.core.pretokens import PreTokens, make_pretokens, pre_tokenize, raise_without_pretokens
from tokjax.core.ragged import Ragged, concatenate_ranges, make_row_splits
from tokjax.core.records import ResultMetadata, TokenizationBatch, make_batch_without_copy
from tokjax.core.token_byte_lengths import BYTE_PIECE, find_text_lengths
from tokjax.core.utf8 import find_character_starts, is_encodable, to_characters, to_utf8
from tokjax.core.vocabulary import (
    AddedToken,
    make_vocabulary,
    roles_from_json,
    roles_to_json,
    select_roles,
)
from tokjax.errors import DisallowedSpecialTokenError, InvalidArgumentError, TokenizerFormatError
from tokjax.formats.huggingface.changed_characters import ChangeTest, cover_changed_characters
from tokjax.formats.huggingface.decoders import make_finality_test
from tokjax.formats.huggingface.definition import (
    RequiresLibraryError,
    decode_byte_level_forms,
    encode_forms,
    get_steps,
    get_unknown_token,
    is_byte_level,
    merge_added_tokens,
    parse_template,
)
from tokjax.formats.huggingface.growth_limits import check_growth
from tokjax.formats.huggingface.word_engine import WordEngine, find_word_rules
from tokjax.models.assembly import (
    RowLayout,
    assemble,
    compute_offsets_from_spans,
    compute_sequence_ids,
    compute_word_ids,
)
from tokjax.models.base import TokenizerRecord
from tokjax.models.byte_spans import separate_spans
from tokjax.models.format_errors import (
    as_format_errors,
    check_piece_comparisons,
    check_vocab_size,
    check_work_per_position,
)
from tokjax.models.vocabulary_changes import extend_vocabulary, map_old_ids
from tokjax.pretokenize.bytes_to_unicode import map_bytes_to_unicode, map_unicode_to_bytes
from tokjax.pretokenize.special_tokens import (
    check_comparisons,
    check_special_names,
    has_special,
    reject_special_in_texts,
    resolve_special,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from tokjax.bpe.encoded_segments import EncodedSegments
    from tokjax.core.utf8 import Text
    from tokjax.core.vocabulary import Role, Vocabulary
    from tokjax.errors import TokjaxError

_FEW_CORES = 4
"""With more cores, the library's own threads compute ids without offsets faster than one thread that looks up
words."""
_SURROGATES_TO_REPLACEMENT = dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


class LibraryTemplate(NamedTuple):
    """Tokens that the library inserts around a text.

    Attributes:
        before: ids before the text.
        after: ids after the text.
        inserted_types: type ids of both, `int32`, shapes `(before,)` and `(after,)`.
        text_type: type id of the tokens of the text.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    inserted_types: tuple[NDArray[np.int32], NDArray[np.int32]]
    text_type: int


@dataclass(frozen=True)
class HuggingFaceTokenizer(TokenizerRecord):
    """Tokenizer that runs on the `tokenizers` library. `load_tokenizer` and `from_huggingface` create it.

    Offsets refer to the input text, even if the library normalizes it. A byte that is not valid UTF-8 and a
    lone surrogate are encoded as U+FFFD, each with its own span. Spans do not overlap: tokens that are the
    bytes of one character have one byte each, and the span of a `▁` or space that is added before a text is
    empty. If the library assigns the same characters to several other tokens, the first of them gets the
    span. If the normalizer makes one character of several, such as `é` of `e` and an accent, the span of its
    token includes all of them.

    Tokenizers with equal fields are equal. Pickling keeps only the fields. Threads can share a tokenizer.

    Attributes:
        definition: contents of a `tokenizer.json`, as JSON text.
        vocabulary: token ids and token bytes.
        reason: why the tokenizer does not run as a built-in type.
    """

    model: ClassVar[str] = "huggingface"

    definition: str
    vocabulary: Vocabulary
    reason: str

    @cached_property
    def library_tokenizer(self) -> Any:
        """The library's `Tokenizer`. Do not change its settings."""
        return _load_library_tokenizer(self.definition)

    @cached_property
    def special_as_text_tokenizer(self) -> Any:
        """The library's `Tokenizer`, with special tokens in texts encoded as ordinary text."""
        instance = _load_library_tokenizer(self.definition)
        instance.encode_special_tokens = True
        return instance

    @cached_property
    def word_engine(self) -> WordEngine | None:
        """Engine that looks up words, or `None` if the words of a text can't be encoded separately."""
        rules = find_word_rules(self.contents)
        if rules is None or self.library_template is None:
            return None
        return WordEngine(
            self.library_tokenizer, rules, partial(_locate, self), self.vocabulary.get_role_id("unk")
        )

    @cached_property
    def library_template(self) -> LibraryTemplate | None:
        """Tokens that the library inserts around a text; `None` if it encodes the text "a" to no ids."""
        encoding = self.library_tokenizer.encode("a")
        ids, types = _to_array(encoding.ids), _to_array(encoding.type_ids)
        positions = np.flatnonzero(_to_array(encoding.special_tokens_mask) == 0)
        if not len(positions):
            return None
        first, last = int(positions[0]), int(positions[-1]) + 1
        before, after = ids[:first].tolist(), ids[last:].tolist()
        return LibraryTemplate(tuple(before), tuple(after), (types[:first], types[last:]), int(types[first]))

    @cached_property
    def contents(self) -> dict[str, Any]:
        """The parsed definition."""
        contents: dict[str, Any] = json.loads(self.definition)
        return contents

    @cached_property
    def pipeline(self) -> dict[str, Any]:
        """The definition without its model and added tokens: the part that encoding and decoding use."""
        return _select_pipeline(self.contents)

    @cached_property
    def special_by_id(self) -> dict[int, str]:
        """Id to name of the special tokens, except for the unknown token."""
        unknown = self.vocabulary.roles.get("unk")
        return {id_: name for name, id_ in self.vocabulary.special.items() if name != unknown}

    @cached_property
    def is_byte_level(self) -> bool:
        """Whether tokens are written as `bytes_to_unicode` writes bytes."""
        return is_byte_level(self.pipeline)

    @cached_property
    def prefix_ids(self) -> frozenset[int]:
        """Ids of the tokens that a normalizer or pre-tokenizer adds before texts, such as `▁`."""
        steps = [*get_steps(self.pipeline, "normalizer"), *get_steps(self.pipeline, "pre_tokenizer")]
        forms = {" "} | {step.get("prepend") or step.get("replacement") or " " for step in steps}
        if self.is_byte_level:
            forms = {map_bytes_to_unicode(form.encode("utf-8")) for form in forms}
        ids = map(self.library_tokenizer.token_to_id, forms)
        return frozenset(id_ for id_ in ids if id_ is not None)

    @cached_property
    def decoded_bytes(self) -> Mapping[int, bytes] | None:
        """Id to bytes, as a byte-level decoder decodes them; `None` if the definition has another decoder.

        The decoder reads each token as `bytes_to_unicode` writes bytes, including added tokens. So an added
        token `é` is decoded to one byte.
        """
        decoder = self.pipeline.get("decoder")
        if decoder is None or decoder.get("type") != "ByteLevel":
            return None
        added_ids = {*self.library_tokenizer.get_added_tokens_decoder(), *self.vocabulary.special.values()}
        forms = {id_: self.library_tokenizer.id_to_token(id_) for id_ in added_ids}
        added_bytes = {id_: map_unicode_to_bytes(form) or form.encode("utf-8") for id_, form in forms.items()}
        return {**self.vocabulary.bytes_by_id, **added_bytes}

    @cached_property
    def finality_test(self) -> Callable[[str], bool] | None:
        """Test of tokens: whether the text up to a token is final; `None` if no text is before the end."""
        return make_finality_test(get_steps(self.pipeline, "decoder"))

    @cached_property
    def skipped_ids(self) -> frozenset[int]:
        """Ids that the library leaves out with `skip_special_tokens`."""
        added_tokens: dict[int, Any] = self.library_tokenizer.get_added_tokens_decoder()
        special = {token.content for token in added_tokens.values() if token.special}
        return frozenset(id_ for id_ in added_tokens if self.library_tokenizer.id_to_token(id_) in special)

    @cached_property
    def span_bytes(self) -> list[bytes]:
        """Bytes of the text span of each id, for `separate_spans`. Other ids have the bytes of their form.

        Trimmed spans leave out spaces, and a byte token such as `<0xE6>` spans one byte.
        """
        trims = any(step.get("trim_offsets") for step in get_steps(self.pipeline, "post_processor"))
        span_bytes = [b""] * self.vocabulary.size
        for id_, token in self.vocabulary.bytes_by_id.items():
            if self.is_byte_level:
                span_bytes[id_] = token.strip(b" ") if trims else token
            else:
                is_byte = BYTE_PIECE.fullmatch(token)
                span_bytes[id_] = bytes([int(token[3:5], 16)]) if is_byte else token
        return span_bytes

    @cached_property
    def change_test(self) -> ChangeTest | None:
        """Test of characters that the normalizer changes together; `None` without a normalizer."""
        normalizer = self.library_tokenizer.normalizer
        return None if normalizer is None else ChangeTest(normalizer.normalize_str)

    @cached_property
    def normalization(self) -> str | None:
        """Types of the normalizer's steps, joined with `+`; `None` without a normalizer."""
        return "+".join(str(step.get("type")) for step in get_steps(self.pipeline, "normalizer")) or None

    def __hash__(self) -> int:
        """Hashes the definition."""
        return hash(self.definition)

    def _to_fingerprint_json(self) -> Any:
        roles = {str(role): name for role, name in self.vocabulary.roles.items()}
        return [self.model, self.contents, roles]

    def __repr__(self) -> str:
        """Returns the vocabulary size, the special tokens, and the reason for running on the library."""
        return (
            f"HuggingFaceTokenizer(vocab_size={self.vocabulary.size}, "
            f"special_tokens={self.vocabulary.special_repr}; runs on the tokenizers library: {self.reason})"
        )


def build_huggingface_tokenizer(
    definition: str, reason: str, roles: Mapping[Role, str], contents: Mapping[str, Any] | None = None
) -> HuggingFaceTokenizer:
    """Builds a tokenizer that runs on the library.

    Its special tokens are the added tokens with `special=true`, the tokens that the template inserts, and the
    unknown token of the model.

    Args:
        definition: contents of a `tokenizer.json`, as JSON text.
        reason: why the tokenizer does not run as a built-in type.
        roles: role to the name of a token; see `select_roles`.
        contents: parsed definition, if the caller has it.

    Raises:
        MissingExtraError: the library is not installed.
        TokenizerFormatError: the library can't read the definition, or its tokens are not a valid vocabulary.
    """
    contents = json.loads(definition) if contents is None else contents
    _check_limits(contents)
    _check_merges(contents["model"])
    library = _load_library_tokenizer(definition)
    _check_pieces(contents["model"])
    _check_model(library.model, contents["model"])
    unknown = get_unknown_token(contents)
    forms: dict[str, int] = library.get_vocab(with_added_tokens=True)
    try:
        template = parse_template(contents, forms)
    except RequiresLibraryError as error:
        raise TokenizerFormatError(str(error)) from error
    library_added_tokens = library.get_added_tokens_decoder()
    names = {token.content for token in library_added_tokens.values() if token.special}
    names.update(template.tokens)
    names |= {unknown} if unknown in forms else set()
    # An added token that the model can also produce from text is a token of the model. In a byte-level model
    # it is written as `bytes_to_unicode` writes bytes: the bytes of "Ġ" are those of a space.
    byte_level = is_byte_level(contents)
    model_forms = _get_model_forms(contents["model"]) if byte_level else ()
    added_tokens = {
        token.content: id_
        for id_, token in library_added_tokens.items()
        if token.content not in names
        and not (token.content in model_forms and map_unicode_to_bytes(token.content))
    }
    remaining = {form: id_ for form, id_ in forms.items() if form not in names and form not in added_tokens}
    model_tokens = decode_byte_level_forms(remaining) if byte_level else encode_forms(remaining)
    ordinary, duplicate_token_ids = merge_added_tokens(model_tokens, added_tokens)
    declared_roles = select_roles(roles, ordinary, names)
    declared_roles.setdefault("unk", unknown if unknown in forms else None)
    vocabulary = make_vocabulary(
        ordinary,
        {name: forms[name] for name in names},
        declared_roles,
        template,
        dict.fromkeys(duplicate_token_ids, AddedToken()),
        duplicate_token_ids,
    )
    check_comparisons(vocabulary.split_token_names)
    instance = HuggingFaceTokenizer(definition, vocabulary, reason)
    # Fill two cached properties, so that they are not computed again.
    vars(instance).update(library_tokenizer=library, pipeline=_select_pipeline(contents))
    return instance


def to_json(tokenizer: HuggingFaceTokenizer) -> dict[str, Any]:
    """Returns the definition of a tokenizer as JSON values."""
    return {
        "model": HuggingFaceTokenizer.model,
        "definition": tokenizer.definition,
        "reason": tokenizer.reason,
        **roles_to_json(tokenizer.vocabulary),
    }


def from_json(described: Mapping[str, Any]) -> HuggingFaceTokenizer:
    """Makes a tokenizer from the JSON values that `to_json` returns.

    Raises:
        MissingExtraError: the library is not installed.
        TokenizerFormatError: a field is missing or has the wrong type, or the values are invalid.
    """
    with as_format_errors():
        return build_huggingface_tokenizer(
            described["definition"], described["reason"], roles_from_json(described)
        )


def _select_pipeline(contents: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in contents.items() if name not in ("model", "added_tokens")}


def _load_library_tokenizer(definition: str) -> Any:
    """Loads the library's `Tokenizer` for a definition, without padding and truncation.

    Raises:
        MissingExtraError: the library is not installed.
        TokenizerFormatError: the library can't read the definition.
    """
    tokenizers = import_optional("tokenizers", extra="huggingface", purpose="this tokenizer")
    with _raise_as(TokenizerFormatError, "the tokenizers library can't read it"):
        instance = tokenizers.Tokenizer.from_str(definition)
    instance.no_padding()
    instance.no_truncation()
    return instance


@contextmanager
def _raise_as(error_type: type[TokjaxError], message: str) -> Iterator[None]:
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


def _check_limits(contents: Mapping[str, Any]) -> None:
    """Rejects a definition that exceeds `tokjax.limits`, before the library reads it."""
    model = contents.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, (dict, list)):
        check_vocab_size(len(vocab), "the model's vocab")
    check_growth(contents)


def _check_model(library_model: Any, model: Mapping[str, Any]) -> None:
    """Rejects a model with which encoding takes too long."""
    if isinstance(model["vocab"], list):
        check_piece_comparisons([piece for piece, _ in model["vocab"]])
    elif type(library_model).__name__ == "WordPiece":
        # The library compares every substring of a word with the vocabulary.
        longest = library_model.max_input_chars_per_word
        check_work_per_position(longest * longest // 2, f"max_input_chars_per_word is {longest:,}")


def _check_merges(model: Mapping[str, Any]) -> None:
    """Raises `TokenizerFormatError` for merges that abort the process when the library reads them.

    With a `continuing_subword_prefix`, the library removes as many bytes from the second token as the prefix
    has characters. If the token does not begin with the prefix, that can split a character.
    """
    prefix = model.get("continuing_subword_prefix") or ""
    for merge in model.get("merges") or [] if prefix else []:
        second = merge.partition(" ")[2] if isinstance(merge, str) else merge[-1]
        if not second.startswith(prefix):
            raise TokenizerFormatError(
                f"the merge {merge!r}: the second token does not begin with the continuing_subword_prefix "
                f"{prefix!r} of the model"
            )


def _check_pieces(model: Mapping[str, Any]) -> None:
    """Raises `TokenizerFormatError` for a Unigram vocabulary with a duplicate piece."""
    if not isinstance(model["vocab"], list):
        return
    seen: set[str] = set()
    for piece, _ in model["vocab"]:
        if piece in seen:
            raise TokenizerFormatError(
                f"the model's vocab has the duplicate piece {piece!r}, so that two ids have the same token; "
                "remove the later one (the library's trainer creates it from text that contains a special "
                "token)"
            )
        seen.add(piece)


def _get_model_forms(model: Mapping[str, Any]) -> Container[str]:
    """Returns the tokens of the model, without added tokens."""
    vocab = model["vocab"]
    return vocab if isinstance(vocab, dict) else frozenset(piece for piece, _ in vocab)


@protocol.encode_texts.register(HuggingFaceTokenizer)
@accept_options(SpecialOptions)
def _encode_texts(
    tokenizer: HuggingFaceTokenizer,
    texts: Sequence[Text],
    *,
    add_special_tokens: bool = True,
    return_offsets: bool = True,
    return_masks: bool = True,
    assume_normalized: bool = False,  # noqa: ARG001 (offsets always refer to the input text)
    threads: int | None = None,  # noqa: ARG001 (the library has its own threads)
    **special: Unpack[SpecialOptions],
) -> TokenizationBatch:
    check_texts(texts)
    options = _EncodeOptions(add_special_tokens, return_offsets, return_masks)
    columns, splits = _encode_columns(tokenizer, texts, options, special)
    metadata = ResultMetadata(tokenizer.model, tokenizer.normalization, "input_text")
    return make_batch_without_copy(
        Ragged(columns.pop("ids"), splits, **columns),
        metadata,
        tokenizer.vocabulary.get_token_strings,
        has_attention_mask=return_masks,
    )


class _EncodeOptions(NamedTuple):
    """Options of `encode_batch_result` with the same names."""

    add_special_tokens: bool
    return_offsets: bool
    return_masks: bool


def _encode_columns(
    tokenizer: HuggingFaceTokenizer, texts: Sequence[Text], options: _EncodeOptions, special: SpecialOptions
) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
    """Returns the columns of a batch, `ids` included, and its row splits."""
    engine = tokenizer.word_engine if _is_word_engine_faster(texts, options) else None
    if engine is None:
        return _encode_by_library(tokenizer, texts, range(len(texts)), options, special)
    _, disallowed = resolve_special(tokenizer.vocabulary.special_names, **special)
    characters = [to_characters(text) for text in texts]
    reject_special_in_texts(characters, disallowed)
    valid_texts = list(map(_replace_surrogates, characters))
    encoded, needs_library = engine.encode(valid_texts, sources=options.return_offsets)
    # A byte that is not valid UTF-8 has other offsets than the character that replaces it.
    needs_library |= np.array(
        [old is not new for old, new in zip(characters, valid_texts, strict=True)], bool
    )
    if needs_library.all():
        return _encode_by_library(tokenizer, texts, range(len(texts)), options, special)
    columns, splits = _complete_columns(tokenizer, encoded, options)
    rows = np.flatnonzero(needs_library).tolist()
    if not rows:
        return columns, splits
    other = _encode_by_library(tokenizer, [texts[row] for row in rows], rows, options, special)
    return _replace_rows(columns, splits, needs_library, *other)


def _is_word_engine_faster(texts: Sequence[Text], options: _EncodeOptions) -> bool:
    """Returns whether looking up words is faster than the library, which uses all cores for many texts."""
    if sum(map(len, texts)) <= FEW_CHARACTERS:
        return False
    return options.return_offsets or len(texts) == 1 or resolve_num_threads(None) <= _FEW_CORES


def _complete_columns(
    tokenizer: HuggingFaceTokenizer, encoded: EncodedSegments, options: _EncodeOptions
) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
    """Inserts the special tokens of the template, and computes all columns.

    Args:
        tokenizer: tokenizer to encode with.
        encoded: ids of texts, each of which is one segment, with their spans in the text.
        options: which tokens to insert, and which columns to compute.
    """
    template = tokenizer.library_template
    assert template is not None
    num_texts = len(encoded.splits) - 1
    empty = np.zeros(0, np.int64)
    layout = RowLayout(empty, empty, np.zeros(num_texts, np.int64))
    if options.add_special_tokens:
        layout = layout._replace(before=template.before, after=template.after)
    assembled = assemble(encoded, layout)
    columns: dict[str, NDArray[Any]] = {"ids": assembled.ids}
    if options.return_offsets:
        assert encoded.begins_word is not None
        no_bytes = np.zeros(num_texts, np.int64)  # each segment starts where its text starts
        columns["offsets"] = compute_offsets_from_spans(assembled, encoded, layout, no_bytes)
        columns["word_ids"] = compute_word_ids(assembled, encoded.begins_word)
        columns["sequence_ids"] = compute_sequence_ids(assembled)
    if options.return_masks:
        mask = tokenizer.vocabulary.is_special.take(assembled.ids).astype(np.int32)
        mask[assembled.inserted_positions] = 1
        types = np.full(len(assembled.ids), template.text_type, np.int32)
        if options.add_special_tokens:
            inserted_types = [np.tile(types_, num_texts) for types_ in template.inserted_types]
            types[assembled.inserted_positions] = np.concatenate(inserted_types)
        columns |= {"special_tokens_mask": mask, "token_type_ids": types}
    return columns, assembled.row_splits


def _replace_rows(
    columns: dict[str, NDArray[Any]],
    splits: NDArray[np.int64],
    is_replaced: NDArray[np.bool_],
    other_columns: dict[str, NDArray[Any]],
    other_splits: NDArray[np.int64],
) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
    """Returns columns and row splits, with other rows for those that are flagged, in order."""
    starts, lengths = splits[:-1].copy(), np.diff(splits)
    starts[is_replaced], lengths[is_replaced] = other_splits[:-1] + splits[-1], np.diff(other_splits)
    tokens = concatenate_ranges(starts, lengths)
    merged = {
        name: np.concatenate([column, other_columns[name]]).take(tokens, axis=0)
        for name, column in columns.items()
    }
    return merged, make_row_splits(lengths)


def _encode_by_library(
    tokenizer: HuggingFaceTokenizer,
    texts: Sequence[Text],
    numbers: Sequence[int],
    options: _EncodeOptions,
    special: SpecialOptions,
) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
    """Returns the columns of texts that the library encodes, and their row splits.

    Args:
        tokenizer: tokenizer to encode with.
        texts: texts.
        numbers: number of each text, for error messages.
        options: which tokens to insert, and which columns to compute.
        special: options `allowed_special` and `disallowed_special`.
    """
    encodings, rows = _encode_rows(
        tokenizer, texts, numbers, options.add_special_tokens, special, offsets=options.return_offsets
    )
    ids = np.concatenate([np.zeros(0, np.int32), *rows])
    columns: dict[str, NDArray[Any]] = {"ids": ids}
    if options.return_offsets:
        columns |= _compute_source_columns(tokenizer, texts, encodings, rows)
    if options.return_masks:
        mask = np.concatenate([np.zeros(0, np.int32), *(_to_array(e.special_tokens_mask) for e in encodings)])
        mask[tokenizer.vocabulary.is_special.take(ids)] = 1
        types = np.concatenate([np.zeros(0, np.int32), *(_to_array(e.type_ids) for e in encodings)])
        columns |= {"special_tokens_mask": mask, "token_type_ids": types}
    return columns, make_row_splits(map(len, rows))


@protocol.encode.register(HuggingFaceTokenizer)
@accept_options(SpecialOptions)
def _encode(
    tokenizer: HuggingFaceTokenizer,
    text: Text,
    *,
    add_special_tokens: bool = True,
    **special: Unpack[SpecialOptions],
) -> NDArray[np.int32]:
    check_text(text, "text", MANY_TEXTS_ADVICE)
    options = _EncodeOptions(add_special_tokens, return_offsets=False, return_masks=False)
    columns, _ = _encode_columns(tokenizer, [text], options, special)
    return columns["ids"]


@pre_tokenize.register(HuggingFaceTokenizer)
@accept_options(SpecialOptions)
def _pre_tokenize(
    tokenizer: HuggingFaceTokenizer, text: Text, **special: Unpack[SpecialOptions]
) -> PreTokens:
    """Groups tokens by word id: the library numbers the pre-tokens and the matched added tokens."""
    if tokenizer.pipeline.get("pre_tokenizer") is None:
        raise_without_pretokens(tokenizer, "its definition has no pre-tokenizer")
    check_text(text, "text", MANY_TEXTS_ADVICE)
    [result] = protocol.encode_texts(tokenizer, [text], add_special_tokens=False, **special)
    assert result.word_ids is not None
    assert result.offsets is not None
    is_first = np.diff(result.word_ids, prepend=-1) != 0
    is_last = np.append(is_first[1:], True)[: len(is_first)]
    spans = np.stack([result.offsets[is_first, 0], result.offsets[is_last, 1]], axis=1)
    return make_pretokens(to_utf8(text), spans)


def _encode_rows(
    tokenizer: HuggingFaceTokenizer,
    texts: Sequence[Text],
    numbers: Sequence[int],
    add_special_tokens: bool,
    special: SpecialOptions,
    *,
    offsets: bool,
) -> tuple[list[Any], list[NDArray[np.int32]]]:
    """Encodes texts with the library.

    Args:
        tokenizer: tokenizer to encode with.
        texts: texts.
        numbers: number of each text, for error messages.
        add_special_tokens: whether to insert the special tokens of the template.
        special: options `allowed_special` and `disallowed_special`.
        offsets: whether the encodings need offsets.

    Returns:
        The library's encoding of each text, and the ids of each text, `int32`, shape `(num_tokens,)`.

    Raises:
        DisallowedSpecialTokenError: a text contains a disallowed special token, or becomes one.
        InvalidArgumentError: the library can't encode the texts with these options.
    """
    names = tokenizer.vocabulary.special_names
    allowed, disallowed = resolve_special(names, **special)
    characters = [to_characters(text) for text in texts]
    reject_special_in_texts(characters, disallowed)
    valid_texts = list(map(_replace_surrogates, characters))
    ordinary = frozenset[str]()
    if special.get("disallowed_special", "all") != "all":
        ordinary = names - allowed - disallowed if allowed or disallowed else names
    library = _select_library_tokenizer(tokenizer, valid_texts, allowed, ordinary)
    encodings = _encode_with_library(library, valid_texts, add_special_tokens, offsets=offsets)
    rows = [_to_array(encoding.ids) for encoding in encodings]
    matched = _find_special(tokenizer, encodings, rows)
    if library is tokenizer.library_tokenizer and not matched.keys().isdisjoint(ordinary):
        # Normalization made a special token of text that the caller wants as ordinary text. Encode it again.
        library = tokenizer.special_as_text_tokenizer
        encodings = _encode_with_library(library, valid_texts, add_special_tokens, offsets=offsets)
        rows = [_to_array(encoding.ids) for encoding in encodings]
        matched = _find_special(tokenizer, encodings, rows)
    _reject_special({name: numbers[row] for name, row in matched.items()}, ordinary, disallowed)
    return encodings, rows


def _replace_surrogates(characters: str) -> str:
    """Returns a text that the library can encode, with as many characters."""
    if characters.isascii() or is_encodable(characters):
        return characters
    return characters.translate(_SURROGATES_TO_REPLACEMENT)


def _select_library_tokenizer(
    tokenizer: HuggingFaceTokenizer, texts: list[str], allowed: frozenset[str], ordinary: frozenset[str]
) -> Any:
    """Returns the library's tokenizer that matches allowed special tokens and encodes others as text.

    Args:
        tokenizer: tokenizer to encode with.
        texts: texts.
        allowed: special tokens to match in texts.
        ordinary: special tokens to encode as ordinary text.

    Raises:
        InvalidArgumentError: the texts contain special tokens of both kinds.
    """
    if not any(has_special(text, ordinary) for text in texts):
        return tokenizer.library_tokenizer
    if any(has_special(text, allowed) for text in texts):
        raise InvalidArgumentError(
            "the tokenizers library matches all special tokens in a text or none, but the texts contain "
            f"allowed ones and ones to encode as ordinary text ({sorted(ordinary)[:5]}); allow all of them, "
            "or disallow the others"
        )
    return tokenizer.special_as_text_tokenizer


def _encode_with_library(
    library: Any, texts: list[str], add_special_tokens: bool, *, offsets: bool
) -> list[Any]:
    encode = library.encode_batch if offsets else library.encode_batch_fast
    with _raise_as(InvalidArgumentError, "the tokenizers library can't encode these texts"):
        encodings: list[Any] = encode(texts, add_special_tokens=add_special_tokens)
    return encodings


def _find_special(
    tokenizer: HuggingFaceTokenizer, encodings: list[Any], rows: list[NDArray[np.int32]]
) -> dict[str, int]:
    """Returns the special tokens that the library matched in texts, with the index of a text.

    The unknown token and tokens that the template inserts are left out.
    """
    matched: dict[str, int] = {}
    is_special, names = tokenizer.vocabulary.is_special, tokenizer.special_by_id
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


def _compute_source_columns(
    tokenizer: HuggingFaceTokenizer,
    texts: Sequence[Text],
    encodings: Sequence[Any],
    rows: Sequence[NDArray[np.int32]],
) -> dict[str, Any]:
    """Computes the columns `offsets`, `word_ids` and `sequence_ids`."""
    offsets = [np.zeros((0, 2), np.int64)]
    sequences = [np.zeros(0, np.int32)]
    for text, encoding, ids in zip(texts, encodings, rows, strict=True):
        # Inserted tokens have mask 1. The library's own sequence ids are wrong after two post-processors.
        row_sequences = -_to_array(encoding.special_tokens_mask)
        characters, data = np.array(encoding.offsets, np.int64).reshape(-1, 2), to_utf8(text)
        # Offsets can exceed the text where the model adds a suffix to words, so they are clipped.
        spans = find_character_starts(data).take(characters, mode="clip") + 1
        from_text = row_sequences == 0
        spans[~from_text] = 0
        spans[from_text] = _separate(tokenizer, spans[from_text], ids[from_text], data)
        offsets.append(spans)
        sequences.append(row_sequences)
    word_id_rows = [_to_array([-1 if i is None else i for i in encoding.word_ids]) for encoding in encodings]
    return {
        "offsets": np.concatenate(offsets),
        "word_ids": np.concatenate([np.zeros(0, np.int32), *word_id_rows]),
        "sequence_ids": np.concatenate(sequences),
    }


def _locate(tokenizer: HuggingFaceTokenizer, text: str, encoding: Any) -> NDArray[np.int64]:
    """Returns the 1-based byte spans of an encoding without inserted tokens, `int64`, shape `(n, 2)`."""
    data = text.encode("utf-8")
    characters = np.array(encoding.offsets, np.int64).reshape(-1, 2)
    spans = find_character_starts(data).take(characters, mode="clip") + 1
    return _separate(tokenizer, spans, _to_array(encoding.ids), data)


def _separate(
    tokenizer: HuggingFaceTokenizer, spans: NDArray[np.int64], ids: NDArray[np.int32], data: bytes
) -> NDArray[np.int64]:
    separate = separate_spans(spans, ids, tokenizer.span_bytes, tokenizer.prefix_ids, data)
    test = tokenizer.change_test
    return separate if test is None else cover_changed_characters(separate, data, test)


def _to_array(values: Sequence[int]) -> NDArray[np.int32]:
    return np.array(values, np.int32)


@protocol.decode_bytes.register(HuggingFaceTokenizer)
def _decode_bytes(
    tokenizer: HuggingFaceTokenizer, ids: ArrayLike, *, skip_special_tokens: bool = False
) -> bytes:
    flat = protocol.as_flat_ids(ids)
    tokenizer.vocabulary.check_ids(flat)
    id_list: list[int] = flat.tolist()
    id_bytes = tokenizer.decoded_bytes
    if id_bytes is not None:
        skipped = tokenizer.skipped_ids if skip_special_tokens else ()
        return b"".join([id_bytes[id_] for id_ in id_list if id_ not in skipped])
    with _raise_as(InvalidArgumentError, "the tokenizers library can't decode these ids"):
        text: str = tokenizer.library_tokenizer.decode(id_list, skip_special_tokens=skip_special_tokens)
    return text.encode("utf-8")


protocol.decode_batch.register(HuggingFaceTokenizer)(protocol.decode_row_by_row)


@find_decode_context.register(HuggingFaceTokenizer)
def _find_decode_context(
    tokenizer: HuggingFaceTokenizer, ids: NDArray[np.int32], *, skip_special_tokens: bool = False
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Finds the pending ids: those after the last token that makes the text final.

    The context are the ids after an earlier such token, as few as have text. The spaces that decoders remove
    at the start of a text, or add between tokens, do not depend on more than that.
    """
    if tokenizer.decoded_bytes is not None:
        return ids[:0], ids[:0]
    if tokenizer.finality_test is None:
        return ids[:0], ids
    skipped = tokenizer.skipped_ids if skip_special_tokens else ()
    get_form = tokenizer.library_tokenizer.id_to_token
    is_final = tokenizer.finality_test
    visible = [(i, id_) for i, id_ in enumerate(ids.tolist(), 1) if id_ not in skipped]
    stops = [0, *(i for i, id_ in visible if is_final(get_form(id_)))]
    context = ids[:0]
    for start in reversed(stops[:-1]):
        context = _to_array([id_ for i, id_ in visible if start < i <= stops[-1]])
        if protocol.decode_bytes(tokenizer, context):
            break
    first_pending = next((i - 1 for i, _ in visible if i > stops[-1]), len(ids))
    return context, ids[first_pending:]


@find_text_lengths.register(HuggingFaceTokenizer)
def _find_text_lengths(tokenizer: HuggingFaceTokenizer) -> NDArray[np.integer[Any]]:
    lengths = np.zeros(tokenizer.vocabulary.size, np.int64)
    if tokenizer.decoded_bytes is not None:
        lengths[list(tokenizer.decoded_bytes)] = [*map(len, tokenizer.decoded_bytes.values())]
        return lengths
    lengths[:] = find_text_lengths.dispatch(object)(tokenizer)
    if any(step.get("type") == "ByteFallback" for step in get_steps(tokenizer.pipeline, "decoder")):
        # The library decodes a part of a character to U+FFFD, which is longer.
        tokens = tokenizer.vocabulary.bytes_by_id
        lengths[[id_ for id_, token in tokens.items() if BYTE_PIECE.fullmatch(token)]] = 1
    return lengths


@extend_vocabulary.register(HuggingFaceTokenizer)
def _extend_vocabulary(
    tokenizer: HuggingFaceTokenizer,
    tokens: Sequence[str],
    *,
    special: bool = False,
    pad_token: str | None = None,
) -> tuple[HuggingFaceTokenizer, NDArray[np.int32]]:
    library, roles = _load_library_tokenizer(tokenizer.definition), dict(tokenizer.vocabulary.roles)
    names = check_special_names(tokens, "tokens")
    (library.add_special_tokens if special else library.add_tokens)(names)
    if pad_token is not None:
        roles["pad"] = pad_token
    extended = build_huggingface_tokenizer(library.to_str(), tokenizer.reason, roles)
    if pad_token not in (None, *extended.vocabulary.special):
        raise InvalidArgumentError(
            f"pad_token is {pad_token!r}, which is not among the special tokens "
            f"{list(extended.vocabulary.special)}"
        )
    return extended, map_old_ids(tokenizer.vocabulary.size, extended.vocabulary.size)
