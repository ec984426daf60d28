"""Training of SentencePiece models with the sentencepiece library.

The library pulls sentences from `_SentenceStream`, and trains when that ends. The stream measures
the text as it passes, and keeps an error of the source, since the library may hide it.
"""

from __future__ import annotations

import io
import re
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from tokjax._util.checks import check_bool, check_choice, check_float, check_int, check_names
from tokjax._util.progress import show_progress_bar
from tokjax.bpe.chunks import as_segments
from tokjax.core.utf8 import is_encodable
from tokjax.core.vocabulary import MAX_ID, check_role_names
from tokjax.errors import InvalidArgumentError, TrainingError
from tokjax.models.sentencepiece import SentencePieceTokenizer, sentencepiece
from tokjax.models.sentencepiece_files import ModelType
from tokjax.pretokenize.special_tokens import check_special_names
from tokjax.trainer.results import Trained, TrainingStats, warn_if_exhausted
from tokjax.trainer.sentencepiece.sentences import (
    LongLines,
    Tally,
    open_line_corpus,
    read_sentences,
    sample_sentences,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tokjax.corpus.files import SourceFile
    from tokjax.corpus.sources import Source

Normalization = Literal["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"]

_ERRORS_ONLY = 2
_DEFAULT_WORKERS = 16
_BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")
_INTERNAL_DETAILS = re.compile(r"INTERNAL: |\S*\.cc\(\d+\) |\[[^]]*\] ?")
_SAMPLE_BYTES = 1 << 20


@dataclass(frozen=True)
class TrainedSentencePiece(Trained):
    """Result of `train_sentencepiece`.

    The ids are those of the UNK, BOS, EOS and PAD pieces that exist, then of the other special tokens, the
    user-defined symbols, the 256 bytes (with `byte_fallback`), and all other pieces. To use the model in
    other programs, write the bytes `tokenizer.model_proto` to a `.model` file.

    Attributes:
        tokenizer: the trained tokenizer.
    """

    tokenizer: SentencePieceTokenizer


def train_sentencepiece(
    source: Source,
    *,
    vocab_size: int,
    model_type: ModelType = "unigram",
    special_tokens: Sequence[str] = (),
    user_defined_symbols: Sequence[str] = (),
    character_coverage: float = 0.9995,
    byte_fallback: bool = False,
    normalization: Normalization = "nmt_nfkc",
    add_dummy_prefix: bool = True,
    remove_extra_whitespaces: bool = True,
    split_digits: bool = False,
    max_sentence_bytes: int = 4192,
    long_lines: LongLines = "split",
    max_sentences: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    progress: bool = True,
    bos_token: str | None = None,
    eos_token: str | None = "</s>",
    pad_token: str | None = None,
    unk_token: str = "<unk>",
) -> TrainedSentencePiece:
    """Trains a SentencePiece tokenizer.

    Each line of a document is a sentence. The model equals that of the sentencepiece library for the same
    sentences and options. Training is deterministic for one version of the library, on any machine. The
    library holds all sentences in memory; `max_sentences` limits them. Text that the library would drop
    silently is reported in `stats.notes`.

    The library can't be interrupted while it trains: Ctrl-C takes effect while the text is read, or at the
    end of training. The library has one log for the whole process, which is set to errors only.

    Args:
        source: as in `count_pretokens`. Files are read in chunks of some megabytes.
        vocab_size: number of ids, including special tokens. If the text has too few pieces, the vocabulary is
            smaller, a warning is logged, and `stats.exhausted` is set.
        model_type: `"unigram"`, `"bpe"`, `"word"` or `"char"`.
        special_tokens: names of special tokens. The text is split at them, they are not trained on, and they
            become control pieces.
        user_defined_symbols: strings that are encoded as one piece each, such as `"<call>"`, which is a
            special token because it looks like one and must be allowed in texts, or a line
            feed. A space in them is written as `▁` (U+2581).
        character_coverage: fraction of all characters of the text that have pieces, from 0.98 to 1.
        byte_fallback: whether to encode characters without a piece as bytes instead of UNK.
        normalization: normalization of texts: `"nmt_nfkc"`, `"nfkc"`, one of these with `"_cf"` (case
            folding), or `"identity"`.
        add_dummy_prefix: whether to add a space before each text.
        remove_extra_whitespaces: whether to remove whitespace at both ends of a text, and to reduce repeated
            whitespace to one space.
        split_digits: whether pieces contain at most one digit.
        max_sentence_bytes: maximum length of a sentence, in UTF-8 bytes.
        long_lines: `"split"` splits longer lines at whitespace near the limit, or else between two
            characters; `"drop"` leaves longer lines out.
        max_sentences: size of a random sample of sentences to train on; `None` for all sentences.
        seed: seed of that sample.
        workers: number of threads of the library; `None` for 16. The default does not depend on the machine,
            because the order in which a unigram model adds scores depends on the number of threads.
        progress: whether to show the progress of reading, and that training runs, on standard error.
        bos_token: name of the control piece that begins a text; `None` for no such piece.
        eos_token: name of the control piece that ends a text; `None` for no such piece.
        pad_token: name of the control piece that pads a batch; `None` for no such piece. It may be the same
            as `bos_token` or `eos_token`.
        unk_token: name of the piece that encodes unknown text.

    Returns:
        The tokenizer and training statistics. `stats.num_unique_pretokens` is the number of distinct strings
        between whitespace. `stats.bytes_per_token` is measured on the first MiB of the sentences.

    Raises:
        InvalidArgumentError: an option or the source is invalid.
        TrainingError: the source has no text, or the library fails.

    >>> trained = train_sentencepiece(["low lower lowest"], vocab_size=12, progress=False)
    >>> trained.tokenizer.vocabulary.special
    mappingproxy({'<unk>': 0, '</s>': 1})
    """
    roles = {"unk": unk_token, "bos": bos_token, "eos": eos_token, "pad": pad_token}
    workers = _DEFAULT_WORKERS if workers is None else check_int("workers", workers, minimum=1)
    special = tuple(check_special_names(special_tokens))
    named_pieces = _collect_named_pieces(roles, special, user_defined_symbols)
    check_choice("model_type", model_type, get_args(ModelType))
    check_choice("normalization", normalization, get_args(Normalization))
    check_choice("long_lines", long_lines, get_args(LongLines))
    check_bool("byte_fallback", byte_fallback)
    _check_vocab_size(vocab_size, len(named_pieces), byte_fallback)
    vocab_size = int(vocab_size)
    coverage = check_float("character_coverage", character_coverage, minimum=0.98, maximum=1)
    max_bytes = check_int("max_sentence_bytes", max_sentence_bytes, minimum=16)
    options = {
        "model_type": model_type,
        "vocab_size": vocab_size,
        "character_coverage": coverage,
        "byte_fallback": bool(byte_fallback),
        "add_dummy_prefix": bool(add_dummy_prefix),
        "remove_extra_whitespaces": bool(remove_extra_whitespaces),
        "split_digits": bool(split_digits),
        "user_defined_symbols": list(user_defined_symbols),
    }
    library_options = {
        "normalization_rule_name": normalization,
        "control_symbols": [name for name in special if name not in roles.values()],
        "max_sentence_length": max_bytes,
        "num_threads": workers,
        "hard_vocab_limit": False,
        **_build_role_options(roles),
    }
    maximum = None if max_sentences is None else check_int("max_sentences", max_sentences, minimum=1)
    seed = check_int("seed", seed)
    tally, start = Tally(), time.perf_counter()
    corpus = open_line_corpus(source, special)
    with ExitStack() as progress_display:
        advance = progress_display.enter_context(
            show_progress_bar("reading", corpus.nbytes, unit="bytes", enabled=progress)
        )

        def begin_training() -> None:
            progress_display.close()
            bar = show_progress_bar("training", None, unit="models", enabled=progress)
            progress_display.enter_context(bar)

        sentences = read_sentences(corpus.chunks, special, max_bytes, long_lines, tally, advance)
        if maximum is not None:
            sentences = iter(sample_sentences(sentences, maximum, seed))
        stream = _SentenceStream(sentences, begin_training)
        proto = _train_with_library(stream, options | library_options)
    seconds = {"reading": stream.read_end - start, "training": time.perf_counter() - stream.read_end}
    tokenizer = sentencepiece(proto, bos_token=bos_token, eos_token=eos_token, pad_token=pad_token)
    recorded_options = {
        "trainer": "sentencepiece",
        **options,
        "special_tokens": list(special),
        "normalization": normalization,
        "max_sentence_bytes": max_bytes,
        "long_lines": long_lines,
        "max_sentences": maximum,
        "seed": seed,
        "workers": workers,
        **{f"{role}_token": name for role, name in roles.items()},
    }
    stats = _build_stats(
        tokenizer, stream, tally, seconds, corpus.files, vocab_size=vocab_size, max_bytes=max_bytes
    )
    return TrainedSentencePiece(tokenizer, stats, recorded_options)


class _SentenceStream:
    """Iterable of sentences for the library, which also measures them.

    Attributes:
        count: number of sentences so far.
        nbytes: number of bytes of these sentences.
        word_hashes: hashes of the distinct strings between whitespace.
        sample: first sentences, on which bytes per token is measured.
        sample_nbytes: number of bytes of `sample`.
        failure: error that ended the iteration. The library may hide it, and train on the sentences so far.
        read_end: time at which the iteration ended, by `time.perf_counter`.
    """

    def __init__(self, sentences: Iterator[bytes], at_end: Callable[[], None]) -> None:
        self.count = self.nbytes = self.sample_nbytes = 0
        self.word_hashes: set[int] = set()
        self.sample: list[bytes] = []
        self.failure: BaseException | None = None
        self.read_end = 0.0
        self._sentences = sentences
        self._at_end = at_end

    def __iter__(self) -> Iterator[bytes]:
        try:
            for sentence in self._sentences:
                self._add_sentence(sentence)
                yield sentence
            self.read_end = time.perf_counter()
            self._at_end()
        except BaseException as error:
            self.failure = error
            raise

    def _add_sentence(self, sentence: bytes) -> None:
        self.count += 1
        self.nbytes += len(sentence)
        self.word_hashes.update(map(hash, sentence.split()))
        if self.sample_nbytes < _SAMPLE_BYTES:
            self.sample.append(sentence)
            self.sample_nbytes += len(sentence)


def _train_with_library(stream: _SentenceStream, options: dict[str, Any]) -> bytes:
    """Trains with the library, and returns the serialized model."""
    from sentencepiece import SentencePieceTrainer  # noqa: PLC0415 (slow to import)

    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=iter(stream), model_writer=model, minloglevel=_ERRORS_ONLY, **options
        )
    except Exception as error:
        if stream.failure is None:
            raise _translate_error(error, stream, options) from error
    if stream.failure is not None:
        raise stream.failure
    return model.getvalue()


