"""Tokenizers that run on Hugging Face's `tokenizers` library, behind the functions of tokjax.

The library normalises, splits and encodes; ids are its own. Offsets become bytes of the text as given.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tokjax._util.checks import MANY_TEXTS, checked_text, checked_texts
from tokjax._util.files import checksum_of_json
from tokjax._util.optional_imports import import_optional
from tokjax.core import protocol
from tokjax.core.errors import DisallowedSpecialTokenError, InvalidArgumentError, TokenizerFormatError
from tokjax.core.ragged import Ragged, splits_from_lengths
from tokjax.core.records import ResultMetadata, TokenizationBatch, adopt_batch
from tokjax.core.utf8 import character_starts, to_characters, to_utf8
from tokjax.core.vocabulary import ROLES, Strips, make_vocabulary
from tokjax.formats.huggingface.definition import (
    NotOursError,
    bytes_of_forms,
    in_utf8,
    is_byte_level,
    parts_of,
    template_of,
    unknown_token,
    with_added,
)
from tokjax.formats.huggingface.growth import check_growth
from tokjax.formats.huggingface.library_errors import check_merges, check_pieces, raise_as
from tokjax.models.byte_spans import separate_spans
from tokjax.models.format_errors import (
    as_format_errors,
    check_piece_comparisons,
    check_vocab_size,
    check_work_per_position,
)
from tokjax.models.method_hints import WithoutMethods
from tokjax.pretokenize.bytes_to_unicode import from_stand_ins, to_stand_ins
from tokjax.pretokenize.special_tokens import (
    check_comparisons,
    holds_special,
    refuse_special_in,
    resolve_special,
)

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from tokjax.core.protocol import Special
    from tokjax.core.utf8 import Text
    from tokjax.core.vocabulary import Role, Vocabulary

_BYTE_PIECE = re.compile(rb"<0x[0-9A-F]{2}>")
_REPLACED = dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


@dataclass(frozen=True)
class HuggingFaceTokenizer(WithoutMethods):
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
    def blind_to_special(self) -> Any:
        """The same, but special tokens in texts are ordinary text to it."""
        made = library_tokenizer(self.definition)
        made.encode_special_tokens = True
        return made

    @cached_property
    def parts(self) -> dict[str, Any]:
        """The definition, parsed."""
        parts: dict[str, Any] = json.loads(self.definition)
        return parts

    @cached_property
    def steps(self) -> dict[str, Any]:
        """The definition without its model and added tokens: a small part of it, which calls look at."""
        return _steps_of(self.parts)

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
        steps = [*parts_of(self.steps, "normalizer"), *parts_of(self.steps, "pre_tokenizer")]
        forms = {" "} | {part.get("prepend") or part.get("replacement") or " " for part in steps}
        if self.is_byte_level:
            forms = {to_stand_ins(form.encode("utf-8")) for form in forms}
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
        around = {*self.library_tokenizer.get_added_tokens_decoder(), *self.vocabulary.special.values()}
        forms = {id_: self.library_tokenizer.id_to_token(id_) for id_ in around}
        read = {id_: from_stand_ins(form) or form.encode("utf-8") for id_, form in forms.items()}
        return {**self.vocabulary.bytes_by_id, **read}

    @cached_property
    def skipped_ids(self) -> frozenset[int]:
        """The ids that the library leaves out with `skip_special_tokens`."""
        added: dict[int, Any] = self.library_tokenizer.get_added_tokens_decoder()
        special = {token.content for token in added.values() if token.special}
        return frozenset(id_ for id_ in added if self.library_tokenizer.id_to_token(id_) in special)

    @cached_property
    def pieces(self) -> list[bytes]:
        """The bytes of text that each id is, as far as spans tell, or its form, if it is no text."""
        trims = any(part.get("trim_offsets") for part in parts_of(self.steps, "post_processor"))
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
        return "+".join(str(part.get("type")) for part in parts_of(self.steps, "normalizer")) or None

    def __hash__(self) -> int:
        """Equal tokenizers have equal hashes."""
        return hash(self.definition)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the definition, not what was made of it."""
        return HuggingFaceTokenizer, (self.definition, self.vocabulary, self.reason)

    def __repr__(self) -> str:
        """The size, the special tokens, and why it runs on the library."""
        return (
            f"HuggingFaceTokenizer(vocab_size={self.vocabulary.size}, "
            f"special_tokens={self.vocabulary.special_shown}; runs on the tokenizers library: {self.reason})"
        )


