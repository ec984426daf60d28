"""BPE as SentencePiece has it, with `▁` for blanks and bytes for rare characters, by a list of merges."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from tokjax.bpe.array_engine import FEW_CHARACTERS, ArrayEngine
from tokjax.bpe.encoded_segments import Corrections
from tokjax.bpe.merge_rules import parse_merge_pairs
from tokjax.bpe.pre_tokenizers import AdjacencyPreTokenizer
from tokjax.core import protocol
from tokjax.core.utf8 import from_characters, is_encodable, to_utf8
from tokjax.core.vocabulary import AddedToken, make_vocabulary
from tokjax.errors import InvalidArgumentError
from tokjax.models.added_spaces import compute_prefix_corrections
from tokjax.models.base import SegmentModel, encode_ids
from tokjax.models.format_errors import as_format_errors
from tokjax.models.metaspace_pieces import METASPACE, build_piece_bytes, make_rules_from_pieces
from tokjax.models.word_base import parse_token_mapping, word_vocabulary_from_json, word_vocabulary_to_json
from tokjax.pretokenize.special_tokens import check_special_names, find_shared_prefixes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from tokjax.bpe.chunks import Segments
    from tokjax.bpe.encoded_segments import EncodedSegments
    from tokjax.bpe.merge_rules import MergeRules
    from tokjax.core.protocol import Special
    from tokjax.core.records import OffsetsReference
    from tokjax.core.utf8 import Text
    from tokjax.core.vocabulary import Vocabulary

PrefixSpace = Literal["always", "missing", "first"]


@dataclass(frozen=True, repr=False)
class MetaspaceBPE(SegmentModel):
    """A BPE tokenizer of pieces, as of Llama 2, Mistral and Gemma. Make one with `metaspace_bpe`.

    Blanks are a part of words, written `▁` in tokens; a `▁` in a text is taken for a blank. A character that
    the vocabulary does not hold becomes the tokens of its bytes, as do bytes that are no UTF-8: nothing is
    unknown, and decoding gives the text back, but for `▁`, and a blank at the beginning where `strip` takes
    one that was not put there. Where bytes make no character, decoding has one U+FFFD for as much of one as
    there is, not for each byte.

    Offsets refer to the text as given. If the space that is put before a text is a token by itself, its span
    is empty, and it belongs to the first word. Any other token that begins with a space begins a word.

    Equal tokenizers have equal vocabularies, merges and options. It pickles without its caches, and threads
    can share it.

    Attributes:
        vocabulary: ids and tokens, as they are written.
        merges: the pairs of tokens that merge, in order.
        add_prefix_space: where a blank is put before text: `"always"` before each stretch of it (a text, or what
            stands between special tokens), `"missing"` if that does not begin with one, `"first"` only if it
            also begins a text; `None` nowhere.
        split_words: whether a word begins at each blank, and nothing merges with what stands before it.
        strip: whether decoding leaves out a blank that the text begins with.
    """

    model = "metaspace_bpe"

    vocabulary: Vocabulary
    merges: tuple[tuple[str, str], ...] = field(repr=False)
    add_prefix_space: PrefixSpace | None
    split_words: bool
    strip: bool

    @property
    def offsets_reference(self) -> OffsetsReference:
        """What offsets are places in: the text as given."""
        return "input_text"

    def encode_segments(
        self, segments: Segments, threads: int = 1, *, sources: bool = True
    ) -> EncodedSegments:
        """Encode stretches of ordinary text, each on its own."""
        split = segments._replace(texts=self._normalize_spaces(segments))
        encoded = self._engine.encode_segments(split, threads, begins_word=False)
        if not sources:
            return encoded
        begins = self._begins_word.take(encoded.ids)
        begins[encoded.splits[:-1][np.diff(encoded.splits) > 0]] = True
        corrections = compute_prefix_corrections(encoded, segments, split, self.lengths_in_text)
        after_prefixes = corrections.positions[corrections.lengths == 0] + 1
        begins[np.setdiff1d(after_prefixes, encoded.splits)] = False  # (a prefix alone is no word)
        corrections = _add_metaspace_corrections(corrections, encoded, segments, self.lengths_in_text)
        return encoded._replace(begins_word=begins, corrections=corrections)

    def _normalize_spaces(self, segments: Segments) -> list[str]:
        """Segments with blanks for marks, and the blanks that are put before them."""
        begins = [True] * len(segments.texts)
        if self.add_prefix_space == "first" and segments.begins_text is not None:
            begins = segments.begins_text.tolist()
        return [
            self._normalize_space(text) if begin else text.replace(METASPACE, " ")
            for text, begin in zip(segments.texts, begins, strict=True)
        ]

    def _normalize_space(self, text: str) -> str:
        """The same of one text, or of another segment before which a blank may be put."""
        text = text.replace(METASPACE, " ")
        if (
            self.add_prefix_space is None
            or not text
            or (self.add_prefix_space != "always" and text[0] == " ")
        ):
            return text
        return " " + text

    def _is_simple(self, text: Text) -> bool:
        """Returns whether a text is short, needs no other characters, and has no special or added token."""
        if not isinstance(text, str) or len(text) > FEW_CHARACTERS:
            return False
        for beginning in self._token_beginnings:  # (faster than any())
            if beginning in text:
                return False
        return text.isascii() or is_encodable(text)

    @cached_property
    def _token_beginnings(self) -> tuple[str, ...]:
        return find_shared_prefixes(self.vocabulary.split_token_names)

    @cached_property
    def _engine(self) -> ArrayEngine:
        pre_tokenizer = AdjacencyPreTokenizer(self.rules.symbols, split_before_spaces=self.split_words)
        return ArrayEngine(self.rules, pre_tokenizer)

    @cached_property
    def rules(self) -> MergeRules:
        """What merges."""
        return make_rules_from_pieces(_get_token_ids(self.vocabulary), self.merges)

    @cached_property
    def _pieces(self) -> list[bytes]:
        """The bytes of text that each id stands for."""
        return build_piece_bytes(self.vocabulary)

    @cached_property
    def lengths_in_text(self) -> NDArray[np.int64]:
        """How many bytes of a text each id is, `int64`, shape `(size,)`."""
        return np.fromiter(map(len, self._pieces), np.int64, len(self._pieces))

    @cached_property
    def _begins_word(self) -> NDArray[np.bool_]:
        lengths = self.lengths_in_text
        data = np.frombuffer(b"".join(self._pieces) + b"\0", np.uint8)
        begins: NDArray[np.bool_] = data.take(np.cumsum(lengths) - lengths) == ord(" ")
        return begins & (lengths > 0)

    def _described(self) -> Any:
        return to_json(self)

    def _shown(self) -> dict[str, Any]:
        return {"add_prefix_space": self.add_prefix_space, "split_words": self.split_words}


def metaspace_bpe(
    tokens: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    *,
    add_prefix_space: PrefixSpace | None = "always",
    split_words: bool = False,
    strip: bool | None = None,
    special_tokens: Mapping[str, int] | None = None,
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = None,
    unk_token: str | None = None,
    added_tokens: Sequence[str] = (),
) -> MetaspaceBPE:
    """A BPE tokenizer of pieces with byte fallback; its ids are those of Hugging Face's tokenizers.

    Args:
        tokens: token to id: `▁`, which stands for a blank, all bytes as `<0x00>` to `<0xFF>`, characters, and
            what merging makes of them.
        merges: pairs of tokens that merge, in order.
        add_prefix_space: where a blank is put before text: `"always"` before each stretch of it (a text, or what
            stands between special tokens), `"missing"` if that does not begin with one, `"first"` only if it
            also begins a text; `None` nowhere.
        split_words: whether a word begins at each blank, and nothing merges with what stands before it.
        strip: whether decoding leaves out a blank that the text begins with; `None` if one is put there.
        special_tokens: name to id. They are never merged, and never made from text that is not allowed to.
        bos_token: which special token begins a text, if any.
        eos_token: which special token ends a text, if any.
        pad_token: which special token pads a batch, if any.
        unk_token: which special token stands for the unknown, if any; encoding never makes it.
        added_tokens: those of `tokens` that are found in a text wherever they stand.

    Raises:
        InvalidArgumentError: a byte or the blank is missing, an id is used twice, or an option or a merge
            makes no sense.

    >>> from tokjax import encode_result
    >>> tokens = [f"<0x{i:02X}>" for i in range(256)] + ["▁", "h", "i", "▁h", "▁hi"]
    >>> ids = {token: id_ for id_, token in enumerate(tokens)}
    >>> tokenizer = metaspace_bpe(ids, [("▁", "h"), ("▁h", "i")])
    >>> encode_result(tokenizer, "hi é").tokens
    ('▁hi', '▁', '<0xC3>', '<0xA9>')
    """
    table = make_vocabulary(
        {form.encode("utf-8"): id_ for form, id_ in parse_token_mapping(tokens).items()},
        special_tokens,
        {"bos": bos_token, "eos": eos_token, "pad": pad_token, "unk": unk_token},
        added_tokens=dict.fromkeys(check_special_names(added_tokens, "added_tokens"), AddedToken()),
    )
    return make_metaspace_bpe(table, merges, add_prefix_space, split_words=split_words, strip=strip)


def make_metaspace_bpe(
    vocabulary: Vocabulary,
    merges: Sequence[tuple[str, str]],
    add_prefix_space: PrefixSpace | None,
    *,
    split_words: bool,
    strip: bool | None,
) -> MetaspaceBPE:
    """The tokenizer of a vocabulary that is there already. The arguments are those of `metaspace_bpe`.

    Raises:
        InvalidArgumentError: they make no sense.
    """
    if add_prefix_space not in (*get_args(PrefixSpace), None):
        raise InvalidArgumentError(
            f"add_prefix_space must be 'always', 'missing', 'first' or None, not {add_prefix_space!r}"
        )
    if split_words is True and add_prefix_space == "always":
        raise InvalidArgumentError(
            "split_words=True goes with add_prefix_space='missing', 'first' or None, not 'always'"
        )
    for name, value in (("split_words", split_words), ("strip", strip)):
        if not isinstance(value, bool) and (name == "split_words" or value is not None):
            raise InvalidArgumentError(f"{name} must be True or False, not {value!r}")
    pairs = parse_merge_pairs(merges, str)
    stripped = add_prefix_space is not None if strip is None else strip
    tokenizer = MetaspaceBPE(vocabulary, pairs, add_prefix_space, split_words, stripped)
    tokenizer.rules  # noqa: B018 (an error where merges make no sense)
    return tokenizer


def to_json(tokenizer: MetaspaceBPE) -> dict[str, Any]:
    """What defines the tokenizer, as plain JSON values."""
    ids = _get_token_ids(tokenizer.vocabulary)
    return {
        "model": MetaspaceBPE.model,
        "add_prefix_space": tokenizer.add_prefix_space,
        "split_words": tokenizer.split_words,
        "strip": tokenizer.strip,
        "merges": [[ids[left], ids[right]] for left, right in tokenizer.merges],
        **word_vocabulary_to_json(tokenizer.vocabulary),
    }


def from_json(described: Mapping[str, Any]) -> MetaspaceBPE:
    """The tokenizer that `to_json` described.

    Raises:
        TokenizerFormatError: a field is missing or of the wrong type, or the values make no tokenizer.
    """
    with as_format_errors():
        table = word_vocabulary_from_json(described)
        forms = {id_: form.decode("utf-8") for form, id_ in table.ordinary.items()}
        return make_metaspace_bpe(
            table,
            [(forms[left], forms[right]) for left, right in described["merges"]],
            described["add_prefix_space"],
            split_words=described["split_words"],
            strip=described["strip"],
        )


def _get_token_ids(vocabulary: Vocabulary) -> dict[str, int]:
    return dict(zip(map(bytes.decode, vocabulary.ordinary), vocabulary.ordinary.values(), strict=True))


def _add_metaspace_corrections(
    corrections: Corrections, encoded: EncodedSegments, segments: Segments, byte_lengths: NDArray[np.int64]
) -> Corrections:
    """Corrections, and those for the bytes that a `▁` in a text has more than the blank in its place."""
    marked = [segment for segment, text in enumerate(segments.texts) if METASPACE in text]
    if not marked:
        return corrections
    as_bytes = from_characters if segments.hold_bytes else to_utf8
    more = len(METASPACE.encode("utf-8")) - 1
    lengths = dict(zip(corrections.positions.tolist(), corrections.lengths.tolist(), strict=True))
    for segment in marked:
        first, stop = encoded.splits[segment : segment + 2].tolist()
        of_ids = byte_lengths.take(encoded.ids[first:stop])
        of_ids[0] = lengths.get(first, of_ids[0])
        sizes = [len(as_bytes(part)) for part in segments.texts[segment].split(METASPACE)]
        marks = np.cumsum(np.array(sizes[:-1]) + 1) - 1
        counts = np.diff(np.searchsorted(marks, np.cumsum(of_ids)), prepend=0)
        for i in np.flatnonzero(counts).tolist():
            lengths[first + i] = int(of_ids[i] + more * counts[i])
    return Corrections(*np.array(sorted(lengths.items()), np.int64).reshape(-1, 2).T)


@protocol.encode.register(MetaspaceBPE)
def _encode(
    tokenizer: MetaspaceBPE,
    text: Text,
    *,
    add_special_tokens: bool = True,
    allowed_special: Special = (),
    disallowed_special: Special = "all",
) -> NDArray[np.int32]:
    plain = not add_special_tokens and allowed_special == () and disallowed_special == "all"
    if plain and tokenizer._is_simple(text):
        return tokenizer._engine.encode_short(tokenizer._normalize_space(text))  # type: ignore[arg-type]
    return encode_ids(
        tokenizer,
        text,
        add_special_tokens=add_special_tokens,
        allowed_special=allowed_special,
        disallowed_special=disallowed_special,
    )


@protocol.decode_bytes.register(MetaspaceBPE)
def _decode_bytes(tokenizer: MetaspaceBPE, ids: ArrayLike, *, skip_special_tokens: bool = False) -> bytes:
    flat = protocol.as_flat_ids(ids)
    tokenizer.vocabulary.check_ids(flat)
    if skip_special_tokens:
        flat = flat[~tokenizer.vocabulary.is_special.take(flat)]
    text = b"".join(map(tokenizer._pieces.__getitem__, flat.tolist()))
    return text.removeprefix(b" ") if tokenizer.strip else text


protocol.decode_batch.register(MetaspaceBPE)(protocol.decode_row_by_row)
