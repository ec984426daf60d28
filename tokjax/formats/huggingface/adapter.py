"""Tokenizers that run on Hugging Face's `tokenizers` library.

The library normalizes, splits and encodes, so the ids are its ids. tokjax adds byte offsets without overlaps,
checks of special tokens in texts, and limits for untrusted files. This module has the type and builds it.
`library_encoding.py` and `library_decoding.py` use the library, and `library_spans.py` computes the offsets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from tokjax._util.checks import MANY_TEXTS_ADVICE, check_text, check_texts
from tokjax.core import protocol
from tokjax.core.decode_stream import find_decode_context
from tokjax.core.encode_options import SpecialOptions, accept_options
from tokjax.core.json_records import register_record
from tokjax.core.pretokens import PreTokens, group_by_word, pre_tokenize, raise_without_pretokens
from tokjax.core.ragged import Ragged
from tokjax.core.records import ResultMetadata, TokenizationBatch, make_batch_without_copy
from tokjax.core.token_byte_lengths import find_text_lengths
from tokjax.core.vocabulary import AddedToken, Role, make_vocabulary, select_roles
from tokjax.errors import InvalidArgumentError, TokenizerFormatError, UnsupportedTokenizerError
from tokjax.formats.huggingface.definition import (
    RequiresLibraryError,
    decode_byte_level_forms,
    encode_forms,
    get_unknown_token,
    is_byte_level,
    merge_added_tokens,
    parse_template,
)
from tokjax.formats.huggingface.definition_checks import check_before_loading, check_loaded_model
from tokjax.formats.huggingface.library_decoding import LibraryDecoder
from tokjax.formats.huggingface.library_encoding import EncodeOptions, LibraryEncoder
from tokjax.formats.huggingface.loaded_definition import (
    LoadedDefinition,
    load_library_tokenizer,
    select_pipeline,
)
from tokjax.formats.huggingface.sentencepiece_definition import parse_symbol_split
from tokjax.models.base import TokenizerRecord
from tokjax.models.vocabulary_changes import extend_vocabulary, map_old_ids
from tokjax.pretokenize.bytes_to_unicode import map_unicode_to_bytes
from tokjax.pretokenize.special_tokens import check_comparisons, check_special_names, select_control_names

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from tokjax.core.utf8 import Text
    from tokjax.core.vocabulary import Vocabulary


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
    def loaded(self) -> LoadedDefinition:
        """The definition, parsed and loaded by the library."""
        return LoadedDefinition(self.definition)

    @cached_property
    def encoder(self) -> LibraryEncoder:
        """Encoder of texts."""
        return LibraryEncoder(self.loaded, self.vocabulary)

    @cached_property
    def decoder(self) -> LibraryDecoder:
        """Decoder of ids."""
        return LibraryDecoder(self.loaded, self.vocabulary)

    @property
    def library_tokenizer(self) -> Any:
        """The library's `Tokenizer`. Do not change its settings."""
        return self.loaded.library_tokenizer

    @property
    def normalization(self) -> str | None:
        """Types of the normalizer's steps, joined with `+`; `None` without a normalizer."""
        return self.loaded.normalization

    def __hash__(self) -> int:
        """Hashes the definition."""
        return hash(self.definition)

    def _to_fingerprint_json(self) -> Any:
        return [self.model, self.loaded.contents, self.vocabulary.roles]

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

    Its special tokens are the added tokens with `special=true`, the tokens that the template inserts, the
    unknown token of the model, and control tokens among the symbols of a SentencePiece model.

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
    check_before_loading(contents)
    loaded = LoadedDefinition(definition)
    library = loaded.library_tokenizer
    check_loaded_model(library.model, contents["model"])
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
    symbols = forms.keys() & parse_symbol_split(contents.get("pre_tokenizer"))
    names |= select_control_names(frozenset(symbols))
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
    model_tokens, unreachable_ids = (
        decode_byte_level_forms(remaining) if byte_level else (encode_forms(remaining), {})
    )
    ordinary, added_ids = merge_added_tokens(model_tokens, added_tokens)
    declared_roles = select_roles(roles, ordinary, names)
    declared_roles.setdefault("unk", unknown if unknown in forms else None)
    vocabulary = make_vocabulary(
        ordinary,
        {name: forms[name] for name in names},
        declared_roles,
        template,
        dict.fromkeys(added_ids, AddedToken()),
        added_ids,
        unreachable_ids,
    )
    check_comparisons(vocabulary.split_token_names)
    instance = HuggingFaceTokenizer(definition, vocabulary, reason)
    # Fill cached properties, so that the definition is not loaded and parsed again.
    vars(loaded)["pipeline"] = select_pipeline(contents)
    vars(instance)["loaded"] = loaded
    return instance


