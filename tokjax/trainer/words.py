"""Training of word-level and WordPiece vocabularies, which both count normalized words.

WordPiece is byte-pair merging of the characters of words. For `train_wordpiece(["low lower lowest"],
vocab_size=20, min_frequency=2)`:

    words             low, lower, lowest
    alphabet          e l o r s t w, and inside words ##e ##o ##r ##s ##t ##w
    tokens of words   l ##o ##w | l ##o ##w ##e ##r | l ##o ##w ##e ##s ##t
    first merge       l + ##o -> lo       (3 occurrences; `##o ##w` also has 3, but higher ids)
    second merge      lo + ##w -> low     (3 occurrences)

The merges are computed by the engine of BPE training, `trainer.bpe.batched_training`, on symbols that are ids
of characters instead of bytes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax._util.checks import check_int
from tokjax._util.display import show_progress_bar
from tokjax.bpe.chunks import Segments
from tokjax.core.utf8 import is_encodable, to_characters
from tokjax.errors import InvalidArgumentError
from tokjax.models.wordpiece import WordLevelTokenizer, WordPieceTokenizer, word_level, wordpiece
from tokjax.pretokenize.special_tokens import check_special_names
from tokjax.pretokenize.word_boundaries import compile_word_expression
from tokjax.trainer.bpe.batched_training import Alphabet, TrainingRules, train_merges
from tokjax.trainer.bpe.linked_symbols import Symbols, drop_single
from tokjax.trainer.counting import count_pretokens
from tokjax.trainer.pretoken_counts import PretokenCounts
from tokjax.trainer.results import (
    Model,
    Trained,
    describe_missing_pair,
    make_result,
    measure_time,
    record_options,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Executor

    from tokjax.corpus.sources import Source
    from tokjax.pretokenize.normalization import BertNormalizer
    from tokjax.pretokenize.word_boundaries import Splitter

WORD_LEVEL_TOKENS = ("[PAD]", "[UNK]")
"""Default special tokens of `train_word_level`."""
WORDPIECE_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""Special tokens of BERT, in the order of their ids."""
_NOT_UTF8 = "they are not valid UTF-8"
MAX_WORD_CHARACTERS = 100
"""Maximum length of a word. The tokenizer encodes longer ones as unknown, so training leaves them out."""


def train_word_level(
    source: Source | PretokenCounts,
    *,
    vocab_size: int,
    special_tokens: Sequence[str] = WORD_LEVEL_TOKENS,
    min_frequency: int = 1,
    splitter: Splitter = "whitespace",
    lowercase: bool = False,
    workers: int | None = None,
    executor: Executor | None = None,
    progress: bool = True,
    unk_token: str = "[UNK]",
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = "[PAD]",
) -> Trained[WordLevelTokenizer]:
    """Trains a word-level tokenizer of the most frequent words.

    Equally frequent words are sorted by code points.

    Args:
        source: a path, a list of paths (`os.PathLike`) or an iterable of texts, counted as by
            `count_pretokens` with the pattern `"whitespace"`; or counts from that function, with any pattern
            and special tokens.
        vocab_size: number of ids, including special tokens. If the text has too few words, the vocabulary is
            smaller, a warning is logged, and `stats.exhausted` is set.
        special_tokens: names of special tokens. The text is split at them, they do not become words, and they
            get the first ids.
        min_frequency: minimum number of occurrences of a word in the vocabulary.
        splitter: `"whitespace"` splits words at whitespace; `"bert"` also makes each punctuation mark a word.
        lowercase: whether to convert each character to lower case.
        workers: as in `count_pretokens`.
        executor: as in `count_pretokens`.
        progress: whether to show a progress bar on standard error.
        unk_token: name of the special token that encodes unknown words.
        bos_token: name of the special token that begins a text; `None` for no such token.
        eos_token: name of the special token that ends a text; `None` for no such token.
        pad_token: name of the special token that pads a batch; `None` for no such token. The default is
            ignored if it is not among `special_tokens`.

    Raises:
        InvalidArgumentError: an option or the source is invalid.
        TrainingError: a worker of the executor died.

    >>> trained = train_word_level(["to be or not to be"], vocab_size=5, progress=False)
    >>> [token.decode() for token in trained.vocab.values()]
    ['[PAD]', '[UNK]', 'be', 'to', 'not']
    """
    options = record_options("word_level", locals())
    special = check_special_names(special_tokens)
    make = partial(
        word_level,
        special_tokens=special,
        splitter=splitter,
        lowercase=lowercase,
        unk_token=unk_token,
        bos_token=bos_token,
        eos_token=eos_token,
        pad_token=pad_token,
    )
    untrained = make(special)
    check_int("min_frequency", min_frequency, minimum=1)
    vocab_size = check_int("vocab_size", vocab_size)
    if vocab_size < len(special):
        raise InvalidArgumentError(
            f"vocab_size is {vocab_size}; {len(special)} special tokens need at least {len(special)}"
        )
    seconds: dict[str, float] = {}
    with measure_time(seconds, "counting"):
        counts = _count_words(source, special, workers=workers, executor=executor, progress=progress)
        words = _normalize_words(counts, untrained.normalizer, splitter)
        encodable = _drop_invalid_utf8(words)
        candidates = {word: encodable[word] for word in encodable.keys() - set(special)}
        ranked = sorted(candidates, key=lambda word: (-candidates[word], word))
        selected = [word for word in ranked[: vocab_size - len(special)] if candidates[word] >= min_frequency]
        tokenizer = make([*special, *selected])
    missing = f"word left that occurs {min_frequency} or more times"
    names = "they have the name of a special token"
    notes = _list_notes(words, (encodable, _NOT_UTF8), (candidates, names))
    return _make_result(tokenizer, counts, words, options, seconds, missing, notes)


