"""Files of classic BPE: a vocabulary (`vocab.txt` or `vocab.json`) and a list of merges on words.

A `vocab.txt` has one token per line, and the id of a token is the number of lines before it. The end of a
word is marked in one of two ways, which the merges show: by `</w>` as a separate symbol, or as part of the
last character. The same words in both:

    merges of symbols    l o   lo w   low </w>
    merges of suffixes   l o   lo w</w>

PhoBERT and BERTweet have merges of suffixes, and a vocabulary with `@@` after tokens that do not end a word.
Their `vocab.txt` is a dictionary of fairseq: each line has a token and its count, and four special tokens
that are not in the file have the ids 0 to 3.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

from tokjax.core.template import EMPTY_TEMPLATE, Template, make_template
from tokjax.core.vocabulary import make_vocabulary
from tokjax.errors import TokenizerFormatError
from tokjax.formats.added_tokens import read_added_special_tokens
from tokjax.formats.tokenizer_files import (
    as_path,
    find_tokenizer_class,
    parse_token_ids,
    read_companion_config,
    read_json_object,
    read_lines,
    resolve_roles,
)
from tokjax.models.format_errors import as_format_errors, check_vocab_size
from tokjax.models.word_bpe import (
    CONTINUATION,
    END_OF_WORD,
    EndOfWord,
    Unknown,
    WordBPE,
    make_word_bpe,
    merge_order_is_unique,
)
from tokjax.pretokenize.bert_normalizer import bert_normalizer
from tokjax.pretokenize.bytes_to_unicode import ALPHABET, BYTES
from tokjax.pretokenize.special_tokens import check_comparisons

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from tokjax.core.vocabulary import Role, Vocabulary
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
_OTHER_SPECIAL = ("[CLS]", "[SEP]", "[MASK]", "<mask>", "<MASK>", *(f"<special{i}>" for i in range(10)))
_SECOND_BYTES = frozenset(
    character for byte, character in zip(BYTES, ALPHABET, strict=True) if 0x80 <= byte < 0xC0
)
"""Characters that write the bytes of UTF-8 after the first. All text outside of ASCII has one of them."""


class _Family(NamedTuple):
    """Properties of a kind of files that the files themselves do not contain.

    Attributes:
        splitter: rule that separates words; `None` if it is not known, or not one of tokjax.
        lowercase: whether texts are converted to lower case; `None` if it is not known.
        template: special tokens around texts; `None` for BOS before and EOS after each text.
        unknown: text that becomes one unknown token.
        roles: role to the name of a special token, in addition to the usual ones.
    """

    splitter: Splitter | None
    lowercase: bool | None
    template: Template | None = None
    unknown: Unknown = "token"
    roles: Mapping[Role, str] = MappingProxyType({})


_VOCAB_TXT = _Family("whitespace", False, unknown="word")
_SUBWORD_NMT = _Family("whitespace", False)
_FAIRSEQ = _Family(
    "whitespace",
    False,
    make_template("<s> $A </s>", "<s> $A </s> </s> $B </s>"),
    roles={"cls": "<s>", "sep": "</s>", "mask": "<mask>"},
)
_FAIRSEQ_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
_COUNTED_TOKEN = re.compile(r"(\S+) \d+")
"""A line of a dictionary of fairseq."""
_MOSES = _Family(None, False)
_OTHER_JSON = _Family(None, None, EMPTY_TEMPLATE)
_FAMILIES: Mapping[str, _Family] = {
    "OpenAIGPTTokenizer": _Family("bert", True, EMPTY_TEMPLATE),
    "HerbertTokenizer": _Family("bert", False),
    "FlaubertTokenizer": _MOSES,
    "XLMTokenizer": _MOSES,
}
"""Families of the tokenizer classes of transformers."""


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
) -> WordBPE:
    r"""Reads a vocabulary and a list of merges on words.

    With a `vocab.txt`, the tokens equal those of KeemenaSubwords.jl's `load_bpe` and `load_bytebpe`: words
    are separated by whitespace, and a word with a token that is not in the vocabulary is unknown. If its
    tokens have `@@`, only such a token is unknown. If each line has a count, too, the ids equal those of
    `PhobertTokenizer` and `BertweetTokenizer`, which have `<s>`, `<pad>`, `</s>` and `<unk>` before the
    tokens of the file, and `<mask>` after them. PhoBERT needs segmented words (`sinh_viên`), and BERTweet
    normalized tweets: prepare the texts before encoding.

    With a `vocab.json`, the ids equal those of the class of transformers that a `tokenizer_config.json` or
    `config.json` in the same directory names: `OpenAIGPTTokenizer` or `HerbertTokenizer`. `XLMTokenizer` and
    `FlaubertTokenizer` split texts with Moses: do that before encoding, and pass `splitter="whitespace"`.

    Each line of the list of merges has two tokens, and optionally a count. Lines that begin with `#` before
    the first merge are comments. Lines may end in `\r\n`.

    Args:
        vocab: path of the file with one token per line, or of the JSON file that maps tokens to ids.
        merges: path of the list of merges.
        end_of_word: mark of the end of a word, as in `word_bpe`. `"auto"` determines it from the merges.
        splitter: rule that separates words, as in `word_bpe`. `None` uses that of the class, and
            `"whitespace"` for a `vocab.txt`.
        unknown: text that becomes one unknown token, as in `word_bpe`. `None` is `"word"` for a `vocab.txt`,
            and `"token"` for a `vocab.json`.
        byte_level: whether words are merged from bytes. `None` determines it from the characters of the
            vocabulary.
        lowercase: whether texts are converted to lower case; `None` as the class does. With
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
        TokenizerFormatError: a file is damaged or in another format, the two files do not match, they do not
            determine an option that was not passed, or a special token is not in the vocabulary.
    """
    source, merges_path = as_path(vocab), as_path(merges)
    is_json = source.suffix == ".json"
    tokens = parse_token_ids(read_json_object(source), str(source)) if is_json else _read_tokens(source)
    is_dictionary = not is_json and all(map(_COUNTED_TOKEN.fullmatch, tokens))
    if is_dictionary:
        tokens = _parse_dictionary(source, tokens)
    pairs, has_counts = read_merges(merges_path, tokens)
    _check_files_match(source, merges_path, tokens, pairs)
    companion = read_companion_config(source.parent)
    if is_json:
        family = _find_family(source, companion.config, has_counts=has_counts)
    else:
        continues = find_word_end_symbols(pairs) and any(token.endswith(CONTINUATION) for token in tokens)
        family = _FAIRSEQ if is_dictionary else _SUBWORD_NMT if continues else _VOCAB_TXT
    added_tokens = read_added_special_tokens(source, tokens, companion)
    if family.splitter == "bert":
        _check_like_tokenizers(merges_path, tokens, pairs)
    splitter = splitter or family.splitter or _reject_missing_splitter(source, family)
    normalizer = bert_normalizer(
        lowercase=_get_lowercase(source, family, splitter) if lowercase is None else lowercase,
        strip_accents=strip_accents,
        clean_text=splitter == "bert",
        handle_chinese_chars=splitter == "bert",
    )
    overrides: dict[Role, str | None] = {
        "bos": bos_token,
        "eos": eos_token,
        "pad": pad_token,
        "unk": unk_token,
    }
    special_tokens = [*special_tokens, *added_tokens, *filter(None, overrides.values())]
    vocabulary = _make_vocabulary(source, tokens, special_tokens, overrides, family)
    if end_of_word == "auto":
        end_of_word = _find_end_of_word(source, tokens, pairs)
    if byte_level is None:
        byte_level = family in (_VOCAB_TXT, _OTHER_JSON) and _is_byte_level(source, vocabulary)
    with as_format_errors(str(source)):
        return make_word_bpe(
            vocabulary,
            pairs,
            normalizer,
            splitter=splitter,
            end_of_word=end_of_word,
            byte_level=byte_level,
            unknown=unknown or family.unknown,
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
    return tokens


def _parse_dictionary(source: Path, lines: Iterable[str]) -> dict[str, int]:
    """Returns token to id of a dictionary of fairseq, with the special tokens that are not in the file."""
    words = [line.rpartition(" ")[0] for line in lines]
    names = [*_FAIRSEQ_SPECIAL, *words, *(["<mask>"] if "<mask>" not in words else [])]
    tokens = {name: id_ for id_, name in enumerate(names)}
    if len(tokens) < len(names):
        name = next(name for id_, name in enumerate(names) if tokens[name] != id_)
        raise TokenizerFormatError(f"{source}: duplicate of {name!r}; each line must be a new token")
    return tokens


class MergeList(NamedTuple):
    """Contents of a list of merges.

    Attributes:
        pairs: pairs of tokens that merge, in order of priority.
        has_counts: whether each line has a count after the pair.
    """

    pairs: list[tuple[str, str]]
    has_counts: bool


def read_merges(path: Path, tokens: Collection[str]) -> MergeList:
    """Reads a list of merges.

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
    return MergeList(list(line_numbers), num_columns == 3)


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
        _check_continuations(source, tokens, merges)
        return CONTINUATION
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


