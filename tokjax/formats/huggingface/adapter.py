"""Tokenizers that run on Hugging Face's `tokenizers` library, behind the functions of tokjax.

The library normalises, splits and encodes; ids are its own. Offsets become bytes of the text as given.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np

from tokjax._util.checks import MANY_TEXTS_ADVICE, check_text, check_texts
from tokjax._util.imports import import_optional
from tokjax.core import protocol
from tokjax.core.encode_options import SpecialOptions, accept_options
from tokjax.core.ragged import Ragged, make_row_splits
from tokjax.core.records import ResultMetadata, TokenizationBatch, make_batch_without_copy
from tokjax.core.utf8 import find_character_starts, to_characters, to_utf8
from tokjax.core.vocabulary import ROLES, AddedToken, make_vocabulary
from tokjax.errors import DisallowedSpecialTokenError, InvalidArgumentError, TokenizerFormatError
from tokjax.formats.huggingface.definition import (
    RequiresLibraryError,
    check_growth,
    decode_byte_level_forms,
    encode_forms,
    get_steps,
    get_unknown_token,
    is_byte_level,
    merge_added_tokens,
    parse_template,
)
from tokjax.models.base import TokenizerRecord
from tokjax.models.byte_spans import separate_spans
from tokjax.models.format_errors import (
    as_format_errors,
    check_piece_comparisons,
    check_vocab_size,
    check_work_per_position,
)
from tokjax.pretokenize.bytes_to_unicode import map_bytes_to_unicode, map_unicode_to_bytes
from tokjax.pretokenize.special_tokens import (
    check_comparisons,
    has_special,
    reject_special_in_texts,
    resolve_special,
)

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from tokjax.core.utf8 import Text
    from tokjax.core.vocabulary import Role, Vocabulary
    from tokjax.errors import TokjaxError


@contextmanager
def raise_as(kind: type[TokjaxError], about: str) -> Iterator[None]:
    """Raises errors of the library as errors of tokjax.

    A panic in Rust, such as a pattern that backtracks for too long, is a `BaseException` there.

    Args:
        kind: the type of the new error.
        about: the beginning of its message.
    """
    try:
        yield
    except (KeyboardInterrupt, MemoryError, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise kind(f"{about}: {error}") from error


def check_merges(model: Mapping[str, Any]) -> None:
    """Raises `TokenizerFormatError` for merges that abort the process when the library reads them.

    It drops as many bytes of the second token as the prefix has characters, and may cut a character.
    """
    prefix = model.get("continuing_subword_prefix") or ""
    for merge in model.get("merges") or [] if prefix else []:
        second = merge.partition(" ")[2] if isinstance(merge, str) else merge[-1]
        if not second.startswith(prefix):
            raise TokenizerFormatError(
                f"the merge {merge!r}: the second token does not begin with the continuing_subword_prefix "
                f"{prefix!r} of the model"
            )


def check_pieces(model: Mapping[str, Any]) -> None:
    """Raises `TokenizerFormatError` for a unigram vocabulary that has a piece twice."""
    if not isinstance(model["vocab"], list):
        return
    seen: set[str] = set()
    for piece, _ in model["vocab"]:
        if piece in seen:
            raise TokenizerFormatError(
                f"the model's vocab has {piece!r} twice, so that two ids have one token; leave out the later "
                "one (the library's trainer learns it from text that spells a special token out)"
            )
        seen.add(piece)


_BYTE_PIECE = re.compile(rb"<0x[0-9A-F]{2}>")
_REPLACED = dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


@dataclass(frozen=True)
class HuggingFaceTokenizer(TokenizerRecord):
    """A tokenizer that runs on the `tokenizers` library: of `from_huggingface` or `load_tokenizer`.

    Offsets refer to the text as given, also if the library normalizes it; a byte that is not UTF-8 and a lone
    surrogate are encoded as U+FFFD, each with its own span. Spans do not overlap: tokens that are the bytes
    of one character have one byte each, and a `▁` or space that is put before a text is empty. Of other
    tokens that the library gives the same characters the first has them.

    Equal tokenizers have equal definitions. It pickles as its definition, and threads can share it.

    Attributes:
        definition: the library's tokenizer as JSON, the contents of a `tokenizer.json`.
        vocabulary: ids and bytes.
        reason: why tokjax does not run it by itself.
    """

    model: ClassVar[str] = "huggingface"

    definition: str
    vocabulary: Vocabulary
    reason: str

    @cached_property
    def library_tokenizer(self) -> Any:
        """The library's `Tokenizer`. Its settings are not to be changed."""
        return library_tokenizer(self.definition)

    @cached_property
    def special_as_text_tokenizer(self) -> Any:
        """The same, but special tokens in texts are ordinary text to it."""
        instance = library_tokenizer(self.definition)
        instance.encode_special_tokens = True
        return instance

    @cached_property
    def parts(self) -> dict[str, Any]:
        """The definition, parsed."""
        parts: dict[str, Any] = json.loads(self.definition)
        return parts

    @cached_property
    def steps(self) -> dict[str, Any]:
        """The definition without its model and added tokens: a small part of it, which calls look at."""
        return _select_steps(self.parts)

    @cached_property
    def special_by_id(self) -> dict[int, str]:
        """The special tokens, id to name, but for the unknown one."""
        unknown = self.vocabulary.roles.get("unk")
        return {id_: name for name, id_ in self.vocabulary.special.items() if name != unknown}

    @cached_property
    def is_byte_level(self) -> bool:
        """Whether tokens are written as `bytes_to_unicode` writes bytes."""
        return is_byte_level(self.steps)

    @cached_property
    def prefixes(self) -> frozenset[int]:
        """Ids of the tokens that are only what a pre-tokenizer or a normalizer puts before texts."""
        steps = [*get_steps(self.steps, "normalizer"), *get_steps(self.steps, "pre_tokenizer")]
        forms = {" "} | {part.get("prepend") or part.get("replacement") or " " for part in steps}
        if self.is_byte_level:
            forms = {map_bytes_to_unicode(form.encode("utf-8")) for form in forms}
        ids = map(self.library_tokenizer.token_to_id, forms)
        return frozenset(id_ for id_ in ids if id_ is not None)

    @cached_property
    def decoded_bytes(self) -> Mapping[int, bytes] | None:
        """What a byte-level decoder makes of each id; `None` if the definition has another decoder.

        It reads each token as `bytes_to_unicode` writes bytes, added tokens as well: `é` is one byte.
        """
        decoder = self.steps.get("decoder")
        if decoder is None or decoder.get("type") != "ByteLevel":
            return None
        added_ids = {*self.library_tokenizer.get_added_tokens_decoder(), *self.vocabulary.special.values()}
        forms = {id_: self.library_tokenizer.id_to_token(id_) for id_ in added_ids}
        read = {id_: map_unicode_to_bytes(form) or form.encode("utf-8") for id_, form in forms.items()}
        return {**self.vocabulary.bytes_by_id, **read}

    @cached_property
    def skipped_ids(self) -> frozenset[int]:
        """The ids that the library leaves out with `skip_special_tokens`."""
        added_tokens: dict[int, Any] = self.library_tokenizer.get_added_tokens_decoder()
        special = {token.content for token in added_tokens.values() if token.special}
        return frozenset(id_ for id_ in added_tokens if self.library_tokenizer.id_to_token(id_) in special)

    @cached_property
    def pieces(self) -> list[bytes]:
        """The bytes of text that each id is, as far as spans tell, or its form, if it is no text."""
        trims = any(part.get("trim_offsets") for part in get_steps(self.steps, "post_processor"))
        pieces = [b""] * self.vocabulary.size
        for id_, token in self.vocabulary.bytes_by_id.items():
            if self.is_byte_level:
                pieces[id_] = token.strip(b" ") if trims else token
            else:
                is_byte = _BYTE_PIECE.fullmatch(token)
                pieces[id_] = bytes([int(token[3:5], 16)]) if is_byte else token
        return pieces

    @cached_property
    def normalization(self) -> str | None:
        """The library's name for what is done to a text before it is split."""
        return "+".join(str(part.get("type")) for part in get_steps(self.steps, "normalizer")) or None

    def __hash__(self) -> int:
        """Equal tokenizers have equal hashes."""
        return hash(self.definition)

    def _to_fingerprint_json(self) -> Any:
        roles = {str(role): name for role, name in self.vocabulary.roles.items()}
        return [self.model, self.parts, roles]

    def __repr__(self) -> str:
        """The size, the special tokens, and why it runs on the library."""
        return (
            f"HuggingFaceTokenizer(vocab_size={self.vocabulary.size}, "
            f"special_tokens={self.vocabulary.special_repr}; runs on the tokenizers library: {self.reason})"
        )