def train_wordpiece(
    source: Source | PretokenCounts,
    *,
    vocab_size: int,
    special_tokens: Sequence[str] = WORDPIECE_TOKENS,
    min_frequency: int = 2,
    limit_alphabet: int | None = 1000,
    continuing_prefix: str = "##",
    lowercase: bool = True,
    strip_accents: bool | None = None,
    clean_text: bool = True,
    handle_chinese_chars: bool = True,
    workers: int | None = None,
    executor: Executor | None = None,
    progress: bool = True,
    unk_token: str = "[UNK]",
    bos_token: str | None = "[CLS]",
    eos_token: str | None = "[SEP]",
    pad_token: str | None = "[PAD]",
    mask_token: str | None = "[MASK]",
) -> Trained[WordPieceTokenizer]:
    """Trains a WordPiece tokenizer as Hugging Face's `WordPieceTrainer` does: BPE of characters.

    Words are split into characters. Characters inside a word, after its first, get the prefix
    `continuing_prefix`. Then the most frequent pair of adjacent tokens is merged repeatedly; of equally
    frequent pairs, the one with the lowest ids. Ids are those of the special tokens, then the alphabet by
    code point, then the alphabet with the prefix, then the merges in order. The result does not depend on
    `workers`.

    Args:
        source: a path, a list of paths (`os.PathLike`) or an iterable of texts, counted as by
            `count_pretokens` with the pattern `"whitespace"`; or counts from that function, with any pattern
            and special tokens.
        vocab_size: number of ids, including special tokens and alphabet. If the text has too few pairs,
            training stops early, a warning is logged, and `stats.exhausted` is set.
        special_tokens: names of special tokens. The text is split at them, they are never merged, and they
            get the first ids.
        min_frequency: minimum number of occurrences of a pair that is merged.
        limit_alphabet: maximum number of distinct characters: the most frequent ones, and of equally frequent
            ones those with the lowest code points. Words with other characters are left out, which
            `stats.notes` reports. `None` keeps all characters.
        continuing_prefix: prefix of tokens that continue a word.
        lowercase: whether to convert each character to lower case.
        strip_accents: whether to remove nonspacing marks; `None` for the value of `lowercase`.
        clean_text: whether to remove control characters and to convert all whitespace to spaces.
        handle_chinese_chars: whether each CJK ideograph is a separate word.
        workers: as in `count_pretokens`.
        executor: as in `count_pretokens`.
        progress: whether to show a progress bar for each phase on standard error.
        unk_token: name of the special token that encodes unknown words.
        bos_token: name of the special token that begins a text, in the roles BOS and CLS; `None` for no such
            token. The defaults of this and the next three are ignored if they are not among `special_tokens`.
        eos_token: name of the special token that ends a text, in the roles EOS and SEP; `None` for no such
            token.
        pad_token: name of the special token that pads a batch; `None` for no such token.
        mask_token: name of the special token for masked language modeling; `None` for no such token.

    Raises:
        InvalidArgumentError: an option or the source is invalid, or the alphabet alone is larger than
            `vocab_size`.
        TrainingError: a worker of the executor died.

    >>> trained = train_wordpiece(["low lower lowest"], vocab_size=20, progress=False)
    >>> [token.decode() for token in trained.vocab.values()][5:]
    ['e', 'l', 'o', 'r', 's', 't', 'w', '##e', '##o', '##r', '##s', '##t', '##w', 'lo', 'low']
    """
    options = record_options("wordpiece", locals())
    special = check_special_names(special_tokens)
    make = partial(
        wordpiece,
        special_tokens=special,
        lowercase=lowercase,
        strip_accents=strip_accents,
        clean_text=clean_text,
        handle_chinese_chars=handle_chinese_chars,
        continuing_prefix=continuing_prefix,
        max_word_characters=MAX_WORD_CHARACTERS,
        unk_token=unk_token,
        bos_token=bos_token,
        eos_token=eos_token,
        pad_token=pad_token,
        mask_token=mask_token,
    )
    untrained = make(special)
    vocab_size = check_int("vocab_size", vocab_size, minimum=1)
    check_int("min_frequency", min_frequency, minimum=1)
    if limit_alphabet is not None:
        check_int("limit_alphabet", limit_alphabet, minimum=1)
    seconds: dict[str, float] = {}
    with measure_time(seconds, "counting"):
        counts = _count_words(source, special, workers=workers, executor=executor, progress=progress)
        words = _normalize_words(counts, untrained.normalizer, "bert")
        selected, alphabet, notes = _select_training_words(words, limit_alphabet)
        inside = {character for word in selected for character in word[1:]}
        continuing = (continuing_prefix + character for character in sorted(inside))
        initial_tokens = list(dict.fromkeys([*special, *sorted(alphabet), *continuing]))
    budget = vocab_size - len(initial_tokens)
    if budget < 0:
        raise InvalidArgumentError(
            f"vocab_size is {vocab_size}; {len(special)} special tokens and "
            f"{len(initial_tokens) - len(special)} tokens of single characters need at least "
            f"{len(initial_tokens)}; raise vocab_size, or set limit_alphabet below "
            f"{len(alphabet)}"
        )
    with (
        measure_time(seconds, "merging"),
        show_progress_bar("merging", budget, unit="tokens", enabled=progress) as advance,
    ):
        token_ids = {token: id_ for id_, token in enumerate(initial_tokens)}
        merged = train_merges(
            _write_words(selected, token_ids, continuing_prefix),
            num_tokens=budget,
            rules=TrainingRules(len(initial_tokens), min_frequency, "huggingface"),
            advance=advance,
            alphabet=Alphabet(
                {id_: token.encode("utf-8") for token, id_ in token_ids.items()},
                continuing_prefix.encode("utf-8"),
            ),
        )
    tokenizer = make([token.decode("utf-8") for token in merged.token.values()])
    missing = describe_missing_pair(min_frequency)
    return _make_result(tokenizer, counts, words, options, seconds, missing, notes)


