"""Training a SentencePiece model, by the `sentencepiece` library."""

from __future__ import annotations

import io
import re
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from tokjax._util.checks import check_float, check_int
from tokjax._util.progress import show_progress_bar, show_spinner
from tokjax.bpe.chunks import as_segments
from tokjax.core.utf8 import is_encodable
from tokjax.core.vocabulary import MAX_ID
from tokjax.errors import InvalidArgumentError, TrainingError
from tokjax.models.sentencepiece import SentencePieceTokenizer, sentencepiece
from tokjax.models.sentencepiece_files import ModelType
from tokjax.pretokenize.special_tokens import check_special_names
from tokjax.trainer.records import Trained, TrainingStats, warn_if_exhausted
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
_WORKERS = 16
_NOT_IN_SYMBOLS = re.compile(r"\s|\x00|<0x[0-9A-F]{2}>")
_BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")
_INTERNAL = re.compile(r"INTERNAL: |\S*\.cc\(\d+\) |\[[^]]*\] ?")
_MEASURED_BYTES = 1 << 20


@dataclass(frozen=True)
class TrainedSentencePiece(Trained):
    """What `train_sentencepiece` made.

    Its ids are those of the unknown, BOS, EOS and PAD pieces, as far as there are such, then of the other
    special tokens, the user-defined symbols, the 256 bytes if there is a fallback to them, and all others.
    Other programs take the bytes `tokenizer.model_proto` as a `.model` file.

    Attributes:
        tokenizer: ready to use.
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
    """Train a SentencePiece tokenizer.

    Each line of a document is a sentence. The model is what the library makes of the same sentences and
    options, and the same each time, on any machine with the same version of it. The library keeps all
    sentences in memory; `max_sentences` bounds that. What it would leave out without a word is said in
    `stats.notes`.

    While the library trains it can't be interrupted: Ctrl-C takes effect while the text is read, or when the
    training has come to its end. Its log, one for the whole process, is turned down to errors.

    Args:
        source: as of `count_pretokens`. Files are read some megabytes at a time.
        vocab_size: how many ids to give out, all special ones among them. Where the text has too few pieces
            there are fewer: that is logged, and `stats.exhausted` is set.
        model_type: `"unigram"`, `"bpe"`, `"word"` or `"char"`.
        special_tokens: they split the text, are never learned from it, and become control pieces.
        user_defined_symbols: always one piece each, wherever they stand in a text.
        character_coverage: the share of all characters that are to have a piece, from 0.98 to 1.
        byte_fallback: encode characters without a piece as bytes, not as unknown.
        normalization: what is done to texts: `"nmt_nfkc"`, `"nfkc"`, the same with `"_cf"` (case folded), or
            `"identity"`.
        add_dummy_prefix: put a space before each text.
        remove_extra_whitespaces: take white space at both ends away, and make one of several in a row.
        split_digits: a piece holds no more than one digit.
        max_sentence_bytes: the limit of a line, in UTF-8.
        long_lines: what becomes of longer ones: `"split"` at white space, where there is any near the limit,
            or else between two characters; or `"drop"`.
        max_sentences: train on so many sentences, drawn from all; `None` for all of them.
        seed: for the drawing.
        workers: how many threads the library uses; `None` for 16. A unigram model depends on this number,
            in which order scores are added up; so it is not by default that of the machine's cores.
        progress: show on standard error how much was read, and that the library trains.
        bos_token: the control piece that begins a text, if any.
        eos_token: the control piece that ends a text, if any.
        pad_token: the control piece that pads a batch, if any. It may be one of the others.
        unk_token: the piece for what the vocabulary can't express.

    Returns:
        The tokenizer and what training saw. `stats.unique_words` counts what stands between white space, and
        `stats.bytes_per_token` is measured on the sentences (the first MiB of them).

    Raises:
        InvalidArgumentError: an option, or the source, makes no sense.
        TrainingError: there is no text, or the library could not train.

    >>> trained = train_sentencepiece(["low lower lowest"], vocab_size=12, progress=False)
    >>> trained.tokenizer.vocabulary.special
    mappingproxy({'<unk>': 0, '</s>': 1})
    """
    roles = {"unk": unk_token, "bos": bos_token, "eos": eos_token, "pad": pad_token}
    workers = _WORKERS if workers is None else check_int("workers", workers, minimum=1)
    special = tuple(check_special_names(special_tokens))
    named = _collect_named_pieces(roles, special, user_defined_symbols)
    _check_choices(model_type=model_type, normalization=normalization, long_lines=long_lines)
    _check_vocab_size(vocab_size, len(named), byte_fallback)
    vocab_size = int(vocab_size)
    coverage = check_float("character_coverage", character_coverage, minimum=0.98, maximum=1)
    longest = check_int("max_sentence_bytes", max_sentence_bytes, minimum=16)
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
        "max_sentence_length": longest,
        "num_threads": workers,
        "hard_vocab_limit": False,
        **_build_role_options(roles),
    }
    maximum = None if max_sentences is None else check_int("max_sentences", max_sentences, minimum=1)
    seed = check_int("seed", seed)
    tally, begin = Tally(), time.perf_counter()
    corpus = open_line_corpus(source, special)
    with ExitStack() as shown:
        advance = shown.enter_context(
            show_progress_bar("reading", corpus.nbytes, unit="bytes", enabled=progress)
        )

        def begin_training() -> None:
            shown.close()
            shown.enter_context(show_spinner("training", enabled=progress))

        sentences = read_sentences(corpus.chunks, special, longest, long_lines, tally, advance)
        if maximum is not None:
            sentences = iter(sample_sentences(sentences, maximum, seed))
        stream = _SentenceStream(sentences, begin_training)
        proto = _train_with_library(stream, options | library_options)
    seconds = {"reading": stream.read_at - begin, "training": time.perf_counter() - stream.read_at}
    tokenizer = sentencepiece(proto, bos_token=bos_token, eos_token=eos_token, pad_token=pad_token)
    described = {
        "trainer": "sentencepiece",
        **options,
        "special_tokens": list(special),
        "normalization": normalization,
        "max_sentence_bytes": longest,
        "long_lines": long_lines,
        "max_sentences": maximum,
        "seed": seed,
        "workers": workers,
        **{f"{role}_token": name for role, name in roles.items()},
    }
    stats = _build_stats(
        tokenizer, stream, tally, seconds, corpus.files, vocab_size=vocab_size, longest=longest
    )
    return TrainedSentencePiece(tokenizer, stats, described)


class _SentenceStream:
    """Gives the library its sentences.

    Attributes:
        count: how many were given.
        nbytes: how many bytes they have.
        word_hashes: the hashes of all different words.
        measured: the first of the sentences.
        measured_bytes: how many bytes these have.
        failure: the error that ended the reading: the library may hide it, and go on with what was read.
        read_at: when the reading came to its end.
    """

    def __init__(self, sentences: Iterator[bytes], at_end: Callable[[], None]) -> None:
        self.count = self.nbytes = self.measured_bytes = 0
        self.word_hashes: set[int] = set()
        self.measured: list[bytes] = []
        self.failure: BaseException | None = None
        self.read_at = 0.0
        self._sentences = sentences
        self._at_end = at_end

    def __iter__(self) -> Iterator[bytes]:
        try:
            for sentence in self._sentences:
                self._add_sentence(sentence)
                yield sentence
            self.read_at = time.perf_counter()
            self._at_end()
        except BaseException as error:
            self.failure = error
            raise

    def _add_sentence(self, sentence: bytes) -> None:
        self.count += 1
        self.nbytes += len(sentence)
        self.word_hashes.update(map(hash, sentence.split()))
        if self.measured_bytes < _MEASURED_BYTES:
            self.measured.append(sentence)
            self.measured_bytes += len(sentence)


def _train_with_library(stream: _SentenceStream, options: dict[str, Any]) -> bytes:
    """The model, serialized."""
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
    """What to raise for an error of the library."""
    if not stream.count:
        return TrainingError("the source has no text to train on: no line, or none that was not left out")
    too_small = re.search(r"smaller than required_chars\. (\d+) vs (\d+)", str(error))
    if too_small:
        coverage = options["character_coverage"]
        return InvalidArgumentError(
            f"vocab_size is {too_small[1]}; the special tokens and the characters that make up "
            f"{coverage} of the text need {too_small[2]}: pass vocab_size={too_small[2]} or more, or a "
            f"character_coverage below {coverage}"
        )
    if "(all_chars_count) > (0)" in str(error):
        return TrainingError("the source has no text to train on: it has white space only")
    message = _INTERNAL.sub("", str(error)).strip() or str(error)
    return TrainingError(f"the sentencepiece library could not train: {message}")


def _build_stats(
    tokenizer: SentencePieceTokenizer,
    stream: _SentenceStream,
    tally: Tally,
    seconds: dict[str, float],
    files: tuple[SourceFile, ...],
    *,
    vocab_size: int,
    longest: int,
) -> TrainingStats:
    notes = [f"sentences trained on: {stream.count:,} ({stream.nbytes:,} bytes)", *tally.notes(longest)]
    if stream.measured_bytes < stream.nbytes:
        notes.append(f"bytes_per_token is of the first {stream.measured_bytes:,} bytes of them")
    num_tokens = len(tokenizer.encode_segments(as_segments(stream.measured), sources=False).ids)
    return TrainingStats(
        documents=tally.documents,
        bytes=tally.nbytes,
        unique_words=len(stream.word_hashes),
        seconds=seconds,
        bytes_per_token=stream.measured_bytes / num_tokens if num_tokens else 0.0,
        exhausted=warn_if_exhausted(tokenizer.vocabulary, vocab_size, "more pieces"),
        files=files,
        notes=tuple(notes),
    )


def _collect_named_pieces(
    roles: dict[str, str | None], special_tokens: tuple[str, ...], symbols: Sequence[str]
) -> list[str]:
    """All pieces that are not learned, each once."""
    if not roles["unk"]:
        raise InvalidArgumentError(f"unk_token is {roles['unk']!r}; a model needs that piece, so give a name")
    if isinstance(symbols, (str, bytes)):
        raise InvalidArgumentError(f"user_defined_symbols is a list of names, not {symbols!r}")
    reserved = dict.fromkeys([*filter(None, roles.values()), *special_tokens])
    for name in reserved:
        if not is_encodable(name):
            raise InvalidArgumentError(f"special token {name!r} has a lone surrogate")
        if _BYTE_PIECE.fullmatch(name):
            raise InvalidArgumentError(f"special token {name!r} looks like the piece of a byte")
    for role in ("bos", "eos", "pad"):
        if roles[role] == roles["unk"]:
            raise InvalidArgumentError(f"{role}_token and unk_token are both {roles[role]!r}")
    for i, symbol in enumerate(symbols):
        if not isinstance(symbol, str) or not symbol or not is_encodable(symbol):
            raise InvalidArgumentError(f"user-defined symbol {i} must be a text, not {symbol!r}")
        if symbol in reserved:
            raise InvalidArgumentError(f"user-defined symbol {symbol!r} stands twice, or is a special token")
        if _NOT_IN_SYMBOLS.search(symbol):
            raise InvalidArgumentError(
                f"user-defined symbol {symbol!r} holds white space or U+0000, or looks like a byte, and "
                "would never be found in a text; for a blank write U+2581"
            )
        reserved[symbol] = None
    return list(reserved)


def _build_role_options(roles: dict[str, str | None]) -> dict[str, int | str]:
    """The library's options for the pieces with a role; of two roles for one piece it knows the first."""
    options: dict[str, int | str] = {}
    pieces: list[str] = []
    for role, name in roles.items():
        is_new = name is not None and name not in pieces
        options[f"{role}_id"] = len(pieces) if is_new else -1
        if name is not None and is_new:
            options[f"{role}_piece"] = name
            pieces.append(name)
    return options


def _check_choices(**chosen: str) -> None:
    for (name, value), choices in zip(chosen.items(), (ModelType, Normalization, LongLines), strict=True):
        if value not in get_args(choices):
            raise InvalidArgumentError(f"{name} must be one of {', '.join(get_args(choices))}, not {value!r}")


def _check_vocab_size(vocab_size: int, num_named: int, byte_fallback: bool) -> None:
    minimum = num_named + 256 * byte_fallback + 1
    if check_int("vocab_size", vocab_size) > MAX_ID + 1:
        raise InvalidArgumentError(f"vocab_size must be at most {MAX_ID + 1}, not {vocab_size}")
    if vocab_size < minimum:
        raise InvalidArgumentError(
            f"vocab_size is {vocab_size}; {num_named} special tokens and symbols, "
            f"{'256 bytes' if byte_fallback else 'no bytes'} and one piece need at least {minimum}"
        )