def build_huggingface_tokenizer(
    definition: str, reason: str, roles: Mapping[Role, str], parts: Mapping[str, Any] | None = None
) -> HuggingFaceTokenizer:
    """A tokenizer that runs on the library.

    Special tokens are those that the definition calls so, what its template inserts, and its unknown token.

    Args:
        definition: the contents of a `tokenizer.json`.
        reason: why it runs on the library.
        roles: which tokens have which role, those of them that are special.
        parts: the definition, parsed, where that is done already.

    Raises:
        MissingExtraError: the library is not installed.
        TokenizerFormatError: the library can't read the definition, or its tokens make no vocabulary.
    """
    parts = json.loads(definition) if parts is None else parts
    _check_limits(parts)
    check_merges(parts["model"])
    library = library_tokenizer(definition)
    check_pieces(parts["model"])
    _check_model(library.model, parts["model"])
    unknown = get_unknown_token(parts)
    forms: dict[str, int] = library.get_vocab(with_added_tokens=True)
    try:
        template = parse_template(parts, forms)
    except RequiresLibraryError as error:
        raise TokenizerFormatError(str(error)) from error
    listed = library.get_added_tokens_decoder()
    names = {token.content for token in listed.values() if token.special}
    names.update(template.tokens)
    names |= {unknown} if unknown in forms else set()
    declared: dict[Role, str | None] = {role: name for role, name in roles.items() if name in names}
    declared.setdefault("unk", unknown if unknown in forms else None)
    byte_level = is_byte_level(parts)
    model_forms = _get_model_forms(parts["model"]) if byte_level else ()
    added_tokens = {
        token.content: id_
        for id_, token in listed.items()
        if token.content not in names
        and not (token.content in model_forms and map_unicode_to_bytes(token.content))
    }
    own = {form: id_ for form, id_ in forms.items() if form not in names and form not in added_tokens}
    in_bytes = decode_byte_level_forms(own) if byte_level else encode_forms(own)
    ordinary, duplicate_token_ids = merge_added_tokens(in_bytes, added_tokens)
    vocabulary = make_vocabulary(
        ordinary,
        {name: forms[name] for name in names},
        declared,
        template,
        dict.fromkeys(duplicate_token_ids, AddedToken()),
        duplicate_token_ids,
    )
    check_comparisons(vocabulary.split_token_names)
    instance = HuggingFaceTokenizer(definition, vocabulary, reason)
    # Both are at hand, so neither is made again when it is first used.
    vars(instance).update(library_tokenizer=library, steps=_select_steps(parts))
    return instance


