"""Training of WordPiece vocabularies: byte-pair merging of the characters of words.

For `train_wordpiece(["low lower lowest"], vocab_size=20, min_frequency=2)`:

    words             low, lower, lowest
    alphabet          e l o r s t w, and inside words ##e ##o ##r ##s ##t ##w
    tokens of words   l ##o ##w | l ##o ##w ##e ##r | l ##o ##w ##e ##s ##t
    first merge       l + ##o -> lo       (3 occurrences; `##o ##w` also has 3, but higher ids)
    second merge      lo + ##w -> low     (3 occurrences)

The merges are computed by the engine of BPE training, `trainer.bpe.batched_training`, on symbols that are ids
of characters instead of bytes.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax._util.checks import check_int
from tokjax._util.progress import show_progress_bar
from tokjax.core.utf8 import is_encodable
from tokjax.core.vocabulary import make_vocabulary
from tokjax.errors import InvalidArgumentError
from tokjax.models.wordpiece import OPTIONAL_TOKENS, WordPieceTokenizer, make_wordpiece
from tokjax.pretokenize.normalization import bert_normalizer
from tokjax.trainer.bpe.batched_training import Alphabet, TrainingRules, train_merges
from tokjax.trainer.bpe.linked_symbols import Symbols
from tokjax.trainer.results import Trained, format_missing_pairs, warn_if_exhausted
from tokjax.trainer.word_level import (
    check_roles,
    compute_stats,
    count_normalized_words,
    count_whitespace_words,
    drop_invalid_utf8,
    format_dropped_note,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Executor

    from tokjax.core.vocabulary import Role
    from tokjax.corpus.sources import Source
    from tokjax.trainer.pretoken_counts import PretokenCounts

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""Special tokens of BERT, in the order of their ids."""
MAX_WORD_CHARACTERS = 100
"""Maximum length of a word. The tokenizer encodes longer ones as unknown, so training leaves them out."""


@dataclass(frozen=True)
class TrainedWordPiece(Trained):
    """Result of `train_wordpiece`. The ids are those of special tokens, then the alphabet, then the merges.

    Attributes:
        tokenizer: the trained tokenizer.
    """

    tokenizer: WordPieceTokenizer


def train_wordpiece(
    source: Source | PretokenCounts,
    *,
    vocab_size: int,
    special_tokens: Sequence[str] = SPECIAL_TOKENS,
    min_frequency: int = 2,
    limit_alphabet: int | None = 1000,
    initial_alphabet: Sequence[str] = (),
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
) -> TrainedWordPiece:
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
        initial_alphabet: characters that are always in the alphabet, even if they are not in the text.
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
    roles: Mapping[Role, str | None]
    roles = {
        "unk": unk_token,
        "bos": bos_token,
        "eos": eos_token,
        "pad": pad_token,
        "cls": bos_token,
        "sep": eos_token,
        "mask": mask_token,
    }
    special, declared = check_roles(special_tokens, roles, OPTIONAL_TOKENS)
    normalizer = bert_normalizer(
        lowercase=lowercase,
        strip_accents=strip_accents,
        clean_text=clean_text,
        handle_chinese_chars=handle_chinese_chars,
    )
    _check_options(vocab_size, min_frequency, limit_alphabet, initial_alphabet)
    vocab_size = int(vocab_size)
    special_ids = {name: i for i, name in enumerate(special)}
    vocabulary = make_vocabulary({}, special_ids, declared)
    untrained = make_wordpiece(vocabulary, normalizer, continuing_prefix, MAX_WORD_CHARACTERS, cleanup=True)
    start = time.perf_counter()
    counts = count_whitespace_words(source, special, workers=workers, executor=executor, progress=progress)
    words = count_normalized_words(counts, normalizer, "bert")
    training_words = _select_training_words(words, limit_alphabet, initial_alphabet)
    alphabet_tokens = [
        token
        for token in _build_initial_tokens(training_words, continuing_prefix)
        if token not in special_ids
    ]
    budget = vocab_size - len(special) - len(alphabet_tokens)
    if budget < 0:
        raise InvalidArgumentError(
            f"vocab_size is {vocab_size}; {len(special)} special tokens and {len(alphabet_tokens)} tokens of "
            f"single characters need at least {vocab_size - budget}; raise vocab_size, or set limit_alphabet "
            f"below {len(training_words.alphabet)}"
        )
    counting_end = time.perf_counter()
    with show_progress_bar("merging", budget, unit="tokens", enabled=progress) as advance:
        initial_tokens = [*special, *alphabet_tokens]
        merged = train_merges(
            _make_symbols(
                training_words.words,
                {token: id_ for id_, token in enumerate(initial_tokens)},
                continuing_prefix,
            ),
            num_tokens=budget,
            rules=TrainingRules(len(initial_tokens), min_frequency, "huggingface", max_token_length=None),
            advance=advance,
            alphabet=Alphabet(
                {id_: token.encode("utf-8") for id_, token in enumerate(initial_tokens)},
                continuing_prefix.encode("utf-8"),
            ),
        )
    seconds = {"counting": counting_end - start, "merging": time.perf_counter() - counting_end}
    ordinary = {token: id_ for id_, token in merged.token.items() if id_ >= len(special)}
    tokenizer = replace(untrained, vocabulary=make_vocabulary(ordinary, special_ids, declared))
    exhausted = warn_if_exhausted(tokenizer.vocabulary, vocab_size, format_missing_pairs(min_frequency))
    stats = compute_stats(counts, words, tokenizer, seconds, exhausted=exhausted, notes=training_words.notes)
    options = {
        "trainer": "wordpiece",
        "vocab_size": vocab_size,
        "special_tokens": special,
        "min_frequency": min_frequency,
        "limit_alphabet": limit_alphabet,
        "initial_alphabet": list(initial_alphabet),
        "continuing_prefix": continuing_prefix,
        **asdict(normalizer),
        "pattern": counts.pattern,
    }
    return TrainedWordPiece(tokenizer, stats, options)


