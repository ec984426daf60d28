"""SentencePiece tokenizers, with the ids of the `sentencepiece` library.

BPE models run on the array engine, all others and short texts on the library. Normalization is part of
encoding. So `tokenization_view` returns the text itself, and `assume_normalized` has no effect: offsets
always refer to the input text, whatever the normalization. For the offsets, the library reports the source
position of each byte of the normalized text (`models/byte_spans.py`).

The library merges the pair of characters or pieces whose concatenation is the piece of highest score, and of
equal scores the leftmost. The array engine merges symbols that way, if the symbols are numbered by score. It
starts from bytes instead of characters. So the bytes of each character of the vocabulary are symbols that
merge before all others:

    symbols of a model with the pieces "▁", "e", "é", "▁é"
        0 to 255     the bytes, of which the space is "▁" and 0x65 is "e"
        256          C3 A9, the character "é"
        257          20 C3 A9, the piece "▁é"

Merging that ends at a byte, or at a part of a character, means that the character is unknown. It becomes the
byte pieces of the model, or the unknown piece.

See docs/performance.md, section "SentencePiece".
"""

from __future__ import annotations

import base64
import codecs
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tokjax._util.limits import no_limits
from tokjax._util.threads import map_in_threads
from tokjax.bpe.array_engine import ArrayEngine, Engine
from tokjax.bpe.chunks import EncodedSegments, Segments, concatenate_segments
from tokjax.bpe.merge_rules import MergeRules, RulesTooLargeError, check_symbol_lengths
from tokjax.bpe.pre_tokenizers import AdjacencyPreTokenizer, SymbolPreTokenizer
from tokjax.core import protocol
from tokjax.core.decode_stream import find_decode_context
from tokjax.core.json_records import register_record
from tokjax.core.protocol import find_text_lengths
from tokjax.core.ragged import make_row_splits
from tokjax.core.template import Template
from tokjax.core.utf8 import check_error_handler, encode_segment, to_utf8
from tokjax.core.vocabulary import (
    ROLES,
    TEMPLATE_ROLES,
    AddedToken,
    Role,
    Vocabulary,
    check_role_names,
    make_vocabulary,
)
from tokjax.errors import InvalidArgumentError, TokenizerFormatError
from tokjax.models.base import SegmentModel
from tokjax.models.byte_spans import (
    SPACE,
    clip_spans,
    compute_piece_spans,
    compute_piece_stops,
    flag_piece_word_beginnings,
    normalize_texts,
)
from tokjax.models.format_errors import check_piece_comparisons
from tokjax.models.metaspace import METASPACE, build_piece_bytes, decode_piece
from tokjax.models.sentencepiece_files import (
    ModelInfo,
    ModelType,
    PieceType,
    append_pieces,
    iter_pieces,
    load_processor,
    parse_model_info,
    parse_pieces,
    read_model,
)
from tokjax.pretokenize.special_tokens import check_comparisons, select_control_names

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from tokjax.core.ragged import Ragged
    from tokjax.core.records import OffsetsReference, TokenizationBatch
    from tokjax.models.byte_spans import NormalizedTexts
    from tokjax.models.sentencepiece_files import Pieces

FEW_CHARACTERS = Engine.few_characters
_GROUP_BYTES = 1 << 19
_NUM_BYTES = 256
_LIBRARY_BYTES_PER_PIECE = 16
"""The library encodes this many bytes per piece of the model before the tables of the array engine are built:
that takes about as long as the library takes for these bytes."""


