"""BPE tokenizers in the written form of SentencePiece: `▁` for a space, `<0xNN>` for a byte, added spaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Literal, Unpack

import numpy as np

from tokjax.bpe.dropout import Dropout
from tokjax.bpe.merge_rules import (
    MergeRules,
    RulesTooLargeError,
    check_merges,
    make_rules_from_merges,
    parse_merge_pairs,
)
from tokjax.bpe.pre_tokenizers import AdjacencyPreTokenizer
from tokjax.core.encode_options import RoleOptions, accept_options, get_roles
from tokjax.core.json_records import register_record
from tokjax.core.protocol import find_text_lengths
from tokjax.core.utf8 import encode_segment
from tokjax.core.vocabulary import AddedToken, Vocabulary, make_vocabulary
from tokjax.errors import InvalidArgumentError
from tokjax.models.base import JoiningModel
from tokjax.models.byte_bpe import BPEModel, compute_text_lengths
from tokjax.models.words import parse_token_mapping
from tokjax.pretokenize.special_tokens import check_special_names

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from numpy.typing import NDArray

    from tokjax.bpe.chunks import EncodedSegments, Segments
    from tokjax.core.records import OffsetsReference

METASPACE = "▁"
"""Character that is written for a space in tokens (U+2581)."""
_NOT_IN_UTF8 = b"\xff"
BYTE_FORMS = [f"<0x{byte:02X}>" for byte in range(256)]
_BYTES_BY_FORM = {form: bytes([byte]) for byte, form in enumerate(BYTE_FORMS)}


def decode_piece(form: str) -> bytes:
    r"""Returns the bytes of text that a token stands for.

    >>> decode_piece("▁é"), decode_piece("<0xC3>")
    (b' \xc3\xa9', b'\xc3')
    """
    byte = _BYTES_BY_FORM.get(form)
    return form.replace(METASPACE, " ").encode("utf-8") if byte is None else byte


def make_rules_from_pieces(ids: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> MergeRules:
    """Makes merge rules over bytes with the same result as Hugging Face's BPE with byte fallback.

    The library merges characters, and falls back to byte tokens for a character that is not in the
    vocabulary. The engine starts from bytes. So extra merges come before all others. They build each
    character of the vocabulary from its bytes, from the left:

        character   bytes       extra merges
        "é"         C3 A9       (C3, A9)
        "日"         E6 97 A5    (E6, 97), (E6 97, A5)

    The bytes of one character never merge with those of another this way. If a character is not in the
    vocabulary, the extra merges may build a part of it; such a part has no id and becomes byte tokens again.

    Args:
        ids: token to id, with all tokens that `list_missing_forms` checks. Tokens of one character are the
            characters that need no byte fallback.
        merges: pairs of tokens, in order of priority.

    Raises:
        InvalidArgumentError: one of these tokens is missing; or a part or the result of a merge is not a
            token, is a byte token, or contains a space; or a merge is a duplicate.
    """
    missing = list_missing_forms(ids)
    if missing:
        raise InvalidArgumentError(
            f"tokens must contain {METASPACE!r} and every byte as '<0xNN>'; {missing[0]!r} is missing "
            f"({len(missing)} in all)"
        )
    byte_ids = {bytes([byte]): ids[form] for byte, form in enumerate(BYTE_FORMS) if form in ids}
    partial_character_ids: dict[bytes, int] = {}
    character_merges: dict[tuple[bytes, bytes], None] = {}
    for form in ids:
        if len(form) == 1 and form != " ":
            character = decode_piece(form)
            for stop in range(2, len(character) + 1):
                character_merges[character[: stop - 1], character[stop - 1 : stop]] = None
                partial_character_ids[character[:stop]] = -1  # no token; replaced below if it is one
    text_forms = [form for form in ids if " " not in form and form not in _BYTES_BY_FORM]
    tokens = dict(zip(text_forms, _replace_marks(map(str.encode, text_forms)), strict=True))
    try:
        # Share one bytes object per token: its hash is computed only once, and memory is saved.
        lefts, rights = (list(map(tokens.__getitem__, map(itemgetter(side), merges))) for side in (0, 1))
        all_ids = partial_character_ids | byte_ids | {token: ids[form] for form, token in tokens.items()}
        pairs = [*character_merges, *zip(lefts, rights, strict=True)]
        rules = make_rules_from_merges(all_ids, pairs, ignore_merges=False)
        return replace(rules, num_character_merges=len(character_merges))
    except RulesTooLargeError:
        raise
    except (KeyError, InvalidArgumentError):
        check_merges(merges, partial(_find_merge_problem, ids))
        raise


def list_missing_forms(forms: Container[str]) -> list[str]:
    """Returns `▁` and those byte tokens that are not in a vocabulary, although a text can need them.

    An ASCII character is one byte, which no other character has. If the character is a token, its byte token
    is not needed: Gemini's vocabulary has a tab, and no `<0x09>`.

    Args:
        forms: tokens in written form.
    """
    return [METASPACE] * (METASPACE not in forms) + [
        form
        for byte, form in enumerate(BYTE_FORMS)
        if form not in forms and (byte >= 0x80 or chr(byte).replace(" ", METASPACE) not in forms)
    ]


def build_piece_bytes(vocabulary: Vocabulary) -> list[bytes]:
    """Returns the bytes of text that each id stands for, as in `decode_piece`; `b""` for unused ids."""
    pieces = [b""] * vocabulary.size
    tokens = vocabulary.bytes_by_id
    for id_, token in zip(tokens, _replace_marks(tokens.values()), strict=True):
        pieces[id_] = token
    for form, byte in _BYTES_BY_FORM.items():
        ordinary_id = vocabulary.ordinary.get(form.encode("utf-8"))
        for token_id in (ordinary_id, vocabulary.special.get(form), vocabulary.duplicate_token_ids.get(form)):
            if token_id is not None:
                pieces[token_id] = byte
    return pieces


def _replace_marks(tokens: Iterable[bytes]) -> list[bytes]:
    """Returns tokens in UTF-8, at least one, with a space for each `▁`: all of them by one call."""
    return _NOT_IN_UTF8.join(tokens).replace(METASPACE.encode("utf-8"), b" ").split(_NOT_IN_UTF8)


def _find_merge_problem(ids: Mapping[str, int], left: str, right: str) -> str | None:
    for form in (left, right, left + right):
        if form not in ids:
            return f"there is no token {form!r}"
        if " " in form or form in _BYTES_BY_FORM:
            return f"{form!r} can't be part of a text" + f"; write {METASPACE!r} for a space" * (" " in form)
    return None


PrefixSpace = Literal["always", "missing", "first"]


@register_record()
@dataclass(frozen=True, repr=False)
class MetaspaceBPE(BPEModel, JoiningModel):
    """BPE tokenizer of pieces, as in Llama 2, Mistral and Gemma. Create it with `metaspace_bpe`.

    Spaces are part of tokens, written as `▁`. A `▁` in a text is read as a space. A character that is not in
    the vocabulary, and a byte that is not valid UTF-8, become byte tokens. So nothing is unknown, and
    decoding returns the text, with two exceptions: `▁` is decoded as a space, and `strip` may remove a space
    at the start that was part of the text. Bytes that are not valid UTF-8 are decoded as one U+FFFD per
    truncated character, not per byte.

    Offsets refer to the input text. If the space added before a text is a separate token, its span is empty,
    and the token belongs to the first word. Any other token that begins with a space begins a word.

    Tokenizers with equal fields are equal. Pickling leaves out the caches. Threads can share a tokenizer.

    Attributes:
        vocabulary: token ids and tokens in written form.
        merges: pairs of tokens that merge, in order of priority.
        add_prefix_space: where a space is added before text. `"always"`: before each segment, that is, a text
            or the part of a text between special tokens. `"missing"`: before each segment that does not begin
            with a space. `"first"`: as `"missing"`, but only before the first segment of a text. `None`:
            nowhere.
        split_words: whether a pre-token begins at each space, so that nothing merges across it.
        strip: whether decoding removes a space at the start of the text.
        dropout: probability and seed of BPE dropout, or `None`; see `with_dropout`.
    """

    model = "metaspace_bpe"

    vocabulary: Vocabulary
    merges: Sequence[tuple[str, str]] = field(repr=False)
    add_prefix_space: PrefixSpace | None
    split_words: bool
    strip: bool | None
    dropout: Dropout | None = None

    def __post_init__(self) -> None:
        """Checks the fields, and replaces values that stand for others, as `metaspace_bpe` describes.

        Raises:
            InvalidArgumentError: a field is invalid.
        """
        super().__post_init__()
        if self.split_words and self.add_prefix_space == "always":
            raise InvalidArgumentError(
                "split_words=True needs add_prefix_space='missing', 'first' or None, not 'always'"
            )
        strips = self.add_prefix_space is not None if self.strip is None else self.strip
        vars(self).update(merges=parse_merge_pairs(self.merges, str), strip=strips)
        self.rules  # noqa: B018 (raises if the merges are invalid)

    @property
    def offsets_reference(self) -> OffsetsReference:
        """The text that offsets refer to: the input text."""
        return "input_text"

    @property
    def why_no_pretokens(self) -> str:
        """Reason for which `pre_tokenize` raises an error, or nothing."""
        return "" if self.split_words else "without split_words, it encodes a text as a whole"

    def encode_segments(
        self, segments: Segments, threads: int = 1, *, sources: bool = True
    ) -> EncodedSegments:
        """Encodes segments of ordinary text, independently of one another."""
        split = segments._replace(texts=self._normalize_spaces(segments))
        encoded = self._engine.encode_segments(split, threads, sources=False)
        if not sources:
            return encoded
        begins = self._begins_word.take(encoded.ids)
        begins[encoded.splits[:-1][np.diff(encoded.splits) > 0]] = True
        lengths = compute_text_lengths(encoded, segments, split, self.text_byte_lengths)
        after_prefixes = np.flatnonzero(lengths == 0) + 1
        begins[np.setdiff1d(after_prefixes, encoded.splits)] = False  # a prefix alone is not a word
        _lengthen_by_marks(lengths, encoded.splits, segments)
        return encoded._replace(begins_word=begins, lengths=lengths)

    def _normalize_spaces(self, segments: Segments) -> list[str]:
        """Returns the texts of segments with spaces for `▁`, and with added spaces."""
        begins = [True] * len(segments.texts)
        if self.add_prefix_space == "first" and segments.begins_text is not None:
            begins = segments.begins_text.tolist()
        return [
            self._prepare_short(text) if begin else text.replace(METASPACE, " ")
            for text, begin in zip(segments.texts, begins, strict=True)
        ]

    def _prepare_short(self, text: str) -> str:
        """Returns one text with spaces for `▁`, and with an added space if it needs one."""
        text = text.replace(METASPACE, " ")
        if (
            self.add_prefix_space is None
            or not text
            or (self.add_prefix_space != "always" and text[0] == " ")
        ):
            return text
        return " " + text

    def _make_pre_tokenizer(self) -> AdjacencyPreTokenizer:
        return AdjacencyPreTokenizer(self.rules.symbols, split_before_spaces=self.split_words)

    def join_tokens(self, ids: list[int]) -> bytes:
        """Returns the text of tokens, at least one."""
        text = b"".join(map(self._pieces.__getitem__, ids))
        return text.removeprefix(b" ") if self.strip else text

    @cached_property
    def rules(self) -> MergeRules:
        """Merge rules of the tokenizer, built when first used."""
        ids = {token.decode("utf-8"): id_ for token, id_ in self.vocabulary.ordinary.items()}
        return make_rules_from_pieces(ids, self.merges)

    @cached_property
    def _pieces(self) -> list[bytes]:
        """Bytes of text that each id stands for, by id."""
        return build_piece_bytes(self.vocabulary)

    @cached_property
    def text_byte_lengths(self) -> NDArray[np.int64]:
        """Number of text bytes per token id, `int64`, shape `(size,)`."""
        return np.fromiter(map(len, self._pieces), np.int64, len(self._pieces))

    @cached_property
    def _begins_word(self) -> NDArray[np.bool_]:
        """Whether the text of each id begins with a space, `bool`, shape `(size,)`."""
        return np.array([piece.startswith(b" ") for piece in self._pieces], bool)


@accept_options(RoleOptions)
def metaspace_bpe(
    tokens: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    *,
    add_prefix_space: PrefixSpace | None = "always",
    split_words: bool = False,
    strip: bool | None = None,
    special_tokens: Mapping[str, int] | None = None,
    added_tokens: Sequence[str] = (),
    **roles: Unpack[RoleOptions],
) -> MetaspaceBPE:
    """Makes a BPE tokenizer of pieces with byte fallback; its ids equal those of Hugging Face's `tokenizers`.

    Args:
        tokens: token to id: `▁` for the space, all bytes as `<0x00>` to `<0xFF>` (or as an ASCII character),
            characters, and the tokens that merges produce.
        merges: pairs of tokens that merge, in order of priority.
        add_prefix_space: where a space is added before text. `"always"`: before each segment, that is, a text
            or the part of a text between special tokens. `"missing"`: before each segment that does not begin
            with a space. `"first"`: as `"missing"`, but only before the first segment of a text. `None`:
            nowhere.
        split_words: whether a pre-token begins at each space, so that nothing merges across it.
        strip: whether decoding removes a space at the start of the text; `None` does so if `add_prefix_space`
            is not `None`.
        special_tokens: name to id. Special tokens are never merged. They are encoded from text only where
            that is allowed (`allowed_special`).
        added_tokens: names from `tokens` that are matched anywhere in a text before it is split.
        **roles: special tokens in roles: `bos_token` and `eos_token`, which are inserted around texts,
            `pad_token`, `unk_token`, `cls_token`, `sep_token` and `mask_token`; by default none.

    Raises:
        InvalidArgumentError: a byte or `▁` is missing, an id is used twice, or an option or a merge is
            invalid.

    >>> from tokjax import encode_result
    >>> tokens = [f"<0x{i:02X}>" for i in range(256)] + ["▁", "h", "i", "▁h", "▁hi"]
    >>> ids = {token: id_ for id_, token in enumerate(tokens)}
    >>> tokenizer = metaspace_bpe(ids, [("▁", "h"), ("▁h", "i")])
    >>> encode_result(tokenizer, "hi é").tokens
    ('▁hi', '▁', '<0xC3>', '<0xA9>')
    """
    vocabulary = make_vocabulary(
        {form.encode("utf-8"): id_ for form, id_ in parse_token_mapping(tokens).items()},
        special_tokens,
        get_roles(roles),
        added_tokens=dict.fromkeys(check_special_names(added_tokens, "added_tokens"), AddedToken()),
    )
    return MetaspaceBPE(vocabulary, merges, add_prefix_space, split_words, strip)


def _lengthen_by_marks(lengths: NDArray[np.int64], splits: NDArray[np.int64], segments: Segments) -> None:
    """Adds the bytes of each `▁` of the text to the length of the token that contains it.

    Merging sees a space, which is one byte; a `▁` is three bytes of the text. So each `▁` adds two bytes:

        text            a▁b    bytes: a=1, ▁=3, b=1
        merged text     a b    bytes: a=1, space=1, b=1
        tokens          "a", " b"
        lengths         1, 2   become 1, 4

    Args:
        lengths: number of bytes of merged text of each id, without prepended spaces, which changes.
        splits: index of the first id of each segment, then the number of ids.
        segments: segments as they are in the text.
    """
    extra_bytes = len(METASPACE.encode("utf-8")) - 1
    for segment, text in enumerate(segments.texts):
        if METASPACE in text:
            part = lengths[splits[segment] : splits[segment + 1]]
            sizes = [len(encode_segment(each, segments.hold_bytes)) for each in text.split(METASPACE)]
            # Positions of the marks in the merged text, and the number of them in each token.
            marks = np.cumsum(np.array(sizes[:-1]) + 1) - 1
            part += extra_bytes * np.diff(np.searchsorted(marks, np.cumsum(part)), prepend=0)


@find_text_lengths.register(MetaspaceBPE)
def _find_text_lengths(tokenizer: MetaspaceBPE) -> NDArray[np.int64]:
    return tokenizer.text_byte_lengths
