"""Tokenizers that run on Hugging Face's `tokenizers` library.

The library normalizes, splits, encodes and decodes, so the ids are its ids. tokjax adds byte offsets without
overlaps, checks of special tokens in texts, and limits for untrusted files. This module builds
tokenizers, and decodes; `library.py` has their type, and encodes.

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
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax.core import protocol
from tokjax.core.decode_stream import find_decode_context
from tokjax.core.json_records import register_record
from tokjax.core.token_byte_lengths import BYTE_PIECE, find_text_lengths
from tokjax.core.vocabulary import AddedToken, Role
from tokjax.errors import InvalidArgumentError, TokenizerFormatError, UnsupportedTokenizerError
from tokjax.formats.huggingface import parts
from tokjax.formats.huggingface.definition_checks import check_before_loading, check_loaded_model
from tokjax.formats.huggingface.library import (
    HuggingFaceTokenizer,
    load_library_tokenizer,
    raise_as,
    select_pipeline,
)
from tokjax.models.roles_and_templates import replace_roles
from tokjax.models.vocabulary_changes import extend_vocabulary, map_old_ids
from tokjax.pretokenize.bytes_to_unicode import map_unicode_to_bytes
from tokjax.pretokenize.special_tokens import check_comparisons, check_special_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray


_METASPACE_TO_SPACE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
_PER_TOKEN = {"Metaspace", "WordPiece", "CTC", "Replace", "Strip"}
"""Decoders that convert each token separately, or with the token before it."""


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
    check_before_loading(contents)
    library = load_library_tokenizer(definition)
    check_loaded_model(library.model, contents["model"])
    forms: dict[str, int] = library.get_vocab(with_added_tokens=True)
    try:
        names = {
            *parts.parse_template(contents, forms).tokens,
            *parts.list_unknown_tokens(contents),
        } & forms.keys()
        library_tokens = library.get_added_tokens_decoder()
        names |= {token.content for token in library_tokens.values() if token.special}
        # An added token that the model can also produce from text is a token of the model. In a byte-level
        # model it is written as `bytes_to_unicode` writes bytes: the bytes of "Ġ" are those of a space.
        byte_level = parts.is_byte_level(contents)
        model_forms = library.get_vocab(with_added_tokens=False) if byte_level else ()
        flags = {
            token.content: AddedToken(token.lstrip, token.rstrip)
            for token in library_tokens.values()
            if token.content not in names
            and not (token.content in model_forms and map_unicode_to_bytes(token.content))
        }
        special, ordinary = ({name: forms[name] for name in part} for part in (names, flags))
        remaining = {form: id_ for form, id_ in forms.items() if form not in special and form not in flags}
        added = parts.AddedTokens(special, ordinary, flags)
        vocabulary = parts.build_vocabulary(contents, roles, remaining, added, byte_level=byte_level)
    except parts.RequiresLibraryError as error:
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


@protocol.decode_bytes.register(HuggingFaceTokenizer)
def _decode_bytes(
    tokenizer: HuggingFaceTokenizer, ids: ArrayLike, *, skip_special_tokens: bool = False
) -> bytes:
    """Decodes with a table of bytes if the decoder is byte-level, and otherwise with the library."""
    flat = protocol.as_flat_ids(ids)
    tokenizer.vocabulary.check_ids(flat)
    if (id_bytes := tokenizer.decoded_bytes) is not None:
        skipped = tokenizer.skipped_ids if skip_special_tokens else ()
        return b"".join([id_bytes[id_] for id_ in flat.tolist() if id_ not in skipped])
    with raise_as(InvalidArgumentError, "the tokenizers library can't decode these ids"):
        text: str = tokenizer.library_tokenizer.decode(flat.tolist(), skip_special_tokens=skip_special_tokens)
    return text.encode("utf-8")


protocol.decode_batch.register(HuggingFaceTokenizer)(protocol.decode_row_by_row)


@find_decode_context.register(HuggingFaceTokenizer)
def _find_decode_context(
    tokenizer: HuggingFaceTokenizer, ids: NDArray[np.int32], *, skip_special_tokens: bool = False
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Finds the pending ids: those after the last token that makes text final."""
    if tokenizer.decoded_bytes is not None:
        return ids[:0], ids[:0]
    is_final = _make_finality_test(parts.get_steps(tokenizer.pipeline, "decoder"))
    if is_final is None:
        return ids[:0], ids
    skipped = tokenizer.skipped_ids if skip_special_tokens else ()
    get_form = tokenizer.library_tokenizer.id_to_token
    visible = enumerate(ids.tolist(), 1)
    stop = max((i for i, id_ in visible if id_ not in skipped and is_final(get_form(id_))), default=0)
    return ids[:stop], ids[stop:]


def _make_finality_test(steps: Sequence[dict[str, Any]]) -> Callable[[str], bool] | None:
    """Returns a test of tokens: whether the text up to a token is final, whatever tokens follow.

    Args:
        steps: steps of the decoder.

    Returns:
        Function of the written form of a token; `None` if later tokens can change any text, or if that is
        not known.
    """
    types = parts.list_types(steps)
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
    return (lambda form: not parts.LIKE_BYTE.fullmatch(form)) if has_byte_fallback else (lambda _: True)


@find_text_lengths.register(HuggingFaceTokenizer)
def _find_text_lengths(tokenizer: HuggingFaceTokenizer) -> NDArray[np.integer[Any]]:
    lengths = np.zeros(tokenizer.vocabulary.size, np.int64)
    if tokenizer.decoded_bytes is not None:
        lengths[list(tokenizer.decoded_bytes)] = [*map(len, tokenizer.decoded_bytes.values())]
        return lengths
    lengths[:] = find_text_lengths.dispatch(object)(tokenizer)
    if "ByteFallback" in parts.list_types(parts.get_steps(tokenizer.pipeline, "decoder")):
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
    library = load_library_tokenizer(tokenizer.definition)
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
    extended = build_huggingface_tokenizer(library.to_str(), tokenizer.reason, tokenizer.vocabulary.roles)
    extended = replace_roles(extended, {"pad": pad_token})
    return extended, map_old_ids(size, extended.vocabulary.size)