def huggingface_tokenizer(
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
    unknown = unknown_token(parts)
    forms: dict[str, int] = library.get_vocab(with_added_tokens=True)
    try:
        template = template_of(parts, forms)
    except NotOursError as error:
        raise TokenizerFormatError(str(error)) from error
    listed = library.get_added_tokens_decoder()
    names = {token.content for token in listed.values() if token.special}
    names |= {place.token for place in (*template.single, *template.pair) if place.token is not None}
    names |= {unknown} if unknown in forms else set()
    declared: dict[Role, str | None] = {role: name for role, name in roles.items() if name in names}
    declared.setdefault("unk", unknown if unknown in forms else None)
    byte_level = is_byte_level(parts)
    own_forms = _forms_of_model(parts["model"]) if byte_level else ()
    added = {
        token.content: id_
        for id_, token in listed.items()
        if token.content not in names and not (token.content in own_forms and from_stand_ins(token.content))
    }
    own = {form: id_ for form, id_ in forms.items() if form not in names and form not in added}
    in_bytes = bytes_of_forms(own) if byte_level else in_utf8(own)
    ordinary, twins = with_added(in_bytes, added)
    vocabulary = make_vocabulary(
        ordinary,
        {name: forms[name] for name in names},
        declared,
        template,
        dict.fromkeys(twins, Strips()),
        twins,
    )
    check_comparisons(vocabulary.parting)
    made = HuggingFaceTokenizer(definition, vocabulary, reason)
    # Both are at hand, so neither is made again when it is first used.
    vars(made).update(library_tokenizer=library, steps=_steps_of(parts))
    return made


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
        said = {role: described[f"{role}_token"] for role in ROLES}
        roles = {role: name for role, name in said.items() if name is not None}
        return huggingface_tokenizer(described["definition"], described["reason"], roles)


def _steps_of(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in parts.items() if name not in ("model", "added_tokens")}


def library_tokenizer(definition: str) -> Any:
    """The library's `Tokenizer` of a definition, without padding and truncation.

    Raises:
        MissingExtraError: the library is not installed.
        TokenizerFormatError: the library can't read the definition.
    """
    tokenizers = import_optional("tokenizers", extra="huggingface", purpose="this tokenizer")
    with raise_as(TokenizerFormatError, "the tokenizers library can't read it"):
        made = tokenizers.Tokenizer.from_str(definition)
    made.no_padding()
    made.no_truncation()
    return made


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


def _forms_of_model(model: Mapping[str, Any]) -> Container[str]:
    """Returns the tokens of the model alone, without added tokens."""
    vocab = model["vocab"]
    return vocab if isinstance(vocab, dict) else frozenset(piece for piece, _ in vocab)


@protocol.vocabulary_of.register(HuggingFaceTokenizer)
def _vocabulary(tokenizer: HuggingFaceTokenizer) -> Vocabulary:
    return tokenizer.vocabulary


@protocol.fingerprint.register(HuggingFaceTokenizer)
def _fingerprint(tokenizer: HuggingFaceTokenizer) -> str:
    roles = {str(role): name for role, name in tokenizer.vocabulary.roles.items()}
    return checksum_of_json([tokenizer.model, tokenizer.parts, roles])


@protocol.encode_texts.register(HuggingFaceTokenizer)
def _encode_texts(
    tokenizer: HuggingFaceTokenizer,
    texts: Sequence[Text],
    *,
    add_special_tokens: bool = True,
    return_offsets: bool = True,
    return_masks: bool = True,
    assume_normalized: bool = False,  # noqa: ARG001 (offsets are places in the text as given in any case)
    allowed_special: Special = (),
    disallowed_special: Special = "all",
    threads: int | None = None,  # noqa: ARG001 (the library has threads of its own)
) -> TokenizationBatch:
    checked_texts(texts)
    table = tokenizer.vocabulary
    encodings, rows = _encoded(
        tokenizer, texts, add_special_tokens, allowed_special, disallowed_special, offsets=return_offsets
    )
    ids = np.concatenate([np.zeros(0, np.int32), *rows])
    columns: dict[str, Any] = {}
    if return_offsets:
        columns |= _source_columns(tokenizer, texts, encodings, rows)
    if return_masks:
        special = np.concatenate([np.zeros(0, np.int32), *(_array(e.special_tokens_mask) for e in encodings)])
        special[table.is_special.take(ids)] = 1
        types = np.concatenate([np.zeros(0, np.int32), *(_array(e.type_ids) for e in encodings)])
        columns |= {"special_tokens_mask": special, "token_type_ids": types}
    metadata = ResultMetadata(tokenizer.model, tokenizer.normalization, "input_text")
    ragged = Ragged(ids, splits_from_lengths(map(len, rows)), **columns)
    return adopt_batch(ragged, metadata, table.strings_of, has_attention_mask=return_masks)


@protocol.encode.register(HuggingFaceTokenizer)
def _encode(
    tokenizer: HuggingFaceTokenizer,
    text: Text,
    *,
    add_special_tokens: bool = True,
    allowed_special: Special = (),
    disallowed_special: Special = "all",
) -> NDArray[np.int32]:
    checked_text(text, "text", MANY_TEXTS)
    _, [ids] = _encoded(
        tokenizer, [text], add_special_tokens, allowed_special, disallowed_special, offsets=False
    )
    return ids


def _encoded(
    tokenizer: HuggingFaceTokenizer,
    texts: Sequence[Text],
    add_special_tokens: bool,
    allowed_special: Special,
    disallowed_special: Special,
    *,
    offsets: bool,
) -> tuple[list[Any], list[NDArray[np.int32]]]:
    """Returns what the library makes of texts, and the ids of each of them.

    Raises:
        DisallowedSpecialTokenError: a text has, or becomes by normalization, a disallowed special token.
        InvalidArgumentError: the library can't encode the texts with these options.
    """
    names = tokenizer.vocabulary.special_names
    allowed, disallowed = resolve_special(names, allowed_special, disallowed_special)
    characters = [to_characters(text) for text in texts]
    refuse_special_in(characters, disallowed)
    plain = [text if text.isascii() else text.translate(_REPLACED) for text in characters]
    ordinary = frozenset[str]()
    if disallowed_special != "all":
        ordinary = names - allowed - disallowed if allowed or disallowed else names
    library = _library_for(tokenizer, plain, allowed, ordinary)
    encodings = _encodings(library, plain, add_special_tokens, offsets=offsets)
    rows = [_array(encoding.ids) for encoding in encodings]
    found = _found(tokenizer, encodings, rows)
    if library is tokenizer.library_tokenizer and not found.keys().isdisjoint(ordinary):
        library = tokenizer.blind_to_special  # (text that became one by normalization is to be ordinary text)
        encodings = _encodings(library, plain, add_special_tokens, offsets=offsets)
        rows = [_array(encoding.ids) for encoding in encodings]
        found = _found(tokenizer, encodings, rows)
    _refuse_found(found, ordinary, disallowed)
    return encodings, rows


def _library_for(
    tokenizer: HuggingFaceTokenizer, texts: list[str], allowed: frozenset[str], ordinary: frozenset[str]
) -> Any:
    """The library's tokenizer that recognises what is allowed, and nothing that is ordinary text."""
    if not any(holds_special(text, ordinary) for text in texts):
        return tokenizer.library_tokenizer
    if any(holds_special(text, allowed) for text in texts):
        raise InvalidArgumentError(
            "the tokenizers library recognises all special tokens in a text or none, and here are some that "
            f"are allowed and others that are to be ordinary text ({sorted(ordinary)[:5]}); allow all, or "
            "disallow the others"
        )
    return tokenizer.blind_to_special


def _encodings(library: Any, texts: list[str], add_special_tokens: bool, *, offsets: bool) -> list[Any]:
    encode = library.encode_batch if offsets else library.encode_batch_fast
    with raise_as(InvalidArgumentError, "the tokenizers library can't encode these texts"):
        found: list[Any] = encode(texts, add_special_tokens=add_special_tokens)
    return found


def _found(
    tokenizer: HuggingFaceTokenizer, encodings: list[Any], rows: list[NDArray[np.int32]]
) -> dict[str, int]:
    """Returns the special tokens, but for the unknown, that were found in texts, and in which text."""
    found: dict[str, int] = {}
    is_special, names = tokenizer.vocabulary.is_special, tokenizer.special_by_id
    for row, (encoding, ids) in enumerate(zip(encodings, rows, strict=True)):
        places = is_special.take(ids).nonzero()[0].tolist()
        inserted = encoding.special_tokens_mask if places else ()
        for place in places:
            if not inserted[place] and (name := names.get(int(ids[place]))) is not None:
                found[name] = row
    return found


def _refuse_found(found: Mapping[str, int], ordinary: frozenset[str], disallowed: frozenset[str]) -> None:
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


def _source_columns(
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
        of_row = -_array(encoding.special_tokens_mask)
        characters, data = np.array(encoding.offsets, np.int64).reshape(-1, 2), to_utf8(text)
        spans = (
            character_starts(data).take(characters, mode="clip") + 1
        )  # (a suffix of words may reach beyond)
        own = of_row == 0
        spans[~own] = 0
        spans[own] = separate_spans(spans[own], ids[own], tokenizer.pieces, tokenizer.prefixes, data)
        offsets.append(spans)
        sequences.append(of_row)
    words = [_array([-1 if i is None else i for i in encoding.word_ids]) for encoding in encodings]
    return {
        "offsets": np.concatenate(offsets),
        "word_ids": np.concatenate([np.zeros(0, np.int32), *words]),
        "sequence_ids": np.concatenate(sequences),
    }


def _array(values: Sequence[int]) -> NDArray[np.int32]:
    return np.array(values, np.int32)


@protocol.decode_bytes.register(HuggingFaceTokenizer)
def _decode_bytes(
    tokenizer: HuggingFaceTokenizer, ids: ArrayLike, *, skip_special_tokens: bool = False
) -> bytes:
    flat = protocol.flat_ids(ids)
    tokenizer.vocabulary.check_ids(flat)
    given: list[int] = flat.tolist()
    of_ids = tokenizer.decoded_bytes
    if of_ids is not None:
        skipped = tokenizer.skipped_ids if skip_special_tokens else ()
        return b"".join([of_ids[id_] for id_ in given if id_ not in skipped])
    with raise_as(InvalidArgumentError, "the tokenizers library can't decode these ids"):
        text: str = tokenizer.library_tokenizer.decode(given, skip_special_tokens=skip_special_tokens)
    return text.encode("utf-8")


protocol.decode_batch.register(HuggingFaceTokenizer)(protocol.decode_row_by_row)