def to_json(tokenizer: HuggingFaceTokenizer) -> dict[str, Any]:
    """What defines the tokenizer, as plain JSON values."""
    return {
        "model": HuggingFaceTokenizer.model,
        "definition": tokenizer.definition,
        "reason": tokenizer.reason,
        **{f"{role}_token": tokenizer.vocabulary.roles.get(role) for role in ROLES},
    }


def from_json(described: Mapping[str, Any]) -> HuggingFaceTokenizer:
    """The tokenizer that `to_json` described.

    Raises:
        MissingExtraError: the library is not installed.
        TokenizerFormatError: a field is missing or of the wrong type, or the values make no tokenizer.
    """
    with as_format_errors():
        names_by_role = {role: described[f"{role}_token"] for role in ROLES}
        roles = {role: name for role, name in names_by_role.items() if name is not None}
        return build_huggingface_tokenizer(described["definition"], described["reason"], roles)


def _select_steps(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in parts.items() if name not in ("model", "added_tokens")}


def library_tokenizer(definition: str) -> Any:
    """The library's `Tokenizer` of a definition, without padding and truncation.

    Raises:
        MissingExtraError: the library is not installed.
        TokenizerFormatError: the library can't read the definition.
    """
    tokenizers = import_optional("tokenizers", extra="huggingface", purpose="this tokenizer")
    with raise_as(TokenizerFormatError, "the tokenizers library can't read it"):
        instance = tokenizers.Tokenizer.from_str(definition)
    instance.no_padding()
    instance.no_truncation()
    return instance


