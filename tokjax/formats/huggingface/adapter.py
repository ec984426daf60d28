"""Tokenizers that run on Hugging Face's `tokenizers` library.

The library normalizes, splits, encodes and decodes, so the ids are its ids. tokjax adds byte offsets without
overlaps, checks of special tokens in texts, and limits for untrusted files. This module has the type, builds
it, and decodes; `library.py` encodes.

Decoding is streamed up to the last token that makes text final: later ones no longer change it. Most decoders
convert tokens one by one. Two change the text of several tokens together:

    decoder        tokens                     text            final after
    ByteFallback   "a", "<0xC3>", "<0xA9>"    "aé"            a token that is not a byte
                   "<0xC3>", "<0x41>"         two U+FFFD      ("A" is valid, but the run is not)
    BPEDecoder     "lo", "w</w>", "is</w>"    "low is"        any token
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np

from tokjax._util.checks import MANY_TEXTS_ADVICE, check_text, check_texts
from tokjax.core import protocol
from tokjax.core.decode_stream import find_decode_context
from tokjax.core.encode_options import SpecialOptions, accept_options
from tokjax.core.json_records import register_record
from tokjax.core.protocol import (
    BYTE_PIECE,
    PreTokens,
    find_text_lengths,
    group_by_word,
    pre_tokenize,
    raise_without_pretokens,
)
from tokjax.core.ragged import Ragged
from tokjax.core.records import ResultMetadata, TokenizationBatch, make_batch_without_copy
from tokjax.core.vocabulary import AddedToken, Role
from tokjax.errors import InvalidArgumentError, TokenizerFormatError, UnsupportedTokenizerError
from tokjax.formats.huggingface.definition import (
    LIKE_BYTE,
    AddedTokens,
    RequiresLibraryError,
    build_vocabulary,
    get_steps,
    is_byte_level,
    list_types,
    list_unknown_tokens,
    parse_template,
)
from tokjax.formats.huggingface.definition_checks import check_before_loading, check_loaded_model
from tokjax.formats.huggingface.library import (
    EncodeOptions,
    LibraryRecord,
    encode_by_library,
    load_library_tokenizer,
    raise_as,
    select_pipeline,
)
from tokjax.formats.huggingface.metaspace_export import parse_symbol_split
from tokjax.models.vocabulary_changes import extend_vocabulary, map_old_ids
from tokjax.pretokenize.bytes_to_unicode import map_unicode_to_bytes
from tokjax.pretokenize.special_tokens import check_comparisons, check_special_names, select_control_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from tokjax.core.utf8 import Text

_METASPACE_TO_SPACE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
_PER_TOKEN = {"Metaspace", "WordPiece", "CTC", "Replace", "Strip"}
"""Decoders that convert each token separately, or with the token before it."""


@dataclass(frozen=True)
class HuggingFaceTokenizer(LibraryRecord):
    """Tokenizer that runs on the `tokenizers` library. `load_tokenizer` and `from_huggingface` create it.

    Offsets refer to the input text, even if the library normalizes it. A byte that is not valid UTF-8 and a
    lone surrogate are encoded as U+FFFD, each with its own span. The library decides which characters belong
    to a token; characters that its normalizer removes or joins, or that its model drops, may be in no span or
    in that of another token. Spans do not overlap: tokens that are the bytes of one character have one byte
    each, the span of a `▁` or space that is added before a text is empty, and characters that the library
    assigns to several other tokens are in the span of the first.

    Tokenizers with equal fields are equal. Pickling keeps only the fields. Threads can share a tokenizer.

    Attributes:
        definition: contents of a `tokenizer.json`, as JSON text.
        vocabulary: token ids and token bytes.
        reason: why the tokenizer does not run as a built-in type.
    """

    model: ClassVar[str] = "huggingface"

    @cached_property
    def _decoded_bytes(self) -> Mapping[int, bytes] | None:
        """Id to bytes, as a byte-level decoder decodes them; `None` if the definition has another decoder.

        The decoder reads each token as `bytes_to_unicode` writes bytes, including added tokens. So an added
        token `é` is decoded to one byte.
        """
        decoder = self.pipeline.get("decoder")
        if decoder is None or decoder.get("type") != "ByteLevel":
            return None
        library = self.library_tokenizer
        added_ids = {*library.get_added_tokens_decoder(), *self.vocabulary.special.values()}
        forms = {id_: library.id_to_token(id_) for id_ in added_ids}
        added_bytes = {id_: map_unicode_to_bytes(form) or form.encode("utf-8") for id_, form in forms.items()}
        return {**self.vocabulary.bytes_by_id, **added_bytes}

    @cached_property
    def _skipped_ids(self) -> frozenset[int]:
        """Ids that the library leaves out with `skip_special_tokens`."""
        library = self.library_tokenizer
        added_tokens: dict[int, Any] = library.get_added_tokens_decoder()
        special = {token.content for token in added_tokens.values() if token.special}
        return frozenset(id_ for id_ in added_tokens if library.id_to_token(id_) in special)

    @property
    def normalization(self) -> str | None:
        """Types of the normalizer's steps, joined with `+`; `None` without a normalizer."""
        return "+".join(list_types(get_steps(self.pipeline, "normalizer"))) or None

    def __hash__(self) -> int:
        """Hashes the definition."""
        return hash(self.definition)

    def _to_fingerprint_json(self) -> Any:
        return [self.model, self.contents, self.vocabulary.roles]

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
    library = load_library_tokenizer(definition)
    check_loaded_model(library.model, contents["model"])
    forms: dict[str, int] = library.get_vocab(with_added_tokens=True)
    try:
        names = {*parse_template(contents, forms).tokens, *list_unknown_tokens(contents)} & forms.keys()
        library_tokens = library.get_added_tokens_decoder()
        names |= {token.content for token in library_tokens.values() if token.special}
        symbols = forms.keys() & parse_symbol_split(contents.get("pre_tokenizer"))
        names |= select_control_names(frozenset(symbols))
        # An added token that the model can also produce from text is a token of the model. In a byte-level
        # model it is written as `bytes_to_unicode` writes bytes: the bytes of "Ġ" are those of a space.
        byte_level = is_byte_level(contents)
        model_forms = library.get_vocab(with_added_tokens=False) if byte_level else ()
        flags = {
            token.content: AddedToken(token.lstrip, token.rstrip)
            for token in library_tokens.values()
            if token.content not in names
            and not (token.content in model_forms and map_unicode_to_bytes(token.content))
        }
        special, ordinary = ({name: forms[name] for name in part} for part in (names, flags))
        remaining = {form: id_ for form, id_ in forms.items() if form not in special and form not in flags}
        added = AddedTokens(special, ordinary, flags)
        vocabulary = build_vocabulary(contents, roles, remaining, added, byte_level=byte_level)
    except RequiresLibraryError as error:
        raise TokenizerFormatError(str(error)) from error
    check_comparisons(vocabulary.split_token_names)
    instance = HuggingFaceTokenizer(definition, vocabulary, reason)
    # Fill cached properties, so that the definition is not loaded and parsed again.
    vars(instance).update(library_tokenizer=library, pipeline=select_pipeline(contents))
    return instance