def _count_words(
    source: Source | PretokenCounts, special_tokens: Sequence[str], **counting: Any
) -> PretokenCounts:
    """Counts the strings between whitespace, or returns existing counts, whatever their pattern is."""
    if isinstance(source, PretokenCounts):
        return source
    return count_pretokens(source, special_tokens=special_tokens, pattern="whitespace", **counting)


def _normalize_words(
    counts: PretokenCounts, normalizer: BertNormalizer, splitter: Splitter
) -> dict[str, int]:
    """Normalizes counted pre-tokens, splits them into words, and counts these.

    Bytes that are not UTF-8 become surrogates, as in `core.utf8.to_characters`.
    """
    find_words = compile_word_expression(splitter).findall
    totals: defaultdict[str, int] = defaultdict(int)
    for text, count in zip(
        counts.to_counted_pretokens().pretokens.iter_bytes(), counts.counts.tolist(), strict=True
    ):
        for word in find_words(to_characters(normalizer.normalize(text))):
            totals[word] += count
    return dict(totals)


def _drop_invalid_utf8(words: Mapping[str, int]) -> dict[str, int]:
    """Returns the words that are valid UTF-8. No token can have other bytes."""
    return {word: count for word, count in words.items() if is_encodable(word)}


def _list_notes(words: Mapping[str, int], *filtered: tuple[Mapping[str, int], str]) -> tuple[str, ...]:
    """Returns notes on the words that filters removed.

    Args:
        words: word to count, before the first filter.
        *filtered: for each filter, the words that it left, and a clause that says why it removed others.
    """
    notes = []
    for left, reason in filtered:
        if num_distinct := len(words) - len(left):
            occurrences = sum(words.values()) - sum(left.values())
            notes.append(f"left out {num_distinct:,} distinct words ({occurrences:,} occurrences): {reason}")
        words = left
    return tuple(notes)