class _TrainingWords(NamedTuple):
    """Words and characters that training uses.

    Attributes:
        words: word to its number of occurrences.
        alphabet: characters of the vocabulary, a superset of the characters of `words`.
        notes: notes on words that were left out.
    """

    words: dict[str, int]
    alphabet: set[str]
    notes: tuple[str, ...]


def _select_training_words(
    words: dict[str, int], limit: int | None, initial_alphabet: Sequence[str]
) -> _TrainingWords:
    """Removes words that are not UTF-8, too long, or have a character outside the alphabet."""
    decodable = drop_invalid_utf8(words)
    short = {word: count for word, count in decodable.items() if len(word) <= MAX_WORD_CHARACTERS}
    alphabet = _select_alphabet(short, limit, initial_alphabet)
    selected = {word: count for word, count in short.items() if alphabet.issuperset(word)}
    notes = (
        *format_dropped_note(words, decodable, "they are not valid UTF-8"),
        *format_dropped_note(decodable, short, f"they have more than {MAX_WORD_CHARACTERS} characters"),
        *format_dropped_note(
            short, selected, f"they have a character outside the alphabet of {len(alphabet):,}"
        ),
    )
    return _TrainingWords(selected, alphabet, notes)


def _select_alphabet(words: Mapping[str, int], limit: int | None, initial: Sequence[str]) -> set[str]:
    """Returns the initial characters and the most frequent others, up to `limit` characters."""
    frequencies: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            frequencies[character] += count
    ranked = sorted(
        frequencies.keys() - set(initial), key=lambda character: (-frequencies[character], character)
    )
    budget = len(ranked) if limit is None else max(limit - len(set(initial)), 0)
    return {*initial, *ranked[:budget]}


def _build_initial_tokens(training_words: _TrainingWords, prefix: str) -> list[str]:
    """Returns each character of the alphabet, then with the prefix each that occurs inside a word."""
    inside = {character for word in training_words.words for character in word[1:]}
    tokens = [*sorted(training_words.alphabet), *(prefix + character for character in sorted(inside))]
    return list(dict.fromkeys(tokens))


def _make_symbols(words: Mapping[str, int], token_ids: Mapping[str, int], prefix: str) -> Symbols:
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
    is_long = lengths > 1
    return Symbols(
        ids[np.repeat(is_long, lengths)],
        lengths[is_long],
        counts[is_long],
        int(counts[~is_long].sum()),
    )


def _check_options(
    vocab_size: int, min_frequency: int, limit_alphabet: int | None, initial_alphabet: Sequence[str]
) -> None:
    check_int("vocab_size", vocab_size, minimum=1)
    check_int("min_frequency", min_frequency, minimum=1)
    if limit_alphabet is not None:
        check_int("limit_alphabet", limit_alphabet, minimum=1)
    for character in initial_alphabet:
        if not isinstance(character, str) or len(character) != 1 or not is_encodable(character):
            raise InvalidArgumentError(f"initial_alphabet must contain single characters, not {character!r}")