def _define(tokenizer: HuggingFaceTokenizer) -> dict[str, Any]:
    return vars(tokenizer) | {"roles": tokenizer.vocabulary.roles}


@register_record(HuggingFaceTokenizer, _define)
def _restore(definition: str, reason: str, roles: Mapping[Role, str]) -> HuggingFaceTokenizer:
    return build_huggingface_tokenizer(definition, reason, roles)


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
    options = EncodeOptions(add_special_tokens, return_offsets, return_masks)
    columns, splits = tokenizer.encoder.encode(texts, options, special)
    metadata = ResultMetadata(tokenizer.model, tokenizer.normalization, "input_text")
    return make_batch_without_copy(
        Ragged(columns.pop("ids"), splits, **columns),
        metadata,
        tokenizer.vocabulary.get_token_strings,
        has_attention_mask=return_masks,
    )


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
    options = EncodeOptions(add_special_tokens, return_offsets=False, return_masks=False)
    columns, _ = tokenizer.encoder.encode([text], options, special)
    return columns["ids"]


@pre_tokenize.register(HuggingFaceTokenizer)
@accept_options(SpecialOptions)
def _pre_tokenize(
    tokenizer: HuggingFaceTokenizer, text: Text, **special: Unpack[SpecialOptions]
) -> PreTokens:
    """Groups tokens by word id: the library numbers the pre-tokens and the matched added tokens."""
    if tokenizer.loaded.pipeline.get("pre_tokenizer") is None:
        raise_without_pretokens(tokenizer, "its definition has no pre-tokenizer")
    return group_by_word(tokenizer, text, **special)


@protocol.decode_bytes.register(HuggingFaceTokenizer)
def _decode_bytes(
    tokenizer: HuggingFaceTokenizer, ids: ArrayLike, *, skip_special_tokens: bool = False
) -> bytes:
    flat = protocol.as_flat_ids(ids)
    tokenizer.vocabulary.check_ids(flat)
    return tokenizer.decoder.decode(flat.tolist(), skip_special_tokens=skip_special_tokens)


protocol.decode_batch.register(HuggingFaceTokenizer)(protocol.decode_row_by_row)


@find_decode_context.register(HuggingFaceTokenizer)
def _find_decode_context(
    tokenizer: HuggingFaceTokenizer, ids: NDArray[np.int32], *, skip_special_tokens: bool = False
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    return tokenizer.decoder.find_context(ids, skip_special_tokens=skip_special_tokens)


@find_text_lengths.register(HuggingFaceTokenizer)
def _find_text_lengths(tokenizer: HuggingFaceTokenizer) -> NDArray[np.integer[Any]]:
    return tokenizer.decoder.find_text_lengths(partial(find_text_lengths.dispatch(object), tokenizer))


@protocol.find_matched_names.register(HuggingFaceTokenizer)
def _find_matched_names(tokenizer: HuggingFaceTokenizer) -> frozenset[str]:
    tokens = tokenizer.loaded.contents.get("added_tokens") or []
    return frozenset(token["content"] for token in tokens if not token["special"])


@protocol.make_special.register(HuggingFaceTokenizer)
def _make_special(tokenizer: HuggingFaceTokenizer, names: frozenset[str]) -> HuggingFaceTokenizer:
    return _extend_vocabulary(tokenizer, sorted(names), special=True)[0]


@extend_vocabulary.register(HuggingFaceTokenizer)
def _extend_vocabulary(
    tokenizer: HuggingFaceTokenizer,
    tokens: Sequence[str],
    *,
    special: bool = False,
    pad_token: str | None = None,
) -> tuple[HuggingFaceTokenizer, NDArray[np.int32]]:
    library, roles = load_library_tokenizer(tokenizer.definition), dict(tokenizer.vocabulary.roles)
    names = check_special_names(tokens, "tokens")
    new_names = [name for name in names if library.token_to_id(name) is None]
    (library.add_special_tokens if special else library.add_tokens)(names)
    size = tokenizer.vocabulary.size
    for name in new_names:
        if library.token_to_id(name) < size:
            raise UnsupportedTokenizerError(
                f"{name!r} can't be added: the ids of the vocabulary, from 0 to {size - 1}, have gaps, and "
                f"the tokenizers library would give it the id {library.token_to_id(name)}"
            )
    if pad_token is not None:
        roles["pad"] = pad_token
    extended = build_huggingface_tokenizer(library.to_str(), tokenizer.reason, roles)
    if pad_token not in (None, *extended.vocabulary.special):
        raise InvalidArgumentError(
            f"pad_token is {pad_token!r}, which is not among the special tokens "
            f"{list(extended.vocabulary.special)}"
        )
    return extended, map_old_ids(size, extended.vocabulary.size)