@dataclass(frozen=True, repr=False)
class SentencePieceTokenizer(SegmentModel):
    """SentencePiece model. Create it with `sentencepiece` and use it through the generic functions.

    Control pieces (`<s>`, `</s>`, `<pad>`) and the unknown piece are special tokens. So are user-defined
    symbols that look like control tokens, such as Gemma's `<start_of_turn>`: they are matched in a text if
    they are allowed. All other pieces are ordinary tokens, including byte pieces, and are in the vocabulary
    as they are written: `▁the`, `<0x41>`. Other user-defined symbols are matched anywhere in a text.

    Offsets refer to the input text. The span of a piece covers all characters that it came from. If
    normalization replaced a character by several (`½` by `1⁄2`), the first piece with any of these has the
    span of the character, and the others have an empty span at its end. Whitespace that is removed belongs
    to the piece with the space that is kept. The space that the model adds before a text has an empty span,
    unless it is part of a longer piece. If a character was not changed and is encoded as bytes, each byte
    piece has the span of its byte.

    Control pieces that are allowed in a text (`allowed_special`) split it, and so do added tokens. The parts
    are encoded separately, each with a space added before it if the model adds one.

    Decoding is that of the library. Symbols are decoded to their text, control pieces to nothing, the unknown
    piece to ` ⁇ ` (unless `skip_special_tokens`), and bytes that are not valid UTF-8 to U+FFFD. So the round
    trip returns the normalized text.

    A byte that is not valid UTF-8 is encoded as U+FFFD with the span of the byte, and not normalized further.
    (A U+FFFD in the text, or a lone surrogate, becomes a space in most normalizers.)

    Tokenizers are equal if their models and the special tokens that they insert are equal. Pickling stores
    the model. Threads can share a tokenizer.

    Attributes:
        model_proto: serialized model, the contents of a `.model` file.
        vocabulary: token ids and pieces.
    """

    model = "sentencepiece"

    model_proto: bytes
    vocabulary: Vocabulary

    @property
    def normalization(self) -> str:
        """Name of the model's normalizer, for instance `"nmt_nfkc"` or `"identity"`."""
        return self._model_info.normalizer

    @property
    def offsets_reference(self) -> OffsetsReference:
        """The text that offsets refer to: the input text."""
        return "input_text"

    @property
    def model_type(self) -> ModelType:
        """Algorithm that splits texts: `"unigram"`, `"bpe"`, `"word"` or `"char"`."""
        return self._model_info.model_type

    def encode_segments(
        self, segments: Segments, threads: int = 1, *, sources: bool = True
    ) -> EncodedSegments:
        """Encodes segments of ordinary text, independently of one another."""
        texts = [encode_segment(text, segments.hold_bytes) for text in segments.texts]
        engine = self._engine if self._is_engine_faster(sum(map(len, texts))) else None
        has_known_spans = self._model_info.has_byte_fallback or not sources
        if engine is not None and has_known_spans and self._keeps_bytes(segments):
            return self._encode_unchanged(engine, segments, threads, sources=sources)
        groups = list(_iter_groups(texts))
        encode = partial(
            self._encode_group, sources=sources, engine=engine, threads=threads if len(groups) == 1 else 1
        )
        return concatenate_segments(list(map_in_threads(encode, groups, threads)))

    @property
    def matched_special(self) -> frozenset[str]:
        """The symbols that are special."""
        return self.vocabulary.unmatched_names

    def match_less(self, names: frozenset[str]) -> Self:
        """Returns a tokenizer for whose model some symbols are control pieces."""
        proto = append_pieces(self.model_proto, dict.fromkeys(names, PieceType.CONTROL))
        return replace(self, model_proto=proto)

    def locate_pieces(
        self, texts: Sequence[bytes], rows: Sequence[NDArray[np.int32]], lengths: NDArray[np.int64]
    ) -> EncodedSegments:
        """Returns ids of texts with their spans and word beginnings.

        Args:
            texts: texts that were encoded, in UTF-8.
            rows: ids of each text.
            lengths: number of bytes of normalized text of each id in all rows, `int64`, shape `(n,)`.
        """
        normalized = normalize_texts(self.processor, texts, self._model_info.spaces)
        return self._locate(texts, normalized, _concatenate(rows), lengths)

    def replace_vocabulary(self, vocabulary: Vocabulary) -> Self:
        """Returns a copy with another vocabulary, and with the caches that depend on the model only."""
        updated = super().replace_vocabulary(vocabulary)
        cached = ("processor", "_model_info")
        vars(updated).update({name: vars(self)[name] for name in cached if name in vars(self)})
        return updated

    @cached_property
    def processor(self) -> Any:
        """The library's `SentencePieceProcessor`. Do not change its settings."""
        return load_processor(self.model_proto)

    @cached_property
    def text_byte_lengths(self) -> NDArray[np.int64]:
        """Number of bytes of a text that is not normalized per token id, `int64`, shape `(size,)`.

        It is that of the piece with a space for each `▁`; 0 for special tokens.
        """
        num_marks = np.array([piece.count(METASPACE) for piece in self._parsed_pieces.texts], np.int64)
        lengths: NDArray[np.int64] = self.piece_lengths - num_marks * (len(SPACE) - 1)
        return lengths.clip(min=0)

    @cached_property
    def piece_lengths(self) -> NDArray[np.int64]:
        """Number of bytes of normalized text per token id, `int64`, shape `(size,)`; 0 for special tokens."""
        lengths = np.where(self._is_byte, 1, self.vocabulary.byte_lengths)
        return np.where(self.vocabulary.is_skipped, 0, lengths)

    def _encode_group(
        self,
        texts: Sequence[bytes],
        *,
        sources: bool,
        engine: ArrayEngine | None = None,
        threads: int = 1,
    ) -> EncodedSegments:
        """Encodes a group of texts with the engine, or with the library for `None`."""
        normalized = normalize_texts(self.processor, texts, self._model_info.spaces) if sources else None
        if engine is not None:
            strings = self.processor.normalize(texts) if normalized is None else normalized.texts
            spaced = [text.decode("utf-8").replace(METASPACE, " ") for text in strings]
            encoded, lengths = self._encode_on_arrays(engine, spaced, threads)
        else:
            rows = self._encode_ids(texts)
            encoded = _concatenate(rows)
            lengths = self._compute_lengths(texts, rows) if sources else encoded.splits
        return encoded if normalized is None else self._locate(texts, normalized, encoded, lengths)

    def _encode_ids(self, texts: Sequence[bytes]) -> Sequence[NDArray[np.int32]]:
        if len(texts) == 1:  # avoid the library's batch call, which starts threads
            rows = [self.processor.encode(texts[0], out_type="numpy")]
        else:
            rows = self.processor.encode(texts, out_type="numpy", num_threads=1)
        return [np.asarray(row, np.int32) for row in rows]

    def _compute_lengths(
        self, texts: Sequence[bytes], rows: Sequence[NDArray[np.int32]]
    ) -> NDArray[np.int64]:
        """Computes the number of bytes of normalized text of each id in all rows, `int64`, shape `(n,)`.

        The length of an unknown piece depends on the text, so texts with unknown pieces are encoded again to
        strings.
        """
        lengths = [self.piece_lengths.take(row) for row in rows]
        unknown = [np.flatnonzero(row == self.vocabulary.get_role_id("unk")) for row in rows]
        affected = [i for i, positions in enumerate(unknown) if len(positions)]
        pieces = self.processor.encode([texts[i] for i in affected], out_type=str, num_threads=1)
        for i, strings in zip(affected, pieces, strict=True):
            lengths[i][unknown[i]] = [len(to_utf8(strings[position])) for position in unknown[i].tolist()]
        return np.concatenate([np.zeros(0, np.int64), *lengths])

    def _is_engine_faster(self, nbytes: int) -> bool:
        """Returns whether the array engine is faster than the library, with the time to build its tables."""
        if nbytes <= FEW_CHARACTERS:
            return False
        if "_engine" in vars(self):
            return True
        seen: int = vars(self).get("_bytes_seen", 0) + nbytes
        vars(self)["_bytes_seen"] = seen
        return seen > _LIBRARY_BYTES_PER_PIECE * self.vocabulary.size

    def _encode_unchanged(
        self, engine: ArrayEngine, segments: Segments, threads: int, *, sources: bool
    ) -> EncodedSegments:
        """Encodes texts that are their pieces, concatenated, apart from a space added before them."""
        added = " " * self._model_info.spaces.is_added
        spaced = [text and added + text for text in segments.texts]
        encoded, _ = self._encode_on_arrays(engine, spaced, threads)
        if not sources:
            return encoded
        first = encoded.splits[:-1][np.diff(encoded.splits) > 0]
        begins = self._begins_with_mark.take(encoded.ids)
        begins[first] = True
        lengths = self.text_byte_lengths.take(encoded.ids)
        lengths[first] -= len(added)
        return encoded._replace(begins_word=begins, lengths=lengths)

    def _encode_on_arrays(
        self, engine: ArrayEngine, texts: list[str], threads: int
    ) -> tuple[EncodedSegments, NDArray[np.int64]]:
        """Encodes normalized texts. Returns their ids, and the number of bytes of normalized text of each."""
        encoded = engine.encode_segments(Segments(texts, False), threads, sources=False)
        lengths = self.piece_lengths.take(encoded.ids)
        if self._parsed_pieces.byte_ids:
            return encoded, lengths
        # The library joins adjacent unknown bytes of a text to one piece.
        is_unknown = encoded.ids == self.vocabulary.get_role_id("unk")
        lengths[is_unknown] = 1
        continues = np.append(False, is_unknown[1:] & is_unknown[:-1])[: len(is_unknown)]
        continues[encoded.splits[:-1][np.diff(encoded.splits) > 0]] = False
        if not continues.any():
            return encoded, lengths
        first = np.flatnonzero(~continues)
        splits = np.searchsorted(first, encoded.splits)
        return EncodedSegments(encoded.ids.take(first), splits, None), np.add.reduceat(lengths, first)

    def _keeps_bytes(self, segments: Segments) -> bool:
        """Returns whether normalization changes no text, apart from a space added before it."""
        if self._model_info.charsmap or self._model_info.spaces.are_merged or segments.hold_bytes:
            return False
        return not any(METASPACE in text or "\0" in text for text in segments.texts)

    def _locate(
        self,
        texts: Sequence[bytes],
        normalized: NormalizedTexts,
        encoded: EncodedSegments,
        lengths: NDArray[np.int64],
    ) -> EncodedSegments:
        """Returns ids of texts with their spans and word beginnings."""
        ids, splits = encoded.ids, encoded.splits
        stops = compute_piece_stops(normalized, lengths, splits)
        starts = stops - lengths
        spans = compute_piece_spans(texts, normalized, starts, stops, self._is_byte.take(ids))
        begins = flag_piece_word_beginnings(normalized, starts, splits, self._model_info.spaces)
        return EncodedSegments(ids, splits, begins, clip_spans(spans, splits))

    @cached_property
    def _engine(self) -> ArrayEngine | None:
        return _build_engine(self._parsed_pieces, self._model_info)

    @cached_property
    def _parsed_pieces(self) -> Pieces:
        return parse_pieces(self.model_proto, has_byte_fallback=self._model_info.has_byte_fallback)

    @cached_property
    def symbols(self) -> frozenset[str]:
        """User-defined symbols, which the model matches in any text."""
        return frozenset(self._parsed_pieces.symbols)

    @cached_property
    def _model_info(self) -> ModelInfo:
        return parse_model_info(self.model_proto)

    @cached_property
    def _is_byte(self) -> NDArray[np.bool_]:
        return np.array(self.processor.is_byte(list(range(self.vocabulary.size))), bool)

    @cached_property
    def _begins_with_mark(self) -> NDArray[np.bool_]:
        return np.array([piece.startswith(METASPACE) for piece in self._parsed_pieces.texts], bool)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the model and the roles, and leaves out everything derived from them."""
        return _unpickle, (_define(self),)

    def _get_repr_options(self) -> dict[str, Any]:
        return {"model_type": self.model_type, "normalization": self.normalization}


def sentencepiece(
    model: bytes | str | os.PathLike[str],
    *,
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = "auto",
    cls_token: str | None = None,
    sep_token: str | None = None,
    mask_token: str | None = None,
) -> SentencePieceTokenizer:
    """Makes a tokenizer from a SentencePiece model; its ids equal those of the library.

    As in the library, no special tokens are inserted unless requested: a model says which pieces can begin
    and end a text, but not whether they do. `bos_id` and `eos_id` return their ids in both cases.

    Args:
        model: path of a `.model` file, or its contents.
        bos_token: control piece to insert at the start of a text; `"auto"` uses the piece that the model
            declares for this role. `None` inserts nothing, and that piece has the role.
        eos_token: control piece to insert at the end of a text, `"auto"` or `None`.
        pad_token: control piece that pads a batch, or `"auto"`.
        cls_token: control piece or user-defined symbol whose output represents the text.
        sep_token: control piece or user-defined symbol that ends each text of a pair.
        mask_token: control piece or user-defined symbol for masked language modeling.

    Raises:
        FileNotFoundError: the file does not exist.
        InvalidArgumentError: the model has no such piece.
        TokenizerFormatError: the file is not a SentencePiece model, or is truncated.

    >>> from tokjax.trainer import train_sentencepiece
    >>> trained = train_sentencepiece(["low lower lowest"], vocab_size=12, eos_token="</s>", progress=False)
    >>> tokenizer = sentencepiece(trained.tokenizer.model_proto, eos_token="auto")
    >>> protocol.decode(tokenizer, protocol.encode(tokenizer, "low low"))
    'low low'
    """
    proto, source = read_model(model)
    try:
        model_info = parse_model_info(proto)
        processor = load_processor(proto)
        pieces = processor.id_to_piece(list(range(len(processor))))
        check_piece_comparisons(pieces)
    except TokenizerFormatError as error:
        raise TokenizerFormatError(f"{source}: {error}") from error
    except (ValueError, RuntimeError, LookupError, TypeError, AttributeError) as error:
        raise TokenizerFormatError(f"{source}: not a SentencePiece model, or truncated: {error}") from error
    types = [type_ for _, _, type_ in iter_pieces(proto)]
    is_special = [type_ in (PieceType.UNKNOWN, PieceType.CONTROL) for type_ in types]
    special = {piece: i for i, piece in enumerate(pieces) if is_special[i]}
    ordinary = {piece.encode("utf-8"): i for i, piece in enumerate(pieces) if not is_special[i]}
    check_role_names({"bos": bos_token, "eos": eos_token, "pad": pad_token})
    roles: dict[Role, str | None] = {
        "bos": _resolve_role("bos", bos_token or "auto", processor.bos_id(), special),
        "eos": _resolve_role("eos", eos_token or "auto", processor.eos_id(), special),
        "pad": _resolve_role("pad", pad_token, processor.pad_id(), special),
        "unk": pieces[processor.unk_id()],
        "cls": _check_piece("cls", cls_token, pieces),
        "sep": _check_piece("sep", sep_token, pieces),
        "mask": _check_piece("mask", mask_token, pieces),
    }
    symbols = {pieces[i]: i for i, type_ in enumerate(types) if type_ == PieceType.USER_DEFINED}
    special |= {symbol: symbols[symbol] for symbol in select_control_names(frozenset(symbols))}
    vocabulary = make_vocabulary(ordinary, special, duplicate_token_ids=symbols)
    tokenizer = SentencePieceTokenizer(proto, vocabulary)
    check_comparisons(special)
    # Both caches are at hand.
    vars(tokenizer).update(processor=processor, _model_info=model_info)
    inserted = [role for role, name in (("bos", bos_token), ("eos", eos_token)) if name is not None]
    return declare_roles(tokenizer, roles, inserted)


def declare_roles(
    tokenizer: SentencePieceTokenizer, roles: Mapping[Role, str | None], inserted: Collection[str]
) -> SentencePieceTokenizer:
    """Returns a copy of a tokenizer with the tokens of all roles, and with a template of some of them.

    Args:
        tokenizer: the tokenizer.
        roles: role to the name of a token that can have it, or `None`.
        inserted: which of BOS and EOS are inserted into texts.
    """
    declared = {role: name for role in ROLES if (name := roles.get(role)) is not None}
    in_template = {role: name for role, name in declared.items() if role in inserted}
    # A vocabulary makes the template of all its BOS and EOS roles, unless it has an explicit one.
    vocabulary = replace(tokenizer.vocabulary, roles=MappingProxyType(in_template), explicit_template=None)
    is_implied = all(role in in_template for role in TEMPLATE_ROLES if role in declared)
    template = None if is_implied else vocabulary.template
    return tokenizer.replace_vocabulary(
        replace(vocabulary, roles=MappingProxyType(declared), explicit_template=template)
    )


def _define(tokenizer: SentencePieceTokenizer) -> dict[str, Any]:
    """Returns the arguments of `_restore`: the model, and what it does not define of the vocabulary."""
    vocabulary = tokenizer.vocabulary
    return {
        "model_proto": base64.b64encode(tokenizer.model_proto).decode("ascii"),
        "roles": {role: name for role, name in vocabulary.roles.items() if role != "unk"},
        "explicit_template": vocabulary.explicit_template,
        "added_tokens": dict(vocabulary.added_tokens),
    }


@register_record(SentencePieceTokenizer, _define)
def _restore(
    model_proto: str,
    roles: Mapping[Role, str],
    explicit_template: Template | None,
    added_tokens: Mapping[str, AddedToken],
) -> SentencePieceTokenizer:
    names = {f"{role}_token": roles.get(role) for role in ROLES if role != "unk"}
    tokenizer = sentencepiece(base64.b64decode(model_proto, validate=True), **names)
    if explicit_template is None and not added_tokens:
        return tokenizer
    return set_added_tokens(tokenizer, tokenizer.vocabulary.roles, explicit_template, added_tokens)


def set_added_tokens(
    tokenizer: SentencePieceTokenizer,
    roles: Mapping[Role, str],
    template: Template | None,
    added_tokens: Mapping[str, AddedToken],
) -> SentencePieceTokenizer:
    """Returns a copy with other roles, another template, and added tokens, at which texts are split.

    An added token that is a user-defined symbol is not special, whatever its name: a caller, or a
    configuration file, has said so.
    """
    old = tokenizer.vocabulary
    symbols = {name: id_ for name, id_ in old.duplicate_token_ids.items() if name not in added_tokens}
    special = {
        name: id_
        for name, id_ in old.special.items()
        if name in symbols or name not in old.duplicate_token_ids
    }
    return tokenizer.replace_vocabulary(
        make_vocabulary(old.ordinary, special, roles, template, added_tokens, symbols)
    )


def _unpickle(definition: dict[str, Any]) -> SentencePieceTokenizer:
    with no_limits():
        return _restore(**definition)


def _resolve_role(role: Role, name: str | None, model_id: int, special: Mapping[str, int]) -> str | None:
    """Returns the piece with a role: the piece named, or for `"auto"` the model's piece, or `None`."""
    if name == "auto":
        return next((piece for piece, id_ in special.items() if id_ == model_id), None)
    if name is not None and name not in special:
        raise InvalidArgumentError(
            f"{role}_token is {name!r}, which is not a control piece of the model; it has {list(special)}"
        )
    return name