def _translate_error(error: Exception, stream: _SentenceStream, options: dict[str, Any]) -> Exception:
    """Returns the error of tokjax to raise for an error of the library."""
    if not stream.count:
        return TrainingError("the source has no text to train on: it has no lines, or all were left out")
    too_small = re.search(r"smaller than required_chars\. (\d+) vs (\d+)", str(error))
    if too_small:
        coverage = options["character_coverage"]
        return InvalidArgumentError(
            f"vocab_size is {too_small[1]}; the special tokens and the characters that cover {coverage} of "
            f"the text need {too_small[2]}: pass vocab_size={too_small[2]} or more, or a "
            f"character_coverage below {coverage}"
        )
    if "(all_chars_count) > (0)" in str(error):
        return TrainingError("the source has no text to train on: it has only whitespace")
    message = _INTERNAL_DETAILS.sub("", str(error)).strip() or str(error)
    return TrainingError(f"the sentencepiece library could not train: {message}")


def _build_stats(
    tokenizer: SentencePieceTokenizer,
    stream: _SentenceStream,
    tally: Tally,
    seconds: dict[str, float],
    files: tuple[SourceFile, ...],
    *,
    vocab_size: int,
    max_bytes: int,
) -> TrainingStats:
    """Computes the statistics of training, with bytes per token on the sample of the stream."""
    notes = [
        f"sentences trained on: {stream.count:,} ({stream.nbytes:,} bytes)",
        *tally.make_notes(max_bytes),
    ]
    if stream.sample_nbytes < stream.nbytes:
        notes.append(f"bytes_per_token is measured on their first {stream.sample_nbytes:,} bytes")
    num_tokens = len(tokenizer.encode_segments(as_segments(stream.sample), sources=False).ids)
    return TrainingStats(
        documents=tally.documents,
        bytes=tally.nbytes,
        num_unique_pretokens=len(stream.word_hashes),
        seconds=seconds,
        bytes_per_token=stream.sample_nbytes / num_tokens if num_tokens else 0.0,
        exhausted=warn_if_exhausted(tokenizer.vocabulary, vocab_size, "more pieces"),
        files=files,
        notes=tuple(notes),
    )