def _make_result(
    tokenizer: Model,
    counts: PretokenCounts,
    words: Mapping[str, int],
    options: dict[str, Any],
    seconds: Mapping[str, float],
    missing: str,
    notes: tuple[str, ...],
) -> Trained[Model]:
    """Makes the result of training. Encodes each distinct word once to count the tokens of the text."""
    encoded = tokenizer.encode_segments(Segments(list(words), hold_bytes=True), sources=False)
    return make_result(
        tokenizer,
        counts,
        options | {"pattern": counts.pattern},
        seconds,
        num_unique=len(words),
        num_tokens=int(np.diff(encoded.splits) @ np.fromiter(words.values(), np.int64, len(words))),
        missing=missing,
        notes=notes,
    )


def _select_training_words(
    words: dict[str, int], limit: int | None
) -> tuple[dict[str, int], set[str], tuple[str, ...]]:
    """Removes words that are not UTF-8, too long, or have a character outside the alphabet.

    Returns:
        Word to its number of occurrences; the characters of the vocabulary, a superset of those of the words;
        and notes on words that were left out.
    """
    decodable = _drop_invalid_utf8(words)
    short = {word: count for word, count in decodable.items() if len(word) <= MAX_WORD_CHARACTERS}
    alphabet = _select_alphabet(short, limit)
    selected = {word: count for word, count in short.items() if alphabet.issuperset(word)}
    notes = _list_notes(
        words,
        (decodable, _NOT_UTF8),
        (short, f"they have more than {MAX_WORD_CHARACTERS} characters"),
        (selected, f"they have a character outside the alphabet of {len(alphabet):,}"),
    )
    return selected, alphabet, notes


def _select_alphabet(words: Mapping[str, int], limit: int | None) -> set[str]:
    """Returns the most frequent characters, up to `limit`."""
    frequencies: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            frequencies[character] += count
    ranked = sorted(frequencies, key=lambda character: (-frequencies[character], character))
    return set(ranked[:limit])


def _write_words(words: Mapping[str, int], token_ids: Mapping[str, int], prefix: str) -> Symbols:
    """Converts words to the ids of their characters, with the prefix for all but the first character.

    Characters are looked up once each, not once per occurrence.
    """
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    counts = np.fromiter(words.values(), np.int64, len(words))
    is_first = np.zeros(lengths.sum(), bool)
    is_first[np.cumsum(lengths) - lengths] = True
    codes = np.frombuffer("".join(words).encode("utf-32-le"), "<u4")
    unique_codes, inverse = np.unique(codes, return_inverse=True)
    characters = [chr(code) for code in unique_codes.tolist()]
    first_ids, inside_ids = (
        np.array([token_ids.get(start + character, -1) for character in characters], np.int32)
        for start in ("", prefix)
    )
    ids = np.where(is_first, first_ids.take(inverse), inside_ids.take(inverse))
    return drop_single(ids, lengths, counts)
