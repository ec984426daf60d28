"""Tokenizers that run on Hugging Face's `tokenizers` library.

The library normalizes, splits, encodes and decodes, so the ids are its ids. tokjax adds byte offsets without
overlaps, checks of special tokens in texts, and limits for untrusted files. Encoding has these steps:

1. Reject disallowed special tokens in the texts.
2. Encode the texts with the library, without its template. Its tokenizer either matches all special tokens in
   a text or none (`encode_special_tokens`), so there are two instances. A text is encoded again by the second
   one if the first one has matched a special token that is ordinary text.
3. Reject special tokens that the library found although they are not in the text: normalization can turn
   "<|END|>" into "<|end|>".
4. Insert special tokens and compute masks and offsets, as for all types. The library's spans are in
   characters and can overlap; here they are in bytes, and `separate_spans` separates them.

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
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tokjax._util.imports import import_optional
from tokjax.bpe.chunks import EncodedSegments
from tokjax.core import protocol
from tokjax.core.decode_stream import find_decode_context
from tokjax.core.json_records import register_record
from tokjax.core.protocol import BYTE_PIECE, find_text_lengths
from tokjax.core.ragged import make_row_splits
from tokjax.core.utf8 import find_character_starts
from tokjax.core.vocabulary import AddedToken, Role, Vocabulary
from tokjax.errors import (
    InvalidArgumentError,
    MissingExtraError,
    TokenizerFormatError,
    UnsupportedTokenizerError,
)
from tokjax.formats.huggingface import parts
from tokjax.formats.huggingface.definition_checks import check_before_loading, check_loaded
from tokjax.models.base import JoiningModel
from tokjax.models.byte_spans import separate_spans
from tokjax.models.vocabulary_changes import extend_vocabulary, map_old_ids, replace_roles
from tokjax.pretokenize.bytes_to_unicode import map_bytes_to_unicode, map_unicode_to_bytes
from tokjax.pretokenize.special_tokens import (
    check_comparisons,
    check_special_names,
    has_special,
    resolve_special,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from tokjax.bpe.chunks import Segments
    from tokjax.core.encode_options import Special
    from tokjax.core.records import OffsetsReference
    from tokjax.errors import TokjaxError

_SURROGATES_TO_REPLACEMENT = dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
_METASPACE_TO_SPACE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
_PER_TOKEN = {"Metaspace", "WordPiece", "CTC", "Replace", "Strip"}
"""Decoders that convert each token separately, or with the token before it."""


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


@dataclass(frozen=True, repr=False)
class HuggingFaceTokenizer(JoiningModel):
    """Tokenizer that runs on the `tokenizers` library. `load_tokenizer` and `from_huggingface` create it.

    Offsets refer to the input text, even if the library normalizes it. A byte that is not valid UTF-8 and a
    lone surrogate are encoded as U+FFFD, each with its own span. The library decides which characters belong
    to a token; characters that its normalizer removes or joins, or that its model drops, may be in no span or
    in that of another token. Spans do not overlap: tokens that are the bytes of one character have one byte
    each, the span of a `▁` or space that is added before a text is empty, and characters that the library
    assigns to several other tokens are in the span of the first.

    Tokenizers with equal fields are equal. Pickling keeps only the fields. Threads can share a tokenizer.

    Attributes:
        vocabulary: token ids and token bytes.
        definition: contents of a `tokenizer.json`, as JSON text.
        reason: why the tokenizer does not run as a built-in type.
    """

    model = "huggingface"

    vocabulary: Vocabulary
    definition: str = field(repr=False)
    reason: str

    def replace_vocabulary(self, vocabulary: Vocabulary) -> Self:
        """Returns a copy with another vocabulary, which has the same template.

        Raises:
            UnsupportedTokenizerError: the template is not that of the definition.
        """
        if vocabulary.template != self.vocabulary.template:
            raise UnsupportedTokenizerError(
                "with_template needs one of the built-in tokenizers, not a HuggingFaceTokenizer; change the "
                "post_processor of its tokenizer.json"
            )
        return super().replace_vocabulary(vocabulary)

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

    @property
    def offsets_reference(self) -> OffsetsReference:
        """The text that offsets refer to: the input text."""
        return "input_text"

    @property
    def why_no_pretokens(self) -> str:
        """Reason for which `pre_tokenize` raises an error, or nothing: the library numbers the pre-tokens."""
        has_pretokens = self.pipeline.get("pre_tokenizer") is not None
        return "" if has_pretokens else "its definition has no pre-tokenizer"

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Added tokens that are not special, which the library matches in any text."""
        tokens = self.contents.get("added_tokens") or []
        return frozenset(token["content"] for token in tokens if not token["special"])

    @cached_property
    def made_names(self) -> frozenset[str]:
        """Special tokens that the library can make of text, other than the unknown token of the model.

        Another token than that of the model can have the role in configuration files.
        """
        model, library = self.pipeline["model"], self.library_tokenizer
        unknown_id = model.get("unk_id")
        if unknown_id is None and model.get("unk_token") is not None:
            unknown_id = library.token_to_id(model["unk_token"])
        return frozenset(name for name, id_ in self.vocabulary.special.items() if id_ != unknown_id)

    def find_split_names(self, allowed: frozenset[str]) -> frozenset[str]:  # noqa: ARG002
        """Returns no names: the library matches all tokens itself, some of them in normalized text."""
        return frozenset()

    def select_encoder(
        self, allowed_special: Special = (), disallowed_special: Special = "all"
    ) -> Callable[..., EncodedSegments]:
        """Returns `encode_segments`, with the special tokens that are ordinary text."""
        if disallowed_special == "all":
            return self.encode_segments
        names = self.vocabulary.special_names
        allowed, disallowed = resolve_special(names, allowed_special, disallowed_special)
        return partial(self.encode_segments, allowed=allowed, ordinary=names - allowed - disallowed)

    def encode_segments(
        self,
        segments: Segments,
        threads: int = 1,  # noqa: ARG002 (the library has its own threads)
        *,
        sources: bool = True,
        allowed: frozenset[str] = frozenset(),
        ordinary: frozenset[str] = frozenset(),
    ) -> EncodedSegments:
        """Encodes segments of ordinary text, independently of one another.

        Args:
            segments: segments of text.
            threads: ignored.
            sources: whether to compute word ids and spans.
            allowed: special tokens that are matched in texts.
            ordinary: special tokens whose text, or what becomes it, is ordinary text.

        Raises:
            InvalidArgumentError: the library can't encode the texts, or one has tokens of both kinds.
        """
        texts = segments.get_characters()
        if segments.hold_bytes:  # the library gets a U+FFFD for each invalid byte
            texts = [text.translate(_SURROGATES_TO_REPLACEMENT) for text in texts]
        encodings = _encode_texts(self.library_tokenizer, texts, sources)
        if ordinary:
            self._encode_as_text(texts, encodings, sources, allowed, ordinary)
        splits = make_row_splits(map(len, encodings))
        rows = [np.array(encoding.ids, np.int32) for encoding in encodings]
        ids = np.concatenate([np.zeros(0, np.int32), *rows])
        if not sources:
            return EncodedSegments(ids, splits, None)
        steps = [_compute_word_steps(encoding.word_ids) for encoding in encodings]
        spans = map(self._compute_spans, segments.encode(), encodings, rows)
        return EncodedSegments(
            ids,
            splits,
            np.concatenate([np.zeros(0, np.int32), *steps]),
            np.concatenate([np.zeros((0, 2), np.int64), *spans]),
        )

    def _encode_as_text(
        self,
        texts: Sequence[str],
        encodings: list[Any],
        sources: bool,
        allowed: frozenset[str],
        ordinary: frozenset[str],
    ) -> None:
        """Replaces the encodings of texts in which special tokens were matched that are ordinary text."""
        special = self.vocabulary.special
        made_ids = {special[name] for name in ordinary & self.made_names} - {
            special[name] for name in allowed
        }
        unknown = ordinary - self.made_names  # has the id of unknown text
        again = [
            i
            for i, encoding in enumerate(encodings)
            if not made_ids.isdisjoint(encoding.ids) or has_special(texts[i], unknown)
        ]
        if any(has_special(texts[i], allowed) for i in again):
            raise InvalidArgumentError(
                "the tokenizers library matches all special tokens in a text or none, but a text contains "
                f"allowed ones and ones to encode as ordinary text ({sorted(ordinary)[:5]}); allow all of "
                "them, or disallow the others"
            )
        if again:
            texts_again = [texts[i] for i in again]
            encoded = _encode_texts(self.special_as_text_tokenizer, texts_again, sources)
            for i, encoding in zip(again, encoded, strict=True):
                encodings[i] = encoding

    def _compute_spans(self, text: bytes, encoding: Any, ids: NDArray[np.int32]) -> NDArray[np.int64]:
        """Returns the 0-based half-open byte spans of the tokens of a text, `int64`, shape `(n, 2)`."""
        characters = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        # Offsets can exceed the text where the model adds a suffix to words, so they are clipped.
        spans = find_character_starts(text).take(characters, mode="clip") + 1
        return separate_spans(spans, ids, self.span_bytes.__getitem__, self.prefix_ids, text) - 1

    @cached_property
    def prefix_ids(self) -> frozenset[int]:
        """Ids of the tokens that a normalizer or pre-tokenizer adds before texts, such as `▁`."""
        steps = [
            *parts.get_steps(self.pipeline, "normalizer"),
            *parts.get_steps(self.pipeline, "pre_tokenizer"),
        ]
        forms = {" "} | {step.get("prepend") or step.get("replacement") or " " for step in steps}
        if parts.is_byte_level(self.pipeline):
            forms = {map_bytes_to_unicode(form.encode("utf-8")) for form in forms}
        ids = map(self.library_tokenizer.token_to_id, forms)
        return frozenset(id_ for id_ in ids if id_ is not None)

    @cached_property
    def span_bytes(self) -> list[bytes]:
        """Bytes of the text span of each id, for `separate_spans`. Other ids have the bytes of their form.

        Trimmed spans leave out spaces, and a byte token such as `<0xE6>` spans one byte.
        """
        trims = any(step.get("trim_offsets") for step in parts.get_steps(self.pipeline, "post_processor"))
        byte_level, span_bytes = parts.is_byte_level(self.pipeline), [b""] * self.vocabulary.size
        for id_, token in self.vocabulary.bytes_by_id.items():
            if not byte_level and BYTE_PIECE.fullmatch(token):
                span_bytes[id_] = bytes([int(token[3:5], 16)])
            else:
                span_bytes[id_] = token.strip(b" ") if byte_level and trims else token
        return span_bytes

    @cached_property
    def decoded_bytes(self) -> Mapping[int, bytes] | None:
        """Id to bytes, as a byte-level decoder decodes them; `None` if the definition has another decoder.

        The decoder reads each token as `bytes_to_unicode` writes bytes, including added tokens. So an added
        token `é` is decoded to one byte.
        """
        if parts.list_types(parts.get_steps(self.pipeline, "decoder")) != ["ByteLevel"]:
            return None
        library = self.library_tokenizer
        added_ids = {*library.get_added_tokens_decoder(), *self.vocabulary.special.values()}
        forms = {id_: library.id_to_token(id_) for id_ in added_ids}
        added_bytes = {id_: map_unicode_to_bytes(form) or form.encode("utf-8") for id_, form in forms.items()}
        return {**self.vocabulary.bytes_by_id, **added_bytes}

    @cached_property
    def is_skipped(self) -> NDArray[np.bool_]:
        """Mask of the ids that the library leaves out with `skip_special_tokens`, `bool`, shape `(size,)`."""
        library = self.library_tokenizer
        added_tokens: dict[int, Any] = library.get_added_tokens_decoder()
        special = {token.content for token in added_tokens.values() if token.special}
        skipped = np.zeros(self.vocabulary.size, bool)
        skipped[[id_ for id_ in added_tokens if library.id_to_token(id_) in special]] = True
        return skipped

    def join_tokens(self, ids: list[int]) -> bytes:
        """Returns the text of tokens: by a table of bytes if the decoder is byte-level, or by the library."""
        if self.decoded_bytes is not None:
            return b"".join(map(self.decoded_bytes.__getitem__, ids))
        with raise_as(InvalidArgumentError, "the tokenizers library can't decode these ids"):
            text: str = self.library_tokenizer.decode(ids, skip_special_tokens=False)
        return text.encode("utf-8")

    @property
    def normalization(self) -> str | None:
        """Types of the normalizer's steps, joined with `+`; `None` without a normalizer."""
        return "+".join(parts.list_types(parts.get_steps(self.pipeline, "normalizer"))) or None

    def _to_fingerprint_json(self) -> Any:
        return [self.model, self.contents, self.vocabulary.roles]