def _check_piece(role: Role, name: str | None, pieces: Sequence[str]) -> str | None:
    if name is not None and name not in pieces:
        raise InvalidArgumentError(f"{role}_token is {name!r}, which is not a piece of the model")
    return name


def _build_engine(pieces: Pieces, info: ModelInfo) -> ArrayEngine | None:
    """Builds the array engine of a BPE model, which encodes normalized texts with spaces for `▁`.

    Each byte of a character that is not in the vocabulary becomes its byte piece, or the unknown piece.

    Args:
        pieces: pieces of the model.
        info: properties of the model.

    Returns:
        The engine, or `None` if the model needs the library: one of another type, pieces of equal scores,
        unused pieces, pieces with spaces, no piece `▁`, a symbol with `▁` and other characters, too many
        symbols, or whitespace that is not written as `▁` before words.
    """
    if info.model_type != "bpe" or info.spaces.is_suffix or info.spaces.mark != SPACE:
        return None
    texts = [*pieces.scores, *pieces.symbols]
    if pieces.has_unused or any(" " in text or "\0" in text for text in texts):
        return None
    if any(METASPACE in symbol and symbol.strip(METASPACE) for symbol in pieces.symbols):
        return None
    symbols = _number_symbols(pieces)
    if symbols is None or METASPACE not in pieces.scores or 0 < len(pieces.byte_ids) < _NUM_BYTES:
        return None
    try:
        check_symbol_lengths(symbols)
    except RulesTooLargeError:
        return None
    return _make_array_engine(symbols, pieces)