def _define(tokenizer: HuggingFaceTokenizer) -> dict[str, Any]:
    return vars(tokenizer) | {"roles": tokenizer.vocabulary.roles}


@register_record(HuggingFaceTokenizer, _define)
def _restore(definition: str, reason: str, roles: Mapping[Role, str]) -> HuggingFaceTokenizer:
    return build_huggingface_tokenizer(definition, reason, roles)


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
    columns, splits = encode_by_library(tokenizer, texts, options, special)
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
    columns, _ = encode_by_library(tokenizer, [text], options, special)
    return columns["ids"]


@pre_tokenize.register(HuggingFaceTokenizer)
@accept_options(SpecialOptions)
def _pre_tokenize(
    tokenizer: HuggingFaceTokenizer, text: Text, **special: Unpack[SpecialOptions]
) -> PreTokens:
    """Groups tokens by word id: the library numbers the pre-tokens and the matched added tokens."""
    if tokenizer.pipeline.get("pre_tokenizer") is None:
        raise_without_pretokens(tokenizer, "its definition has no pre-tokenizer")
    return group_by_word(tokenizer, text, **special)


@protocol.decode_bytes.register(HuggingFaceTokenizer)
def _decode_bytes(
    tokenizer: HuggingFaceTokenizer, ids: ArrayLike, *, skip_special_tokens: bool = False
) -> bytes:
    """Decodes with a table of bytes if the decoder is byte-level, and otherwise with the library."""
    flat = protocol.as_flat_ids(ids)
    tokenizer.vocabulary.check_ids(flat)
    if (id_bytes := tokenizer._decoded_bytes) is not None:
        skipped = tokenizer._skipped_ids if skip_special_tokens else ()
        return b"".join([id_bytes[id_] for id_ in flat.tolist() if id_ not in skipped])
    with raise_as(InvalidArgumentError, "the tokenizers library can't decode these ids"):
        text: str = tokenizer.library_tokenizer.decode(flat.tolist(), skip_special_tokens=skip_special_tokens)
    return text.encode("utf-8")