def _encode_texts(library: Any, texts: Sequence[str], sources: bool) -> list[Any]:
    """Returns the library's encodings of texts, without its template."""
    encode_batch = library.encode_batch if sources else library.encode_batch_fast
    with raise_as(InvalidArgumentError, "the tokenizers library can't encode these texts"):
        encodings: list[Any] = encode_batch(texts, add_special_tokens=False)
    return encodings


def _compute_word_steps(word_ids: Sequence[int | None]) -> NDArray[Any]:
    """Returns by how much each word id of a text exceeds the one before it; ids that are `None` are -1."""
    return np.diff(np.array([-1 if i is None else i for i in word_ids], np.int32), prepend=np.int32(-1))


def select_pipeline(contents: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a parsed definition without the tokens and merges of its model."""
    model = {name: part for name, part in contents["model"].items() if name not in ("vocab", "merges")}
    return {**contents, "model": model}


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
    check_loaded(library, contents["model"])
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
    instance = HuggingFaceTokenizer(vocabulary, definition, reason)
    # Fill cached properties, so that the definition is not loaded and parsed again.
    vars(instance).update(library_tokenizer=library, pipeline=select_pipeline(contents))
    return instance


def _define(tokenizer: HuggingFaceTokenizer) -> dict[str, Any]:
    return vars(tokenizer) | {"roles": tokenizer.vocabulary.roles}


@register_record(HuggingFaceTokenizer, _define)
def _restore(definition: str, reason: str, roles: Mapping[Role, str]) -> HuggingFaceTokenizer:
    return build_huggingface_tokenizer(definition, reason, roles)


@find_decode_context.register(HuggingFaceTokenizer)
def _find_decode_context(
    tokenizer: HuggingFaceTokenizer, ids: NDArray[np.int32], *, skip_special_tokens: bool = False
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Finds the pending ids: those after the last token that makes text final.

    The context are the ids after an earlier such token, as few as have text. The spaces that decoders remove
    at the start of a text, or add between tokens, do not depend on more than that.
    """
    if tokenizer.decoded_bytes is not None:
        return ids[:0], ids[:0]
    is_final = _make_finality_test(parts.get_steps(tokenizer.pipeline, "decoder"))
    if is_final is None:
        return ids[:0], ids
    is_visible = ~(tokenizer.is_skipped.take(ids) & skip_special_tokens)
    get_form = tokenizer.library_tokenizer.id_to_token
    visible = [(i + 1, int(ids[i])) for i in np.flatnonzero(is_visible).tolist()]
    stops = [0, *(i for i, id_ in visible if is_final(get_form(id_)))]
    context: list[int] = []
    for start in reversed(stops[:-1]):
        context = [id_ for i, id_ in visible if start < i <= stops[-1]]
        if context and tokenizer.join_tokens(context):
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