def _number_symbols(pieces: Pieces) -> dict[bytes, int] | None:
    """Returns the numbers of all symbols, or `None` if pieces that merges make have equal scores."""
    merged = sorted(
        (text for text in pieces.scores if len(text) > 1), key=pieces.scores.__getitem__, reverse=True
    )
    if any(pieces.scores[a] == pieces.scores[b] for a, b in itertools.pairwise(merged)):
        return None
    symbols = {bytes([byte]): byte for byte in range(_NUM_BYTES)}
    characters = sorted(set().union(*pieces.scores) - {METASPACE})
    for character in map(str.encode, characters):
        for stop in range(2, len(character) + 1):
            symbols.setdefault(character[:stop], len(symbols))
    for text in merged:
        symbols[_write_spaces(text)] = len(symbols)
    return symbols


def _make_array_engine(symbols: Mapping[bytes, int], pieces: Pieces) -> ArrayEngine:
    ids = np.full(len(symbols), -1, np.int32)
    ids[:_NUM_BYTES] = [pieces.byte_ids.get(byte, pieces.unknown_id) for byte in range(_NUM_BYTES)]
    by_bytes = {_write_spaces(pieces.texts[id_]): id_ for id_ in pieces.ids.values()}
    for symbol in symbols.keys() & by_bytes.keys():
        ids[symbols[symbol]] = by_bytes[symbol]
    atomic_ids = {bytes([byte]): int(ids[byte]) for byte in range(_NUM_BYTES)}
    atomic_ids |= {_write_spaces(symbol): pieces.ids[symbol] for symbol in pieces.symbols}
    rules = MergeRules(symbols, None, None, ids, atomic_ids)
    user_defined = frozenset(symbol.replace(METASPACE, " ") for symbol in pieces.symbols)
    if user_defined:
        return ArrayEngine(rules, SymbolPreTokenizer(symbols, user_defined))
    return ArrayEngine(rules, AdjacencyPreTokenizer(symbols, split_before_spaces=False))