def _check_limits(parts: Mapping[str, Any]) -> None:
    """Rejects a definition that costs too much, before the library reads it."""
    model = parts.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, (dict, list)):
        check_vocab_size(len(vocab), "the model's vocab")
    check_growth(parts)


def _check_model(library_model: Any, model: Mapping[str, Any]) -> None:
    """Rejects a model on which encoding takes too long."""
    if isinstance(model["vocab"], list):
        check_piece_comparisons([piece for piece, _ in model["vocab"]])
    elif type(library_model).__name__ == "WordPiece":  # (it compares every substring of a word)
        longest = library_model.max_input_chars_per_word
        check_work_per_position(longest * longest // 2, f"max_input_chars_per_word is {longest:,}")


def _get_model_forms(model: Mapping[str, Any]) -> Container[str]:
    """Returns the tokens of the model alone, without added tokens."""
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
    assume_normalized: bool = False,  # noqa: ARG001 (offsets are places in the text as given in any case)
    threads: int | None = None,  # noqa: ARG001 (the library has threads of its own)
    **special: Unpack[SpecialOptions],
) -> TokenizationBatch:
    check_texts(texts)
    table = tokenizer.vocabulary
    encodings, rows = _encode_rows(tokenizer, texts, add_special_tokens, special, offsets=return_offsets)
    ids = np.concatenate([np.zeros(0, np.int32), *rows])
    columns: dict[str, Any] = {}
    if return_offsets:
        columns |= _compute_source_columns(tokenizer, texts, encodings, rows)
    if return_masks:
        mask = np.concatenate([np.zeros(0, np.int32), *(_to_array(e.special_tokens_mask) for e in encodings)])
        mask[table.is_special.take(ids)] = 1
        types = np.concatenate([np.zeros(0, np.int32), *(_to_array(e.type_ids) for e in encodings)])
        columns |= {"special_tokens_mask": mask, "token_type_ids": types}
    metadata = ResultMetadata(tokenizer.model, tokenizer.normalization, "input_text")
    ragged = Ragged(ids, make_row_splits(map(len, rows)), **columns)
    return make_batch_without_copy(ragged, metadata, table.get_token_strings, has_attention_mask=return_masks)


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
    _, [ids] = _encode_rows(tokenizer, [text], add_special_tokens, special, offsets=False)
    return ids


def _encode_rows(
    tokenizer: HuggingFaceTokenizer,
    texts: Sequence[Text],
    add_special_tokens: bool,
    special: SpecialOptions,
    *,
    offsets: bool,
) -> tuple[list[Any], list[NDArray[np.int32]]]:
    """Returns what the library makes of texts, and the ids of each of them.

    Raises:
        DisallowedSpecialTokenError: a text has, or becomes by normalization, a disallowed special token.
        InvalidArgumentError: the library can't encode the texts with these options.
    """
    names = tokenizer.vocabulary.special_names
    allowed, disallowed = resolve_special(names, **special)
    characters = [to_characters(text) for text in texts]
    reject_special_in_texts(characters, disallowed)
    plain = [text if text.isascii() else text.translate(_REPLACED) for text in characters]
    ordinary = frozenset[str]()
    if special.get("disallowed_special", "all") != "all":
        ordinary = names - allowed - disallowed if allowed or disallowed else names
    library = _select_library_tokenizer(tokenizer, plain, allowed, ordinary)
    encodings = _encode_with_library(library, plain, add_special_tokens, offsets=offsets)
    rows = [_to_array(encoding.ids) for encoding in encodings]
    found = _find_special(tokenizer, encodings, rows)
    if library is tokenizer.library_tokenizer and not found.keys().isdisjoint(ordinary):
        library = (
            tokenizer.special_as_text_tokenizer
        )  # (text that became one by normalization is to be ordinary text)
        encodings = _encode_with_library(library, plain, add_special_tokens, offsets=offsets)
        rows = [_to_array(encoding.ids) for encoding in encodings]
        found = _find_special(tokenizer, encodings, rows)
    _reject_special(found, ordinary, disallowed)
    return encodings, rows


