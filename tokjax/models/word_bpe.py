"""Classic BPE tokenizers: texts are split into words, and the characters of each word are merged.

The end of a word can be marked by `</w>`, in one of two ways. With the merges `l o`, `lo w` and those of the
table, for the text "low lo":

    end_of_word    symbols of "low"      merges                tokens
    "suffix"       l  o  w</w>           lo w</w>              low</w>   l  o</w>
    "symbol"       l  o  w  </w>         low </w>, lo </w>     low</w>   lo</w>
    None           l  o  w                                     low       lo

`"suffix"` is the way of OpenAI's GPT and CLIP, XLM and FlauBERT; `"symbol"` that of the first version of
subword-nmt and of KeemenaSubwords.jl.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Literal, Unpack

import numpy as np

from tokjax.bpe.merge_rules import MAX_MERGES, check_merges, parse_merge_pairs
from tokjax.bpe.sequential_merging import merge_by_heap
from tokjax.core.encode_options import RoleOptions, accept_options, get_roles
from tokjax.core.json_records import register_record
from tokjax.core.utf8 import from_characters
from tokjax.core.vocabulary import MAX_ID, Vocabulary
from tokjax.errors import InvalidArgumentError
from tokjax.models.word_base import WordEngine, WordModel, make_word_vocabulary
from tokjax.pretokenize.bytes_to_unicode import map_bytes_to_unicode, map_unicode_to_bytes
from tokjax.pretokenize.normalization import BertNormalizer, bert_normalizer
from tokjax.pretokenize.word_boundaries import Splitter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokjax.bpe.chunks import EncodedSegments, Segments
Merges = Sequence[tuple[str, str]]
EndOfWord = Literal["suffix", "symbol"]
Unknown = Literal["token", "word"]
END_OF_WORD = "</w>"
"""Mark of the end of a word in tokens."""
_MAX_CHARACTER_BYTES = 4


@register_record()
@dataclass(frozen=True, repr=False)
class WordBPE(WordModel):
    """Classic BPE tokenizer. Create it with `word_bpe` and use it through the generic functions.

    All occurrences of the pair of lowest rank in a word merge before the next pair is chosen, as in
    subword-nmt. The bytes of a token are its form in the vocabulary, including `</w>`. Decoding writes
    a space after each token that ends a word but the last. Without a mark, the spaces between words are lost.
    Pickling leaves out the caches. Threads can share a tokenizer.

    Attributes:
        vocabulary: token ids and tokens in written form.
        merges: pairs of tokens that merge, in order of priority.
        normalizer: normalizer that is applied before a text is split. Special tokens in texts are not
            normalized.
        splitter: `"whitespace"`: words are runs of non-whitespace characters; `"bert"`: punctuation marks are
            separate words, too.
        end_of_word: mark of the end of a word: `"suffix"`: `</w>` is part of the last character; `"symbol"`:
            `</w>` is a symbol after the last character; `None`: no mark.
        byte_level: whether words are merged from bytes, written as in GPT-2, not from characters.
        unknown: text that becomes one unknown token: `"token"`: each token that is not in the vocabulary;
            `"word"`: each word that has such a token.
    """

    model = "word_bpe"

    vocabulary: Vocabulary
    merges: Merges = field(repr=False)
    normalizer: BertNormalizer
    splitter: Splitter
    end_of_word: EndOfWord | None
    byte_level: bool
    unknown: Unknown

    def __post_init__(self) -> None:
        """Checks the fields.

        Raises:
            InvalidArgumentError: a field is invalid.
            MissingSpecialTokenError: the vocabulary has no unknown token.
        """
        super().__post_init__()
        vars(self)["merges"] = parse_merge_pairs(self.merges, str)
        if len(self.merges) > MAX_MERGES:
            raise InvalidArgumentError(
                f"there are {len(self.merges):,} merges; at most {MAX_MERGES:,} are supported"
            )
        check_merges(self.merges, partial(_find_merge_problem, self.end_of_word))
        longest = self._max_token_bytes
        if self.vocabulary.size + longest > MAX_ID:  # ids of the engine, which stores them in as many bits
            raise InvalidArgumentError(
                f"the vocabulary is too large: {self.vocabulary.size:,} ids and the {longest:,} bytes of the "
                f"longest token together exceed {MAX_ID:,}"
            )

    def encode_segments(
        self, segments: Segments, threads: int = 1, *, sources: bool = True
    ) -> EncodedSegments:
        """Encodes segments of ordinary text, already normalized, independently of one another."""
        encoded = super().encode_segments(segments, threads, sources=sources)
        ids = np.where(encoded.ids < self.vocabulary.size, encoded.ids, np.int32(self._unknown))
        return encoded._replace(ids=ids)

    @cached_property
    def _engine(self) -> WordEngine:
        # Ids from the size of the vocabulary on are used inside of the engine: the first is that of an
        # unknown word, the others are those of unknown tokens of 0, 1, 2 ... bytes.
        unknown_word = self.vocabulary.size
        known = np.zeros(unknown_word + 1, np.int64)
        for form, id_ in self.vocabulary.ordinary.items():
            known[id_] = self._count_text_bytes(form.decode("utf-8"))
        lengths = np.append(known, np.arange(self._max_token_bytes + 1))
        return WordEngine(self._pre_tokenizer, {}, self.match, lengths, lengths, unknown_word)

    @cached_property
    def _ranks(self) -> dict[tuple[str, str], int]:
        return {pair: rank for rank, pair in enumerate(self.merges)}

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {form.decode("utf-8"): id_ for form, id_ in self.vocabulary.ordinary.items()}

    def match(self, word: str) -> list[int]:
        """Returns the ids of one word inside of the engine."""
        tokens = merge_symbols(self.get_symbols(word), self._ranks)
        unknown_word, get_id = self.vocabulary.size, self._ids.get
        if self.unknown == "word" and not all(token in self._ids for token in tokens):
            return [unknown_word]
        return [get_id(token, unknown_word + 1 + self._count_text_bytes(token)) for token in tokens]

    @property
    def _max_token_bytes(self) -> int:
        """Maximum number of text bytes of a token, in the vocabulary or not."""
        longest = max((self._count_text_bytes(left + right) for left, right in self.merges), default=0)
        return max(longest, _MAX_CHARACTER_BYTES)

    def get_symbols(self, word: str) -> list[str]:
        """Returns the symbols that a word is merged from: characters or bytes, and the end of the word."""
        symbols = list(map_bytes_to_unicode(from_characters(word)) if self.byte_level else word)
        if self.end_of_word == "symbol":
            symbols.append(END_OF_WORD)
        elif self.end_of_word is not None:
            symbols[-1] += END_OF_WORD
        return symbols

    def _count_text_bytes(self, token: str) -> int:
        """Returns the number of bytes of text that a token, as merges make it, stands for."""
        text = token.removesuffix(END_OF_WORD) if self.end_of_word else token
        return len(text) if self.byte_level else len(from_characters(text))

    @cached_property
    def _forms(self) -> list[tuple[bytes, bytes]]:
        """Text of each token in decoded text, by id: before another token, and at the end of a text."""
        forms = [(b"", b"")] * self.vocabulary.size
        for name, id_ in self.vocabulary.special.items():
            forms[id_] = (name.encode("utf-8"),) * 2
        for token, id_ in self.vocabulary.ordinary.items():
            form = token.decode("utf-8")
            ends_word = self.end_of_word is not None and form.endswith(END_OF_WORD)
            text = form.removesuffix(END_OF_WORD) if ends_word else form
            data = (map_unicode_to_bytes(text) if self.byte_level else None) or text.encode("utf-8")
            forms[id_] = data + b" " * ends_word, data
        return forms

    def join_tokens(self, ids: list[int]) -> bytes:
        """Returns the text of tokens, at least one."""
        *other_ids, last_id = ids
        return b"".join([*(self._forms[id_][0] for id_ in other_ids), self._forms[last_id][1]])


def merge_symbols(symbols: list[str], ranks: Mapping[tuple[str, str], int]) -> list[str]:
    """Merges all occurrences of the pair of lowest rank, from left to right, until no pair has a rank.

    >>> merge_symbols(list("abab"), {("a", "b"): 0, ("ab", "ab"): 1})
    ['abab']
    """
    text, starts = "".join(symbols), [0, *accumulate(map(len, symbols))]
    starts = merge_by_heap(text, starts[:-1], lambda *pair: ranks.get(pair), together=True)
    return [text[start:stop] for start, stop in pairwise([*starts, len(text)])]


@accept_options(RoleOptions, unk_token="<unk>")
def word_bpe(
    tokens: Mapping[str, int] | Sequence[str],
    merges: Sequence[tuple[str, str]],
    *,
    end_of_word: EndOfWord | None = "suffix",
    splitter: Splitter = "whitespace",
    unknown: Unknown = "token",
    byte_level: bool = False,
    lowercase: bool = False,
    strip_accents: bool | None = None,
    special_tokens: Sequence[str] = (),
    **roles: Unpack[RoleOptions],
) -> WordBPE:
    """Makes a classic BPE tokenizer, as in OpenAI's GPT, XLM, FlauBERT and subword-nmt.

    Args:
        tokens: token to id, or a list of all tokens in the order of their ids; special tokens included.
        merges: pairs of tokens that merge, in order of priority. They may make tokens that are not in
            `tokens`.
        end_of_word: mark of the end of a word: `"suffix"`: `</w>` is part of the last character; `"symbol"`:
            `</w>` is a symbol after the last character; `None`: no mark.
        splitter: `"whitespace"`: words are runs of non-whitespace characters; `"bert"`: punctuation marks and
            CJK ideographs are separate words, too, and control characters are removed, as in BERT.
        unknown: text that becomes one unknown token: `"token"`: each token that is not in the vocabulary;
            `"word"`: each word that has such a token.
        byte_level: whether words are merged from bytes, not from characters. The tokens are then written as
            in GPT-2's files.
        lowercase: whether texts are converted to lower case.
        strip_accents: whether nonspacing marks are removed; `None` uses the value of `lowercase`.
        special_tokens: special tokens in addition to those named below. They are encoded from text only where
            that is allowed (`allowed_special`).
        **roles: special tokens in roles: `bos_token` and `eos_token`, which are inserted around texts,
            `pad_token`, `unk_token`, `cls_token`, `sep_token` and `mask_token`; by default none, except for
            `unk_token="<unk>"`.

    Raises:
        InvalidArgumentError: a special token is not among the tokens, an id is used twice, a merge is a
            duplicate or makes `</w>` from text, or an option is invalid.

    >>> from tokjax import encode_result
    >>> tokens = ["<unk>", "l", "o", "w</w>", "lo", "low</w>"]
    >>> tokenizer = word_bpe(tokens, [("l", "o"), ("lo", "w</w>")])
    >>> encode_result(tokenizer, "low lö").tokens
    ('low</w>', 'l', '<unk>')
    """
    vocabulary = make_word_vocabulary(
        tokens, special_tokens, get_roles(roles, unk_token="<unk>"), optional_tokens=()
    )
    normalizer = bert_normalizer(
        lowercase=lowercase,
        strip_accents=strip_accents,
        clean_text=splitter == "bert",
        handle_chinese_chars=splitter == "bert",
    )
    return WordBPE(vocabulary, merges, normalizer, splitter, end_of_word, byte_level, unknown)


def _find_merge_problem(end_of_word: EndOfWord | None, left: str, right: str) -> str | None:
    if not left or not right:
        return "a part is empty"
    if end_of_word and (left + right).endswith(END_OF_WORD) and not right.endswith(END_OF_WORD):
        return f"it makes {END_OF_WORD!r} from text; pass end_of_word=None if tokens do not mark an end"
    return None


def merge_order_is_unique(merges: Merges) -> bool:
    """Returns whether merging all occurrences of a pair together equals merging the leftmost one first.

    It does if each token is used only after the last merge that makes it. `tokenizers` merges one occurrence
    at a time.
    """
    last_rank = {left + right: rank for rank, (left, right) in enumerate(merges)}
    return all(last_rank.get(part, -1) < rank for rank, pair in enumerate(merges) for part in pair)