def _collect_named_pieces(
    roles: dict[str, str | None], special_tokens: tuple[str, ...], symbols: Sequence[str]
) -> list[str]:
    """Checks the names of roles, special tokens and symbols, and returns them without duplicates."""
    check_role_names(roles)
    if not roles["unk"]:
        raise InvalidArgumentError(f"unk_token is {roles['unk']!r}; a model needs that piece: pass its name")
    reserved = dict.fromkeys([*filter(None, roles.values()), *special_tokens])
    for name in reserved:
        if not is_encodable(name):
            raise InvalidArgumentError(f"special token {name!r} has a lone surrogate")
        if _BYTE_PIECE.fullmatch(name):
            raise InvalidArgumentError(f"special token {name!r} is the name of a byte piece")
    for role in ("bos", "eos", "pad"):
        if roles[role] == roles["unk"]:
            raise InvalidArgumentError(f"{role}_token and unk_token are both {roles[role]!r}")
    for i, symbol in enumerate(check_names("user_defined_symbols", symbols)):
        if not symbol or not is_encodable(symbol):
            raise InvalidArgumentError(
                f"user-defined symbol {i} must be a non-empty string without surrogates, not {symbol!r}"
            )
        if symbol in reserved:
            raise InvalidArgumentError(f"user-defined symbol {symbol!r} is a duplicate, or a special token")
        if _BYTE_PIECE.fullmatch(symbol):
            raise InvalidArgumentError(f"user-defined symbol {symbol!r} is the name of a byte piece")
        if " " in symbol or "\0" in symbol:
            raise InvalidArgumentError(
                f"user-defined symbol {symbol!r} contains a space or U+0000, and would never match in a "
                "text; write U+2581 for a space"
            )
        reserved[symbol] = None
    return list(reserved)


def _build_role_options(roles: dict[str, str | None]) -> dict[str, int | str]:
    """Returns the options of the library for roles. A piece with two roles gets its id from the first."""
    options: dict[str, int | str] = {}
    pieces: list[str] = []
    for role, name in roles.items():
        is_new = name is not None and name not in pieces
        options[f"{role}_id"] = len(pieces) if is_new else -1
        if name is not None and is_new:
            options[f"{role}_piece"] = name
            pieces.append(name)
    return options


def _check_vocab_size(vocab_size: int, num_named: int, byte_fallback: bool) -> None:
    """Checks that the vocabulary has ids for all named pieces, all bytes and one more piece."""
    minimum = num_named + 256 * byte_fallback + 1
    check_int("vocab_size", vocab_size, maximum=MAX_ID + 1)
    if vocab_size < minimum:
        raise InvalidArgumentError(
            f"vocab_size is {vocab_size}; {num_named} special tokens and symbols, "
            f"{'256 bytes' if byte_fallback else 'no bytes'} and one piece need at least {minimum}"
        )