def _check_continuations(source: Path, tokens: Collection[str], merges: Merges) -> None:
    """Raises `TokenizerFormatError` if `@@` at the end of a token can be text, or the mark after a token."""
    mark = CONTINUATION + END_OF_WORD
    made = map("".join, merges)
    ends = (token.removesuffix(END_OF_WORD) for token in made if token.endswith(mark) and token != mark)
    token = next((token for token in ends if token in tokens), None)
    if token is not None:
        raise TokenizerFormatError(
            f"{source}: the token {token!r} continues a word, and a merge makes it at the end of a word"
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


def _find_family(source: Path, config: Mapping[str, Any], *, has_counts: bool) -> _Family:
    """Returns the family of a `vocab.json`, by the class that a configuration file names."""
    family = _FAMILIES.get(find_tokenizer_class(source.parent, config) or "")
    return family or (_MOSES if has_counts else _OTHER_JSON)


def _check_like_tokenizers(path: Path, tokens: Collection[str], merges: Merges) -> None:
    """Raises `TokenizerFormatError` for merges that `tokenizers` rejects, or applies differently."""
    for left, right in merges:
        if not all(token in tokens for token in (left, right, left + right)):
            raise TokenizerFormatError(
                f"{path}: the merge of {left!r} and {right!r}: one of its tokens is not in the vocabulary"
            )
    if not merge_order_is_unique(merges):
        raise TokenizerFormatError(
            f"{path}: has a token that is used before the last merge that makes it; the ids then depend on "
            "the library. Pass a tokenizer.json"
        )


def _reject_missing_splitter(source: Path, family: _Family) -> NoReturn:
    if family is _MOSES:
        raise TokenizerFormatError(
            f"{source}: files of XLM or FlauBERT, which split texts with Moses; do that before encoding "
            "(with sacremoses), join the words with spaces, and pass splitter='whitespace'"
        )
    raise TokenizerFormatError(
        f"{source}: its tokens end in {END_OF_WORD!r}, and no file says how texts are split into words; pass "
        "splitter='bert' and lowercase=True for OpenAI's GPT, splitter='whitespace' for words separated by "
        "spaces, or a tokenizer.json"
    )


def _get_lowercase(source: Path, family: _Family, splitter: Splitter) -> bool:
    if family.lowercase is not None:
        return family.lowercase
    if splitter == "bert":
        raise TokenizerFormatError(
            f"{source}: it is unknown whether texts are converted to lower case; pass lowercase=True (as for "
            "OpenAI's GPT) or lowercase=False"
        )
    return False


def _make_vocabulary(
    source: Path,
    tokens: Mapping[str, int],
    special_tokens: Sequence[str],
    overrides: Mapping[Role, str | None],
    family: _Family,
) -> Vocabulary:
    """Makes the vocabulary. Special tokens are those passed, those of the configuration, and usual ones."""
    missing = [name for name in special_tokens if name not in tokens]
    if missing:
        raise TokenizerFormatError(f"{source}: the special token {missing[0]!r} is not in the vocabulary")
    companion = read_companion_config(source.parent)
    usual = {role: next(filter(tokens.__contains__, names), "") for role, names in _ROLE_NAMES.items()}
    names = [*usual.values(), *_OTHER_SPECIAL, *companion.special]
    special = {name: tokens[name] for name in (*filter(tokens.__contains__, names), *special_tokens)}
    roles = resolve_roles(special, overrides, {**usual, **family.roles, **companion.roles})
    with as_format_errors(str(source)):
        ordinary = {form.encode("utf-8"): id_ for form, id_ in tokens.items() if form not in special}
        check_comparisons(special)
        return make_vocabulary(ordinary, special, roles, family.template)
