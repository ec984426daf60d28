"""Files of classic BPE: a vocabulary (`vocab.txt`) and a list of merges on words (`merges.txt`).

A `vocab.txt` has one token per line, and the id of a token is the number of lines before it. The end of a
word is marked in one of two ways, which the merges show: by `</w>` as a separate symbol, or as part of the
last character. The same words in both:

    merges of symbols    l o   lo w   low </w>
    merges of suffixes   l o   lo w</w>
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokjax._util.atomic_files import check_path
from tokjax.errors import TokenizerFormatError
from tokjax.formats.huggingface.tokenizer_json import convert_files
from tokjax.formats.tokenizer_files import read_companion_config, read_lines, read_merges
from tokjax.formats.transformers_files import find_difference
from tokjax.models.format_errors import as_format_errors, check_vocab_size
from tokjax.models.word_base import make_word_vocabulary
from tokjax.models.word_bpe import END_OF_WORD, EndOfWord, make_word_bpe
from tokjax.pretokenize.bytes_to_unicode import ALPHABET, BYTES
from tokjax.pretokenize.normalization import BertNormalizer
from tokjax.pretokenize.special_tokens import check_comparisons

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from tokjax.core.vocabulary import Role
    from tokjax.formats.huggingface.adapter import HuggingFaceTokenizer
    from tokjax.models.base import SegmentModel

    Merges = Sequence[tuple[str, str]]

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

_UNCHANGED = BertNormalizer(
    clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False
)


def read_word_bpe(
    vocab: str | os.PathLike[str],
    merges: str | os.PathLike[str],
    roles: Mapping[Role, str | None],
    *,
    special_tokens: Sequence[str] = (),
) -> SegmentModel | HuggingFaceTokenizer:
    r"""Reads a vocabulary and a list of merges on words.

    The tokens equal those of KeemenaSubwords.jl's `load_bpe` and `load_bytebpe`: words are separated by
    whitespace, and a word with a token that is not in the vocabulary is unknown. The merges show how the end
    of a word is marked, and the vocabulary whether its characters write bytes. For other options, pass the
    tokens and the merges to `word_bpe`.

    Each line of the list of merges has two tokens. Lines that begin with `#` before the first merge are
    comments. Lines may end in `\r\n`.

    Args:
        vocab: path of the file with one token per line.
        merges: path of the list of merges.
        roles: role to the name of a special token. Without a name, it is the token that the configuration
            files name, or else a usual name, such as `<s>`.
        special_tokens: names of additional special tokens.

    Raises:
        FileNotFoundError: a file does not exist.
        MissingExtraError: a configuration file names a class of transformers, which is not installed.
        TokenizerFormatError: a file is damaged or in another format, the two files do not match, they do not
            determine an option of `word_bpe`, or a special token is not in the vocabulary.
    """
    source, merges_path = check_path(vocab), check_path(merges)
    companion = read_companion_config(source.parent)
    tokens = _read_tokens(source)
    reason = find_difference(source, tokens, companion)
    if reason is not None:
        files = {source.name: source, merges_path.name: merges_path}
        return convert_files(files, reason, tokens, roles, special_tokens=special_tokens or None)
    pairs = list(read_merges(merges_path, tokens))
    _check_files_match(source, merges_path, tokens, pairs)
    usual = {role: next(filter(tokens.__contains__, names), None) for role, names in _ROLE_NAMES.items()}
    roles = {**usual, **companion.roles, **{role: name for role, name in roles.items() if name}}
    special = [*filter(tokens.__contains__, _OTHER_SPECIAL), *filter(None, usual.values())]
    special = list(dict.fromkeys([*special, *companion.special, *special_tokens]))
    with as_format_errors(str(source)):
        vocabulary = make_word_vocabulary(tokens, special, roles, optional_tokens=())
        check_comparisons(vocabulary.special)
        return make_word_bpe(
            vocabulary,
            pairs,
            _UNCHANGED,
            splitter="whitespace",
            end_of_word=_find_end_of_word(source, tokens, pairs),
            byte_level=_is_byte_level(source, tokens.keys() - vocabulary.special),
            unknown="word",
        )


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
    return tokens


def _check_files_match(source: Path, merges_path: Path, tokens: Collection[str], merges: Merges) -> None:
    """Raises `TokenizerFormatError` if the two files cannot belong to one classic BPE."""
    made = set(map("".join, merges))
    lacks_mark = _find_word_ends(made) and not _find_word_ends(tokens)
    if merges and (lacks_mark or made.isdisjoint(tokens)):
        raise TokenizerFormatError(
            f"{source} and {merges_path} do not match: no merge makes a token of the vocabulary, or none "
            f"that ends in {END_OF_WORD!r}. If its tokens are written in another way, such as 'lo@@' by "
            "subword-nmt, write them as the merges make them ('lo', and 'low</w>' at the end of a word), and "
            "call tokjax.word_bpe(TOKENS, MERGES)"
        )
    pieces = (token for token in tokens if token.startswith("##") and token not in made)
    piece = next(filter(lambda piece: piece.strip("#"), pieces), None)
    if piece is not None:
        raise TokenizerFormatError(
            f"{source}: has the token {piece!r}, which no merge in {merges_path.name} makes. If it is a "
            "WordPiece vocabulary, pass its path and format='wordpiece'"
        )


def _find_end_of_word(source: Path, tokens: Collection[str], merges: Merges) -> EndOfWord | None:
    """Determines the mark of the end of a word: from the merges, or else from the vocabulary."""
    made = set(map("".join, merges))
    parts = {part for pair in merges for part in pair}
    symbols = _find_word_ends(parts - made) or _find_word_ends(set(tokens) - made)
    if not symbols:
        return None
    if END_OF_WORD not in symbols:
        return "suffix"
    if len(symbols) == 1:
        return "symbol"
    raise TokenizerFormatError(
        f"{source}: {END_OF_WORD!r} occurs alone, and as part of {min(symbols - {END_OF_WORD})!r}, which no "
        "merge makes; call tokjax.word_bpe(TOKENS, MERGES, unknown='word', end_of_word=...) with 'symbol' or "
        "'suffix'"
    )


def _find_word_ends(tokens: Iterable[str]) -> set[str]:
    return {token for token in tokens if token.endswith(END_OF_WORD)}


def _is_byte_level(source: Path, tokens: Iterable[str]) -> bool:
    """Determines whether the characters of a vocabulary write bytes, as in GPT-2's files."""
    forms = (token.removesuffix(END_OF_WORD) for token in tokens)
    characters = {form for form in forms if len(form) == 1}
    if not characters.issubset(ALPHABET) or characters.isdisjoint(_SECOND_BYTES):
        return False  # with characters of ASCII only, the same words are unknown in both
    if characters.issuperset(ALPHABET):
        return True
    raise TokenizerFormatError(
        f"{source}: its characters could also write bytes, as in GPT-2's files, but some of the 256 bytes "
        "are missing; call tokjax.word_bpe(TOKENS, MERGES, unknown='word', byte_level=...) with True or False"
    )