protocol.decode_batch.register(HuggingFaceTokenizer)(protocol.decode_row_by_row)


@find_decode_context.register(HuggingFaceTokenizer)
def _find_decode_context(
    tokenizer: HuggingFaceTokenizer, ids: NDArray[np.int32], *, skip_special_tokens: bool = False
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Finds the pending ids: those after the last token that makes text final.

    The context are the ids after an earlier such token, as few as have text. The spaces that decoders remove
    at the start of a text, or add between tokens, do not depend on more than that.
    """
    if tokenizer._decoded_bytes is not None:
        return ids[:0], ids[:0]
    is_final = _make_finality_test(get_steps(tokenizer.pipeline, "decoder"))
    if is_final is None:
        return ids[:0], ids
    skipped = tokenizer._skipped_ids if skip_special_tokens else ()
    get_form = tokenizer.library_tokenizer.id_to_token
    visible = [(i, id_) for i, id_ in enumerate(ids.tolist(), 1) if id_ not in skipped]
    stops = [0, *(i for i, id_ in visible if is_final(get_form(id_)))]
    context: list[int] = []
    for start in reversed(stops[:-1]):
        context = [id_ for i, id_ in visible if start < i <= stops[-1]]
        if _decode_bytes(tokenizer, context):
            break
    first_pending = next((i - 1 for i, _ in visible if i > stops[-1]), len(ids))
    return np.array(context, np.int32), ids[first_pending:]


def _make_finality_test(steps: Sequence[dict[str, Any]]) -> Callable[[str], bool] | None:
    """Returns a test of tokens: whether the text up to a token is final, whatever tokens follow.

    Args:
        steps: steps of the decoder.

    Returns:
        Function of the written form of a token; `None` if later tokens can change any text, or if that is
        not known.
    """
    types = list_types(steps)
    if types == ["BPEDecoder"]:
        suffix = steps[0]["suffix"]
        # The suffix becomes a space, but nothing in the last token.
        return lambda form: form.replace(suffix, " ").startswith(form.replace(suffix, ""))
    has_byte_fallback = types[:1] == ["ByteFallback"] or (
        types[1:2] == ["ByteFallback"] and steps[0] == _METASPACE_TO_SPACE
    )
    if has_byte_fallback:
        types.remove("ByteFallback")
    fuse = types.index("Fuse") if "Fuse" in types else len(types)
    strips_start_only = types[fuse + 1 :] in ([], ["Strip"]) and not (types[fuse + 1 :] and steps[-1]["stop"])
    if not strips_start_only or not _PER_TOKEN.issuperset(types[:fuse]) or "CTC" in types[1:]:
        return None  # CTC after a decoder that converts the first token otherwise compares other texts
    return (lambda form: not LIKE_BYTE.fullmatch(form)) if has_byte_fallback else (lambda _: True)


@find_text_lengths.register(HuggingFaceTokenizer)
def _find_text_lengths(tokenizer: HuggingFaceTokenizer) -> NDArray[np.integer[Any]]:
    lengths = np.zeros(tokenizer.vocabulary.size, np.int64)
    if tokenizer._decoded_bytes is not None:
        lengths[list(tokenizer._decoded_bytes)] = [*map(len, tokenizer._decoded_bytes.values())]
        return lengths
    lengths[:] = find_text_lengths.dispatch(object)(tokenizer)
    if "ByteFallback" in list_types(get_steps(tokenizer.pipeline, "decoder")):
        # The library decodes a part of a character to U+FFFD, which is longer.
        tokens = tokenizer.vocabulary.bytes_by_id
        lengths[[id_ for id_, token in tokens.items() if BYTE_PIECE.fullmatch(token)]] = 1
    return lengths


@protocol.find_matched_names.register(HuggingFaceTokenizer)
def _find_matched_names(tokenizer: HuggingFaceTokenizer) -> frozenset[str]:
    tokens = tokenizer.contents.get("added_tokens") or []
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
