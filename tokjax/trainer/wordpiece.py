"""Training a WordPiece vocabulary."""

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
from tokjax.models.wordpiece import WordPieceTokenizer, make_wordpiece
from tokjax.pretokenize.bert_normalizer import bert_normalizer
from tokjax.trainer.bpe.batched_merging import Alphabet, TrainingRules, train_merges
from tokjax.trainer.bpe.linked_symbols import Symbols
from tokjax.trainer.records import Trained, warn_if_exhausted
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
"""Those of BERT, in the order of their ids."""
MAX_WORD_CHARACTERS = 100
"""Longer words are unknown to the tokenizer, so nothing is learned from them."""
_OPTIONAL_ROLES: Mapping[Role, str] = {"bos": "[CLS]", "eos": "[SEP]", "pad": "[PAD]"}


@dataclass(frozen=True)
class TrainedWordPiece(Trained):
    """What `train_wordpiece` made. Its ids are the special tokens, then the alphabet, then what was merged.

    Attributes:
        tokenizer: ready to use.
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
) -> TrainedWordPiece:
    """Trains a WordPiece tokenizer as Hugging Face's `WordPieceTrainer` does: BPE of characters.

    Words are split into characters, those inside a word after `continuing_prefix`. Then the most frequent
    pair of neighbouring tokens is merged, again and again; of equally frequent pairs, the one with the lower
    ids. Ids are those of the special tokens, then the alphabet by code point, then the alphabet after the
    prefix, then the merges in order. The result depends on the text alone, not on `workers`.

    Args:
        source: a path, a list of paths (`os.PathLike`) or an iterable of texts, read as `count_pretokens`
            does, with the pattern `"whitespace"`; or what that function gave, with any pattern and special
            tokens.
        vocab_size: how many ids to give out, special tokens and alphabet among them. Where the text has too
            few pairs, training stops early, logs that, and sets `stats.exhausted`.
        special_tokens: they split the text, are never merged, and get the first ids.
        min_frequency: pairs that are rarer are not merged.
        limit_alphabet: how many different characters to keep: the most frequent, of equals those of lower
            code points. Words that have others are left out, as `stats.notes` says. `None` keeps all.
        initial_alphabet: characters to keep in any case, even if they are not in the text.
        continuing_prefix: what tokens begin with that go on in a word.
        lowercase: each character becomes its lower case.
        strip_accents: nonspacing marks are dropped; `None` for what `lowercase` says.
        clean_text: control characters are dropped, and all white space becomes blanks.
        handle_chinese_chars: CJK ideographs become words of their own.
        workers: as in `count_pretokens`.
        executor: as in `count_pretokens`.
        progress: show a bar for each phase, on standard error.
        unk_token: which special token stands for the unknown.
        bos_token: which special token begins a text. (This one and the next two are left out where there is
            no special token of the default name.)
        eos_token: which special token ends a text.
        pad_token: which special token pads a batch.

    Raises:
        InvalidArgumentError: an option, or the source, makes no sense, or the alphabet alone is larger than
            `vocab_size`.
        TrainingError: a worker of the executor died.

    >>> trained = train_wordpiece(["low lower lowest"], vocab_size=20, progress=False)
    >>> [token.decode() for token in trained.vocab.values()][5:]
    ['e', 'l', 'o', 'r', 's', 't', 'w', '##e', '##o', '##r', '##s', '##t', '##w', 'lo', 'low']
    """
    roles: Mapping[Role, str | None]
    roles = {"unk": unk_token, "bos": bos_token, "eos": eos_token, "pad": pad_token}
    special, declared = check_roles(special_tokens, roles, _OPTIONAL_ROLES)
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
    begin = time.perf_counter()
    counts = count_whitespace_words(source, special, workers=workers, executor=executor, progress=progress)
    words = count_normalized_words(counts, normalizer, "bert")
    training_words = _select_training_words(words, limit_alphabet, initial_alphabet)
    first = [
        form for form in _build_initial_tokens(training_words, continuing_prefix) if form not in special_ids
    ]
    budget = vocab_size - len(special) - len(first)
    if budget < 0:
        raise InvalidArgumentError(
            f"vocab_size is {vocab_size}; {len(special)} special tokens and {len(first)} of single "
            f"characters need at least {vocab_size - budget}; ask for more, or set limit_alphabet below "
            f"{len(training_words.alphabet)}"
        )
    counted = time.perf_counter()
    with show_progress_bar("merging", budget, unit="tokens", enabled=progress) as advance:
        forms = [*special, *first]
        merged = train_merges(
            _symbols_of(
                training_words.words, {form: id_ for id_, form in enumerate(forms)}, continuing_prefix
            ),
            num_tokens=budget,
            rules=TrainingRules(len(forms), min_frequency, "huggingface", max_token_length=None),
            advance=advance,
            alphabet=Alphabet(
                {id_: form.encode("utf-8") for id_, form in enumerate(forms)},
                continuing_prefix.encode("utf-8"),
            ),
        )
    seconds = {"counting": counted - begin, "merging": time.perf_counter() - counted}
    ordinary = {token: id_ for id_, token in merged.token.items() if id_ >= len(special)}
    tokenizer = replace(untrained, vocabulary=make_vocabulary(ordinary, special_ids, declared))
    missing = f"pair left that stands {min_frequency} or more times"
    exhausted = warn_if_exhausted(tokenizer.vocabulary, vocab_size, missing)
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
    """What there is to learn from.

    Attributes:
        words: how often each word stands.
        alphabet: the characters to keep, all those of the words among them.
        notes: what was left out.
    """

    words: dict[str, int]
    alphabet: set[str]
    notes: tuple[str, ...]


def _select_training_words(
    words: dict[str, int], limit: int | None, initial_alphabet: Sequence[str]
) -> _TrainingWords:
    decodable = drop_invalid_utf8(words)
    short = {word: count for word, count in decodable.items() if len(word) <= MAX_WORD_CHARACTERS}
    alphabet = _select_alphabet(short, limit, initial_alphabet)
    selected = {word: count for word, count in short.items() if alphabet.issuperset(word)}
    notes = (
        *format_dropped_note(words, decodable, "they hold bytes that are no UTF-8"),
        *format_dropped_note(decodable, short, f"they have more than {MAX_WORD_CHARACTERS} characters"),
        *format_dropped_note(
            short, selected, f"they hold a character that is not among the {len(alphabet):,} kept"
        ),
    )
    return _TrainingWords(selected, alphabet, notes)


def _select_alphabet(words: Mapping[str, int], limit: int | None, initial: Sequence[str]) -> set[str]:
    """The characters to keep: the initial ones, and then the most frequent."""
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
    """Each character of the alphabet by itself, and behind the prefix if it stands inside words."""
    inside = {character for word in training_words.words for character in word[1:]}
    tokens = [*sorted(training_words.alphabet), *(prefix + character for character in sorted(inside))]
    return list(dict.fromkeys(tokens))


def _symbols_of(words: Mapping[str, int], id_of: Mapping[str, int], prefix: str) -> Symbols:
    """Returns words in the ids of their characters, the first one without the prefix."""
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    counts = np.fromiter(words.values(), np.int64, len(words))
    is_first = np.zeros(lengths.sum(), bool)
    is_first[np.cumsum(lengths) - lengths] = True
    codes = np.frombuffer("".join(words).encode("utf-32-le"), "<u4")
    different, which = np.unique(codes, return_inverse=True)
    characters = [chr(code) for code in different.tolist()]
    first, inside = (
        np.array([id_of.get(before + character, -1) for character in characters], np.int32)
        for before in ("", prefix)
    )
    ids = np.where(is_first, first.take(which), inside.take(which))
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
            raise InvalidArgumentError(f"initial_alphabet holds single characters, not {character!r}")
