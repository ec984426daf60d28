"""Files of classic BPE: a vocabulary (`vocab.txt`) and a list of merges on words (`merges.txt`).

A `vocab.txt` has one token per line, and the id of a token is the number of lines before it. The end of a
word is marked in one of two ways, which the merges show: by `</w>` as a separate symbol, or as part of the
last character. The same words in both:

    merges of symbols    l o   lo w   low </w>
    merges of suffixes   l o   lo w</w>
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from tokjax._util.atomic_files import check_path
from tokjax.core.vocabulary import make_vocabulary
from tokjax.errors import TokenizerFormatError
from tokjax.formats.huggingface.tokenizer_json import convert_files
from tokjax.formats.tokenizer_files import (
    read_companion_config,
    read_lines,
    resolve_roles,
)
from tokjax.formats.transformers_files import find_difference
from tokjax.models.format_errors import as_format_errors, check_vocab_size
from tokjax.models.word_bpe import (
    CONTINUATION,
    END_OF_WORD,
    EndOfWord,
    Unknown,
    make_word_bpe,
)
from tokjax.pretokenize.bert_normalizer import bert_normalizer
from tokjax.pretokenize.bytes_to_unicode import ALPHABET, BYTES
from tokjax.pretokenize.special_tokens import check_comparisons

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from tokjax.core.vocabulary import Role, Vocabulary
    from tokjax.formats.huggingface.adapter import HuggingFaceTokenizer
    from tokjax.formats.tokenizer_files import CompanionConfig
    from tokjax.models.base import SegmentModel
    from tokjax.pretokenize.word_boundaries import Splitter

    Merges = Sequence[tuple[str, str]]

_HEADER = "#version"
# The characters that Julia's `strip` removes: KeemenaSubwords.jl strips each line, and skips empty ones.
_LINE_SPACES = "\t\n\x0b\x0c\r \x85\xa0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_ROLE_NAMES: Mapping[Role, tuple[str, ...]] = {
    "unk": ("<unk>", "<UNK>", "[UNK]"),
    "pad": ("[PAD]", "<PAD>", "<pad>"),
    "bos": ("<s>", "[BOS]"),
    "eos": ("</s>", "[EOS]"),
}
"""Usual names of special tokens, in order of preference."""
_OTHER_SPECIAL = ("[CLS]", "[SEP]", "[MASK]", "<mask>", "<MASK>")
_SECOND_BYTES = frozenset(
    character for byte, character in zip(BYTES, ALPHABET, strict=True) if 0x80 <= byte < 0xC0
)
"""Characters that write the bytes of UTF-8 after the first. All text outside of ASCII has one of them."""
_COUNTED_TOKEN = re.compile(r"\S+ \d+")
"""A line of a dictionary of fairseq."""


def read_word_bpe(
    vocab: str | os.PathLike[str],
    merges: str | os.PathLike[str],
    *,
    end_of_word: EndOfWord | Literal["auto"] | None = "auto",
    splitter: Splitter | None = None,
    unknown: Unknown | None = None,
    byte_level: bool | None = None,
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
    special_tokens: Sequence[str] = (),
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = None,
    unk_token: str | None = None,
) -> SegmentModel | HuggingFaceTokenizer:
    r"""Reads a vocabulary and a list of merges on words.

    The tokens equal those of KeemenaSubwords.jl's `load_bpe` and `load_bytebpe`: words are separated by
    whitespace, and a word with a token that is not in the vocabulary is unknown.

    Each line of the list of merges has two tokens, and optionally a count. Lines that begin with `#` before
    the first merge are comments. Lines may end in `\r\n`.

    Args:
        vocab: path of the file with one token per line.
        merges: path of the list of merges.
        end_of_word: mark of the end of a word, as in `word_bpe`. `"auto"` determines it from the merges.
        splitter: rule that separates words, as in `word_bpe`. `None` is `"whitespace"`.
        unknown: text that becomes one unknown token, as in `word_bpe`. `None` is `"word"`.
        byte_level: whether words are merged from bytes. `None` determines it from the characters of the
            vocabulary.
        lowercase: whether texts are converted to lower case; `None` is `False`. With
            `splitter="bert"`, control characters are removed and CJK ideographs are separate words.
        strip_accents: whether nonspacing marks are removed; `None` uses the value of `lowercase`.
        special_tokens: names of additional special tokens.
        bos_token: special token in the role of BOS. `None` uses the token that the configuration files name,
            or else a usual name, such as `<s>`; this also applies to the next three arguments.
        eos_token: special token in the role of EOS.
        pad_token: special token that pads a batch.
        unk_token: special token for unknown text.

    Raises:
        FileNotFoundError: a file does not exist.
        InvalidArgumentError: an option is invalid.
        MissingExtraError: a configuration file names a class of transformers, which is not installed.
        TokenizerFormatError: a file is damaged or in another format, the two files do not match, they do not
            determine an option that was not passed, or a special token is not in the vocabulary.
    """
    source, merges_path = check_path(vocab), check_path(merges)
    overrides: dict[Role, str | None] = {
        "bos": bos_token,
        "eos": eos_token,
        "pad": pad_token,
        "unk": unk_token,
    }
    companion = read_companion_config(source.parent)
    tokens = _read_tokens(source)
    reason = find_difference(source, tokens, companion)
    if reason is not None:
        return convert_files(
            {source.name: source, merges_path.name: merges_path},
            reason,
            tokens,
            overrides,
            end_of_word=None if end_of_word == "auto" else str(end_of_word),
            splitter=splitter,
            unknown=unknown,
            byte_level=byte_level,
            lowercase=lowercase,
            strip_accents=strip_accents,
            special_tokens=special_tokens or None,
        )
    pairs = _read_merges(merges_path, tokens)
    _check_files_match(source, merges_path, tokens, pairs)
    splitter = splitter or "whitespace"
    normalizer = bert_normalizer(
        lowercase=bool(lowercase),
        strip_accents=strip_accents,
        clean_text=splitter == "bert",
        handle_chinese_chars=splitter == "bert",
    )
    special_tokens = [*special_tokens, *filter(None, overrides.values())]
    vocabulary = _make_vocabulary(source, tokens, special_tokens, overrides, companion)
    if end_of_word == "auto":
        end_of_word = _find_end_of_word(source, tokens, pairs)
    if byte_level is None:
        byte_level = end_of_word != CONTINUATION and _is_byte_level(source, vocabulary)
    with as_format_errors(str(source)):
        return make_word_bpe(
            vocabulary,
            pairs,
            normalizer,
            splitter=splitter,
            end_of_word=end_of_word,
            byte_level=byte_level,
            unknown=unknown or "word",
        )


def find_word_end_symbols(merges: Iterable[Sequence[str]]) -> set[str]:
    """Returns the parts of merges that end in `</w>` and that no merge makes.

    A list of merges that has none is not one on words, even if `</w>` was text that it was trained on.
    """
    pairs = list(merges)
    ends = {part for pair in pairs for part in pair if part.endswith(END_OF_WORD)}
    return ends - set(map("".join, pairs)) if ends else ends


def _read_tokens(source: Path) -> dict[str, int]:
    """Reads a `vocab.txt`. Whitespace around a token and empty lines are skipped."""
    tokens: dict[str, int] = {}
    for number, line in read_lines(source):
        token = line.strip(_LINE_SPACES)
        if token in tokens:
            raise TokenizerFormatError(
                f"{source}, line {number}: duplicate of {token!r}; each line must be a new token"
            )
        if token:
            tokens[token] = len(tokens)
    check_vocab_size(len(tokens), str(source))
    if tokens and all(map(_COUNTED_TOKEN.fullmatch, tokens)):
        raise TokenizerFormatError(
            f"{source}: has counts, as the dictionaries of PhoBERT and BERTweet, whose tokenizers only "
            "transformers has; register a custom type that wraps it (docs/extending.md)"
        )
    return tokens


def _read_merges(path: Path, tokens: Collection[str]) -> list[tuple[str, str]]:
    """Reads a list of merges, and returns them in order of priority.

    Args:
        path: path of the file.
        tokens: tokens of the vocabulary, which distinguish merges that begin with `#` from comments.

    Raises:
        TokenizerFormatError: a line is not a pair of tokens with or without a count, or is a duplicate.
    """
    line_numbers: dict[tuple[str, str], int] = {}
    num_columns = 0
    for number, line in read_lines(path):
        parts = re.split("[ \t]+", line.strip(" \t"))
        if parts == [""] or (not line_numbers and _is_comment(parts, tokens)):
            continue
        num_columns = num_columns or len(parts)
        if num_columns not in (2, 3) or len(parts) != num_columns or not all(map(str.isdigit, parts[2:])):
            raise TokenizerFormatError(
                f"{path}, line {number}: expected two tokens, and a count in all lines or in none; got "
                f"{line[:60]!r}"
            )
        pair = parts[0], parts[1]
        if pair in line_numbers:
            raise TokenizerFormatError(
                f"{path}, line {number}: duplicate of {line!r} in line {line_numbers[pair]}"
            )
        line_numbers[pair] = number
    return list(line_numbers)


def _is_comment(parts: list[str], tokens: Collection[str]) -> bool:
    """Returns whether a line before the first merge is a comment. Some merges begin with `#`, too."""
    if parts[0].startswith(_HEADER):
        return True
    return parts[0].startswith("#") and (len(parts) == 1 or "".join(parts[:2]) not in tokens)


def _check_files_match(source: Path, merges_path: Path, tokens: Collection[str], merges: Merges) -> None:
    """Raises `TokenizerFormatError` if the two files cannot belong to one classic BPE."""
    made = set(map("".join, merges))
    texts = {token.removesuffix(END_OF_WORD).removesuffix(CONTINUATION) for token in tokens}
    if merges and texts.isdisjoint(token.removesuffix(END_OF_WORD) for token in made):
        raise TokenizerFormatError(
            f"{source} and {merges_path} do not match: no merge makes a token of the vocabulary"
        )
    pieces = (token for token in tokens if token.startswith("##") and token not in made)
    piece = next(filter(lambda piece: piece.strip("#"), pieces), None)
    if piece is not None:
        raise TokenizerFormatError(
            f"{source}: has the token {piece!r}, which no merge in {merges_path.name} makes. If it is a "
            "WordPiece vocabulary, pass its path and format='wordpiece'"
        )
    marks = END_OF_WORD, CONTINUATION
    if find_word_end_symbols(merges) and not any(token.endswith(marks) for token in tokens):
        raise TokenizerFormatError(
            f"{source} and {merges_path}: merges have {END_OF_WORD!r}, but no token ends in it, or in "
            f"{CONTINUATION!r} as in subword-nmt's vocabularies"
        )


def _find_end_of_word(source: Path, tokens: Collection[str], merges: Merges) -> EndOfWord | None:
    """Determines the mark of the end of a word: from the merges, or else from the vocabulary."""
    symbols = find_word_end_symbols(merges)
    if symbols and not any(token.endswith(END_OF_WORD) for token in tokens):
        raise TokenizerFormatError(
            f"{source}: its tokens end in {CONTINUATION!r}, as subword-nmt writes them; pass "
            "end_of_word='@@' and unknown='token'"
        )
    if not symbols:
        made = set(map("".join, merges))
        lengths = len(END_OF_WORD), len(END_OF_WORD) + 1  # alone, or after one character
        symbols = {token for token in tokens if token.endswith(END_OF_WORD) and len(token) in lengths} - made
    if not symbols:
        return None
    if END_OF_WORD not in symbols:
        return "suffix"
    if len(symbols) == 1:
        return "symbol"
    raise TokenizerFormatError(
        f"{source}: {END_OF_WORD!r} occurs alone, and as part of {min(symbols - {END_OF_WORD})!r}, which no "
        "merge makes; pass end_of_word='symbol' or end_of_word='suffix'"
    )


def _is_byte_level(source: Path, vocabulary: Vocabulary) -> bool:
    """Determines whether the characters of a vocabulary write bytes, as in GPT-2's files."""
    forms = (form.decode("utf-8").removesuffix(END_OF_WORD) for form in vocabulary.ordinary)
    characters = {form for form in forms if len(form) == 1}
    if not characters.issubset(ALPHABET) or characters.isdisjoint(_SECOND_BYTES):
        return False  # with characters of ASCII only, the same words are unknown in both
    if characters.issuperset(ALPHABET):
        return True
    raise TokenizerFormatError(
        f"{source}: its characters could also write bytes, as in GPT-2's files, but some of the 256 bytes "
        "are missing; pass byte_level=True for a byte-level BPE, otherwise byte_level=False"
    )


def _make_vocabulary(
    source: Path,
    tokens: Mapping[str, int],
    special_tokens: Sequence[str],
    overrides: Mapping[Role, str | None],
    companion: CompanionConfig,
) -> Vocabulary:
    """Makes the vocabulary. Special tokens are those passed, those of the configuration, and usual ones."""
    missing = [name for name in special_tokens if name not in tokens]
    if missing:
        raise TokenizerFormatError(f"{source}: the special token {missing[0]!r} is not in the vocabulary")
    usual = {role: next(filter(tokens.__contains__, names), "") for role, names in _ROLE_NAMES.items()}
    names = [*usual.values(), *_OTHER_SPECIAL, *companion.special]
    special = {name: tokens[name] for name in (*filter(tokens.__contains__, names), *special_tokens)}
    roles = resolve_roles(special, overrides, {**usual, **companion.roles})
    with as_format_errors(str(source)):
        ordinary = {form.encode("utf-8"): id_ for form, id_ in tokens.items() if form not in special}
        check_comparisons(special)
        return make_vocabulary(ordinary, special, roles)
