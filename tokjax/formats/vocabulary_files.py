"""Vocabularies without a description of their tokenizer, which may be in configuration files beside them.

    format         vocabulary                            list of merges
    gpt2           vocab.json: tokens mapped to ids      merges.txt, on bytes
    wordpiece      vocab.txt: one token per line         -
    word_bpe       vocab.txt                             merges.txt, on words
    sentencepiece  *.model                               -

The id of a token in a `vocab.txt` is the number of lines before it. In a classic BPE, the end of a word is
marked in one of two ways, which the merges show: by `</w>` as a separate symbol, or as part of the last
character. The same words in both:

    merges of symbols    l o   lo w   low </w>
    merges of suffixes   l o   lo w</w>
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tokjax.core.vocabulary import TEMPLATE_ROLES, select_roles
from tokjax.errors import Hint, InvalidArgumentError, TokenizerFormatError, UnsupportedTokenizerError
from tokjax.formats.huggingface.library import build_huggingface_tokenizer
from tokjax.formats.huggingface.parts import RequiresLibraryError
from tokjax.formats.huggingface.tokenizer_json import build_tokenizer, build_tokenizer_json
from tokjax.formats.huggingface.words import check_special_words
from tokjax.formats.tokenizer_files import (
    BERT_ROLES,
    RequiresTransformersError,
    check_is_plain,
    parse_token_ids,
    read_companion_config,
    read_json_object,
    read_lines,
    read_merges,
)
from tokjax.models.byte_bpe import ByteLevelBPE
from tokjax.models.format_errors import as_format_errors, check_vocab_size
from tokjax.models.sentencepiece import SentencePieceTokenizer, declare_roles, sentencepiece
from tokjax.models.vocabulary_changes import replace_roles
from tokjax.models.wordpiece import wordpiece
from tokjax.models.words import END_OF_WORD, EndOfWord, WordBPE, make_word_vocabulary
from tokjax.pretokenize.bytes_to_unicode import ALPHABET, BYTES
from tokjax.pretokenize.normalization import BertNormalizer
from tokjax.pretokenize.special_tokens import check_comparisons

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from tokjax.core.vocabulary import Role
    from tokjax.formats.huggingface.library import HuggingFaceTokenizer
    from tokjax.models.base import SegmentModel
    from tokjax.pretokenize.patterns import Pattern

    Merges = Sequence[tuple[str, str]]

_END_OF_TEXT = "<|endoftext|>"
_GPT2 = ("GPT2Tokenizer", "gpt2")
_BERT = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "bert", "distilbert", "electra")
_LLAMA = ("llama", "mistral")
"""Types of models for which transformers takes all settings from the `.model`; `LlamaTokenizer` does not."""
_RWKV = re.compile(r"""\d+ b?(['"]).*\1 \d+""")
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


def read_gpt2(
    source: Path,
    merges: Path,
    _: Mapping[Role, str | None],
    *,
    pattern: Pattern | None = None,
    special_tokens: Sequence[str] | None = None,
) -> SegmentModel | HuggingFaceTokenizer:
    r"""Reads `vocab.json` and `merges.txt`, or `encoder.json` and `vocab.bpe`, which have the same contents.

    The list of merges may begin with a line `#version: ...`. Lines may end in `\r\n`. Empty lines at the end
    are ignored.

    Args:
        source: path of the JSON file that maps tokens to ids.
        merges: path of the file with one pair of tokens per line.
        pattern: split pattern, as in `byte_level_bpe`; the files do not contain it. `None` is `"gpt2"`.
        special_tokens: names of the special tokens. `None` uses `<|endoftext|>`, if it is in the vocabulary,
            and those that the configuration files in the same directory name.

    Returns:
        A tokenizer that inserts no special tokens into texts, like GPT-2's. Use `with_template` to insert
        some. The configuration files name its roles. If they name no EOS, it is `<|endoftext|>`, if that
        exists.

    Raises:
        FileNotFoundError: a file does not exist.
        InvalidArgumentError: an option is invalid, or a role names a token that is not special.
        RequiresTransformersError: the configuration files name another class than GPT-2's, or declare tokens
            that the vocabulary does not have.
        TokenizerFormatError: a file is damaged or in another format, or the two files do not match.
    """
    forms = parse_token_ids(read_json_object(source), str(source))
    companion = read_companion_config(source.parent)
    check_is_plain(source, forms, companion, _GPT2, [_END_OF_TEXT], normalizes=False)
    if any(companion.config.get(f"add_{role}_token") for role in TEMPLATE_ROLES):
        raise RequiresTransformersError("its configuration files set add_bos_token or add_eos_token", forms)
    if not companion.special.keys().isdisjoint(ALPHABET):
        raise RequiresTransformersError(
            f"its configuration files declare a byte of {source.name} as special", forms
        )
    _check_has_all_bytes(source, forms)
    if special_tokens is None:
        special_tokens = [name for name in (*companion.special, _END_OF_TEXT) if name in forms]
    for name in special_tokens:
        if name not in forms:
            raise TokenizerFormatError(f"{source}: the special token {name!r} is not in the vocabulary")
    flags = {"special": True, **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    names = dict.fromkeys(special_tokens)
    definition = {
        "added_tokens": [{"id": forms[name], "content": name, **flags} for name in names],
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": forms, "merges": _read_merges(merges, forms)},
    }
    defaults: dict[Role, str] = {"eos": _END_OF_TEXT, **companion.declared_roles}
    loaded = build_tokenizer(None, definition, defaults, str(source))
    if pattern is None:
        return loaded
    if not isinstance(loaded, ByteLevelBPE):
        raise InvalidArgumentError(f"{source}: can't be split by another pattern; it is {loaded!r}")
    return ByteLevelBPE(loaded.vocabulary, pattern, "auto", merges=loaded.merges)


def _check_has_all_bytes(source: Path, forms: Mapping[str, int]) -> None:
    """Raises `TokenizerFormatError` for a vocabulary that has no token for some byte."""
    if any(character + END_OF_WORD in forms for character in ALPHABET):
        raise TokenizerFormatError(
            f"{source}: has tokens that end in {END_OF_WORD!r}, as in CLIP and OpenAI's GPT, and no file "
            "says how texts are split into words; put the tokenizer_config.json beside it, or call "
            "tokjax.word_bpe(TOKENS, MERGES, splitter=...)"
        )
    missing = [byte for byte, character in zip(BYTES, ALPHABET, strict=True) if character not in forms]
    if missing:
        raise TokenizerFormatError(
            f"{source}: has no token for the byte 0x{missing[0]:02x}, as GPT-2's files have; put the "
            "tokenizer_config.json beside it, so that transformers can read it"
        )


def _read_merges(path: Path, forms: Mapping[str, int]) -> list[tuple[str, str]]:
    """Reads a list of merges of tokens that make tokens."""
    line_numbers = read_merges(path, forms)
    for (left, right), number in line_numbers.items():
        for form in (left, right, left + right):
            if form not in forms:
                raise TokenizerFormatError(
                    f"{path}, line {number}: {form!r} is not a token of the vocabulary, which the merge "
                    f"'{left} {right}' needs"
                )
    return list(line_numbers)


def read_wordpiece(
    source: Path,
    roles: Mapping[Role, str | None],
    *,
    special_tokens: Sequence[str] = (),
    lowercase: bool | None = None,
) -> SegmentModel | HuggingFaceTokenizer:
    r"""Reads a `vocab.txt` of BERT. Lines may end in `\r\n`.

    Settings that are not passed are read from the `tokenizer_config.json` in the same directory, if it
    exists.

    Args:
        source: path of the file.
        roles: role to the name of a special token, as in `wordpiece`. Without a name, it is the one that the
            configuration has.
        special_tokens: names of additional special tokens, as in `wordpiece`.
        lowercase: whether texts are converted to lower case. `None` uses `do_lower_case` of the
            configuration. Without it, the value is `True` as for BERT, or an error if the vocabulary has
            tokens in upper case.

    Returns:
        A tokenizer that runs on the `tokenizers` library if text can become a special token, such as `User`
        with lower case and the special token `user`; else a `WordPieceTokenizer`.

    Raises:
        FileNotFoundError: the file does not exist.
        MissingExtraError: the tokenizer has to run on the library, and it is not installed.
        RequiresTransformersError: the configuration files name a class that splits texts otherwise, or tokens
            that the vocabulary does not have.
        TokenizerFormatError: the file is not such a vocabulary, or `lowercase` cannot be determined.
    """
    tokens = _read_tokens(source)
    companion = read_companion_config(source.parent)
    check_is_plain(source, tokens, companion, _BERT)
    config, declared = companion.config, companion.roles
    special_tokens = list(dict.fromkeys([*(special_tokens or ()), *companion.special]))
    # BERT inserts CLS and SEP, even if the configuration declares other tokens as BOS and EOS.
    cls_and_sep = {role: declared.get(other, f"[{other.upper()}]") for role, other in BERT_ROLES.items()}
    inserted = {**declared, **{role: name for role, name in cls_and_sep.items() if name in tokens}, **roles}
    names: dict[str, Any] = {
        f"{role}_token": name for role, name in inserted.items() if role not in ("cls", "sep")
    }
    if lowercase is None:
        lowercase = config.get("do_lower_case")
    with as_format_errors(str(source)):
        check_comparisons(special_tokens)
        tokenizer = wordpiece(
            tokens,
            special_tokens=special_tokens,
            lowercase=_is_lower_case(tokens, str(source)) if lowercase is None else lowercase,
            strip_accents=config.get("strip_accents"),
            handle_chinese_chars=bool(config.get("tokenize_chinese_chars", True)),
            **names,
        )
    tokenizer = replace_roles(tokenizer, {role: name for role, name in declared.items() if role not in roles})
    try:
        check_special_words(tokenizer.vocabulary, tokenizer.normalizer, "bert")
    except RequiresLibraryError as error:
        definition = json.dumps(build_tokenizer_json(tokenizer))
        return build_huggingface_tokenizer(definition, str(error), tokenizer.vocabulary.roles)
    return tokenizer


def _is_lower_case(tokens: Mapping[str, int], where: str) -> bool:
    """Returns `True` if all tokens are in lower case, otherwise raises.

    Tokens in brackets, such as `[UNK]`, are special and not checked. With `lowercase=True`, a token in upper
    case could never occur, so the vocabulary is then probably a cased one.

    Raises:
        TokenizerFormatError: a token is not in lower case.
    """
    for token in tokens:
        if token != token.lower() and not (token.startswith("[") and token.endswith("]")):
            raise TokenizerFormatError(
                f"{where}: it is unknown whether texts are converted to lower case, and the vocabulary has "
                f"tokens such as {token!r}, which could not occur then",
                hint=Hint(
                    "pass lowercase=False (or True)",
                    "put a tokenizer_config.json with do_lower_case into its directory",
                ),
            )
    return True


def read_word_bpe(
    source: Path,
    merges_path: Path,
    roles: Mapping[Role, str | None],
    *,
    special_tokens: Sequence[str] = (),
) -> WordBPE:
    r"""Reads a vocabulary and a list of merges on words.

    The tokens equal those of KeemenaSubwords.jl's `load_bpe` and `load_bytebpe`: words are separated by
    whitespace, and a word with a token that is not in the vocabulary is unknown. The merges show how the end
    of a word is marked, and the vocabulary whether its characters write bytes. For other options, pass the
    tokens and the merges to `word_bpe`.

    Each line of the list of merges has two tokens. Lines that begin with `#` before the first merge are
    comments. Lines may end in `\r\n`. Whitespace around tokens and empty lines are skipped.

    Args:
        source: path of the file with one token per line.
        merges_path: path of the list of merges.
        roles: role to the name of a special token. Without a name, it is the token that the configuration
            files name, or else a usual name, such as `<s>`.
        special_tokens: names of additional special tokens.

    Raises:
        FileNotFoundError: a file does not exist.
        RequiresTransformersError: a configuration file names a class of transformers.
        TokenizerFormatError: a file is damaged or in another format, the two files do not match, they do not
            determine an option of `word_bpe`, or a special token is not in the vocabulary.
    """
    companion = read_companion_config(source.parent)
    tokens = _read_tokens(source, _LINE_SPACES)
    check_is_plain(source, tokens, companion)
    pairs = list(read_merges(merges_path, tokens))
    _check_files_match(source, merges_path, tokens, pairs)
    usual = {role: next(filter(tokens.__contains__, names), None) for role, names in _ROLE_NAMES.items()}
    roles = {**usual, **companion.roles, **{role: name for role, name in roles.items() if name}}
    special = [*filter(tokens.__contains__, _OTHER_SPECIAL), *filter(None, usual.values())]
    special = list(dict.fromkeys([*special, *companion.special, *(special_tokens or ())]))
    with as_format_errors(str(source)):
        vocabulary = make_word_vocabulary(tokens, special, roles, optional_tokens=())
        check_comparisons(vocabulary.special)
        return WordBPE(
            vocabulary,
            pairs,
            _UNCHANGED,
            splitter="whitespace",
            end_of_word=_find_end_of_word(source, tokens, pairs),
            byte_level=_is_byte_level(source, tokens.keys() - vocabulary.special),
            unknown="word",
        )


def _read_tokens(source: Path, stripped: str = "") -> dict[str, int]:
    """Reads a `vocab.txt`.

    Args:
        source: path of the file.
        stripped: characters that are removed from the ends of lines. With any, empty lines are skipped.
    """
    tokens: dict[str, int] = {}
    for number, line in read_lines(source):
        token = line.strip(stripped)
        if number == 1 and _RWKV.fullmatch(token):
            raise TokenizerFormatError(
                f"{source}: a vocabulary of RWKV (lines of an id, a Python literal and a length), which is "
                "not supported; register a custom type that wraps its tokenizer (docs/extending.md)"
            )
        if token and token not in tokens:
            tokens[token] = len(tokens)
        elif token or not stripped:
            problem = f"duplicate of {token!r}" if token else "is empty"
            raise TokenizerFormatError(f"{source}, line {number}: {problem}; each line must be a new token")
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


def read_sentencepiece(source: Path, roles: Mapping[Role, str | None]) -> SentencePieceTokenizer:
    """Reads a SentencePiece model.

    The roles of special tokens are read from the `tokenizer_config.json` or `special_tokens_map.json` in the
    same directory, and otherwise from the model.

    Args:
        source: path of the `.model` file.
        roles: role to the name of a special token, or `"auto"` for the one with that role. BOS is inserted at
            the start of each text, and EOS at its end. `None` or no name inserts none, unless
            `tokenizer_config.json` in the same directory sets `add_bos_token` or `add_eos_token`. Without a
            name, padding is `"auto"`; `None` for none.

    Raises:
        FileNotFoundError: the file does not exist.
        InvalidArgumentError: there is no such special token.
        RequiresTransformersError: these files name a class with other ids, such as T5's or XLM-R's, or
            declare tokens that the model does not have.
        TokenizerFormatError: the file is not a SentencePiece model, or is truncated.
    """
    companion = read_companion_config(source.parent)
    has_padding = roles.get("pad", "auto") is not None
    tokenizer = sentencepiece(source, pad_token="auto" if has_padding else None)
    vocabulary = tokenizer.vocabulary
    ids = {name.decode("utf-8"): id_ for name, id_ in vocabulary.ordinary.items()}
    known = {name: ids[name] for name in tokenizer.symbols if name in ids} | dict(vocabulary.special)
    control = vocabulary.special.keys() - tokenizer.symbols
    check_is_plain(source, ids, companion, _LLAMA, control, known=known)
    # The unknown piece is always that of the model.
    ignored = {"unk"} if has_padding else {"unk", "pad"}
    declared = {role: name for role, name in companion.declared_roles.items() if role not in ignored}
    known_roles = select_roles(declared, vocabulary.ordinary, vocabulary.special)
    overrides = {role: name for role, name in roles.items() if name not in ("auto", None)}
    tokenizer = replace_roles(tokenizer, known_roles | overrides)
    inserted = [
        role for role in TEMPLATE_ROLES if roles.get(role) or companion.config.get(f"add_{role}_token")
    ]
    return declare_roles(tokenizer, tokenizer.vocabulary.roles, inserted)


def from_sentencepiece(
    processor: Any,
    *,
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = "auto",
) -> SentencePieceTokenizer:
    """Converts a `SentencePieceProcessor` of the `sentencepiece` library to a tokjax tokenizer.

    Settings that were changed on the processor after it was loaded (extra options for encoding, a restricted
    vocabulary) are not converted.

    Args:
        processor: a processor that has loaded a model.
        bos_token: control piece in the role of BOS, as in `sentencepiece`.
        eos_token: control piece in the role of EOS, as in `sentencepiece`.
        pad_token: control piece that pads a batch, as in `sentencepiece`.

    Raises:
        InvalidArgumentError: the model does not have such a control piece.
        UnsupportedTokenizerError: `processor` is not a `SentencePieceProcessor`, or has not loaded a model.
    """
    serialize = getattr(processor, "serialized_model_proto", None)
    model = serialize() if callable(serialize) else None
    if not model:
        raise UnsupportedTokenizerError(
            "from_sentencepiece takes a SentencePieceProcessor that has loaded a model, not "
            f"{type(processor).__name__}"
        )
    return sentencepiece(model, bos_token=bos_token, eos_token=eos_token, pad_token=pad_token)