def _select_library_tokenizer(
    tokenizer: HuggingFaceTokenizer, texts: list[str], allowed: frozenset[str], ordinary: frozenset[str]
) -> Any:
    """The library's tokenizer that recognises what is allowed, and nothing that is ordinary text."""
    if not any(has_special(text, ordinary) for text in texts):
        return tokenizer.library_tokenizer
    if any(has_special(text, allowed) for text in texts):
        raise InvalidArgumentError(
            "the tokenizers library recognises all special tokens in a text or none, and here are some that "
            f"are allowed and others that are to be ordinary text ({sorted(ordinary)[:5]}); allow all, or "
            "disallow the others"
        )
    return tokenizer.special_as_text_tokenizer


def _encode_with_library(
    library: Any, texts: list[str], add_special_tokens: bool, *, offsets: bool
) -> list[Any]:
    encode = library.encode_batch if offsets else library.encode_batch_fast
    with raise_as(InvalidArgumentError, "the tokenizers library can't encode these texts"):
        found: list[Any] = encode(texts, add_special_tokens=add_special_tokens)
    return found


def _find_special(
    tokenizer: HuggingFaceTokenizer, encodings: list[Any], rows: list[NDArray[np.int32]]
) -> dict[str, int]:
    """Returns the special tokens, but for the unknown, that were found in texts, and in which text."""
    found: dict[str, int] = {}
    is_special, names = tokenizer.vocabulary.is_special, tokenizer.special_by_id
    for row, (encoding, ids) in enumerate(zip(encodings, rows, strict=True)):
        positions = is_special.take(ids).nonzero()[0].tolist()
        inserted = encoding.special_tokens_mask if positions else ()
        for position in positions:
            if not inserted[position] and (name := names.get(int(ids[position]))) is not None:
                found[name] = row
    return found


def _reject_special(found: Mapping[str, int], ordinary: frozenset[str], disallowed: frozenset[str]) -> None:
    """Refuse special tokens that the library has made of text in which there are none."""
    for name, row in found.items():
        if name not in disallowed:
            continue
        raise DisallowedSpecialTokenError(
            f"text {row} becomes the special token {name!r} when it is normalised, which is not allowed; to "
            f"recognise it, pass allowed_special={{{name!r}}}"
        )
    for name, row in found.items():
        if name not in ordinary:
            continue
        raise InvalidArgumentError(
            f"text {row} holds {name!r}, and this model makes the special token of it even where it is to be "
            "ordinary text; allow it, or disallow it"
        )


def _compute_source_columns(
    tokenizer: HuggingFaceTokenizer,
    texts: Sequence[Text],
    encodings: Sequence[Any],
    rows: Sequence[NDArray[np.int32]],
) -> dict[str, Any]:
    """`offsets`, `word_ids` and `sequence_ids`."""
    offsets = [np.zeros((0, 2), np.int64)]
    sequences = [np.zeros(0, np.int32)]
    for text, encoding, ids in zip(texts, encodings, rows, strict=True):
        # The mask tells what is inserted; the library's own ids of sequences do not after two processors.
        row_sequences = -_to_array(encoding.special_tokens_mask)
        characters, data = np.array(encoding.offsets, np.int64).reshape(-1, 2), to_utf8(text)
        spans = (
            find_character_starts(data).take(characters, mode="clip") + 1
        )  # (a suffix of words may reach beyond)
        own = row_sequences == 0
        spans[~own] = 0
        spans[own] = separate_spans(spans[own], ids[own], tokenizer.pieces, tokenizer.prefixes, data)
        offsets.append(spans)
        sequences.append(row_sequences)
    word_id_rows = [_to_array([-1 if i is None else i for i in encoding.word_ids]) for encoding in encodings]
    return {
        "offsets": np.concatenate(offsets),
        "word_ids": np.concatenate([np.zeros(0, np.int32), *word_id_rows]),
        "sequence_ids": np.concatenate(sequences),
    }


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
    with raise_as(InvalidArgumentError, "the tokenizers library can't decode these ids"):
        text: str = tokenizer.library_tokenizer.decode(id_list, skip_special_tokens=skip_special_tokens)
    return text.encode("utf-8")


protocol.decode_batch.register(HuggingFaceTokenizer)(protocol.decode_row_by_row)