def _write_spaces(piece: str) -> bytes:
    """Returns the bytes of a piece, with spaces for `▁`."""
    return piece.replace(METASPACE, " ").encode("utf-8")


def _iter_groups(texts: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Yields at least one group of texts; each but the last has `_GROUP_BYTES` bytes or slightly more."""
    group: list[bytes] = []
    nbytes = 0
    for text in texts:
        group.append(text)
        nbytes += len(text)
        if nbytes >= _GROUP_BYTES:
            yield group
            group, nbytes = [], 0
    if group or not texts:
        yield group


def _concatenate(rows: Sequence[NDArray[np.int32]]) -> EncodedSegments:
    """Concatenates arrays of the library. A single one is copied, too: `freeze` can't lock its memory."""
    ids = np.concatenate([np.zeros(0, np.int32), *rows])
    return EncodedSegments(ids, make_row_splits(map(len, rows)), None)


@protocol.decode_bytes.register(SentencePieceTokenizer)
def _decode_bytes(
    tokenizer: SentencePieceTokenizer, ids: ArrayLike, *, skip_special_tokens: bool = False
) -> bytes:
    flat = protocol.as_flat_ids(ids)
    [text] = _decode_rows(tokenizer, flat, np.array([0, len(flat)]), skip_special_tokens)
    return text


@protocol.decode_batch.register(SentencePieceTokenizer)
def _decode_batch(
    tokenizer: SentencePieceTokenizer,
    rows: TokenizationBatch | Ragged | Iterable[ArrayLike],
    *,
    skip_special_tokens: bool = False,
    errors: str = "replace",
) -> list[str]:
    check_error_handler(errors)
    texts = _decode_rows(tokenizer, *protocol.as_flat_rows(rows), skip_special_tokens)
    return [text.decode("utf-8", errors) for text in texts]


def _decode_rows(
    tokenizer: SentencePieceTokenizer,
    ids: NDArray[np.int32],
    splits: NDArray[np.int64],
    skip_special_tokens: bool,
) -> list[bytes]:
    tokenizer.vocabulary.check_ids(ids)
    if skip_special_tokens:
        keep_mask = ~tokenizer.vocabulary.is_skipped.take(ids)
        ids, splits = ids[keep_mask], make_row_splits(keep_mask)[splits]
    flat = ids.tolist()
    rows = [flat[start:stop] for start, stop in itertools.pairwise(splits.tolist())]
    if len(rows) == 1:  # avoid the library's batch call, which starts threads
        text = tokenizer.processor.decode(rows[0], out_type=bytes)
        return [to_utf8(text)]  # version 0.2.2 of the library returns a string
    texts: list[bytes] = tokenizer.processor.decode(rows, out_type=bytes) if rows else []
    return texts


@find_text_lengths.register(SentencePieceTokenizer)
def _find_text_lengths(tokenizer: SentencePieceTokenizer) -> NDArray[np.int64]:
    return np.array(list(map(len, build_piece_bytes(tokenizer.vocabulary))), np.int64)


@find_decode_context.register(SentencePieceTokenizer)
def _find_decode_context(
    tokenizer: SentencePieceTokenizer, ids: NDArray[np.int32], *, skip_special_tokens: bool = False
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Finds the context: the last id with text, after which no space is removed, and the id after it.

    The id after it has no text, but separates bytes before it from those after it. The library decodes a run
    of byte pieces from the left: a character as soon as its bytes are valid, and any other byte to U+FFFD. So
    only the first bytes of a character at the end are pending.
    """
    if tokenizer._model_info.denormalizes:
        return ids[:0], ids
    is_skipped = tokenizer.vocabulary.is_skipped
    visible = np.flatnonzero(~is_skipped.take(ids)) if skip_special_tokens else np.arange(len(ids))
    is_byte = tokenizer._is_byte.take(ids.take(visible))
    num_bytes = int(np.append(~is_byte[::-1], True).argmax())  # length of the run at the end
    run = visible[len(visible) - num_bytes :]
    pieces = (tokenizer.vocabulary.get_bytes(id_).decode("utf-8") for id_ in ids.take(run).tolist())
    data = b"".join(map(decode_piece, pieces))
    num_complete = codecs.utf_8_decode(data, "replace", False)[1]
    stop = len(ids) if num_complete == num_bytes else int(run[num_complete])
    final = ids.take(visible[visible < stop])
    for position in range(len(final) - 1, -1, -1):
        if tokenizer.processor.decode(final[position : position + 1].tolist()):
            return final[position : position + 2], ids[stop:]
    return final[~is_skipped.take(final)], ids[stop:]
