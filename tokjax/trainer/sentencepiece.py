"""Training of SentencePiece models with the sentencepiece library, on the lines of a corpus.

The library pulls sentences from generators that read, clean and measure them, and trains when they end. It
silently drops long lines and lines with U+2585. Here long lines are split, U+2585 ends a line, and every
change to the text is counted in `_Text` and reported in the notes of training.
"""

from __future__ import annotations

import io
import itertools
import random
import re
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from tokjax._util.checks import check_bool, check_choice, check_float, check_int, check_names
from tokjax._util.display import show_progress_bar
from tokjax._util.threads import resolve_num_threads
from tokjax.bpe.chunks import as_segments
from tokjax.core.utf8 import is_encodable, to_characters, to_utf8
from tokjax.core.vocabulary import MAX_ID, check_role_names
from tokjax.corpus.sources import open_corpus
from tokjax.errors import InvalidArgumentError, TrainingError
from tokjax.models.sentencepiece import SentencePieceTokenizer, sentencepiece
from tokjax.models.sentencepiece_files import ModelType
from tokjax.pretokenize.special_tokens import check_special_names, split_ordinary_text
from tokjax.trainer.results import Trained, TrainingStats, record_options, warn_if_exhausted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tokjax._util.display import AdvanceProgress
    from tokjax.core.utf8 import Text
    from tokjax.corpus.readers import Chunk
    from tokjax.corpus.sources import Source

Normalization = Literal["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"]

_ERRORS_ONLY = 2
_BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")
_INTERNAL_DETAILS = re.compile(r"INTERNAL: |\S*\.cc\(\d+\) |\[[^]]*\] ?")
_SAMPLE_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 22
_RESERVED = "\u2585".encode()  # reserved by the library, which drops lines that contain it
_LINE_ENDS = re.compile(b"\r*\n|" + _RESERVED)
_INVALID = re.compile("[\udc80-\udcff]")
_LIBRARY_OPTIONS = (
    "model_type",
    "vocab_size",
    "character_coverage",
    "byte_fallback",
    "add_dummy_prefix",
    "remove_extra_whitespaces",
    "split_digits",
    "user_defined_symbols",
)
"""Options that have the same names in the library."""


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
    max_sentences: int | None = None,
    workers: int | None = None,
    progress: bool = True,
    bos_token: str | None = None,
    eos_token: str | None = "</s>",
    pad_token: str | None = None,
    unk_token: str = "<unk>",
) -> Trained[SentencePieceTokenizer]:
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
        split_digits: whether each digit is a separate piece, as in the models of Llama 2 and Gemma.
        max_sentence_bytes: maximum length of a sentence, in UTF-8 bytes. Longer lines are split at
            whitespace near the limit, or else between two characters.
        max_sentences: number of sentences to train on, a random sample that is the same in each run; `None`
            for all sentences. It is `input_sentence_size` of the library.
        workers: number of threads of the library; `None` for 16. The default does not depend on the machine,
            because the order in which a unigram model adds scores depends on the number of threads.
        progress: whether to show the progress of reading, and that training runs, on standard error.
        bos_token: name of the control piece that begins a text; `None` for no such piece.
        eos_token: name of the control piece that ends a text; `None` for no such piece.
        pad_token: name of the control piece that pads a batch; `None` for no such piece. It may be the same
            as `bos_token` or `eos_token`.
        unk_token: name of the piece that encodes unknown text.

    Returns:
        The tokenizer and training statistics. The ids are those of the UNK, BOS, EOS and PAD pieces that
        exist, then of the other special tokens, the user-defined symbols, the 256 bytes (with
        `byte_fallback`), and all other pieces. To use the model in other programs, write the bytes
        `tokenizer.model_proto` to a `.model` file. `stats.num_unique_pretokens` is the number of distinct
        strings between whitespace. `stats.bytes_per_token` is measured on the first MiB of the sentences.

    Raises:
        InvalidArgumentError: an option or the source is invalid.
        TrainingError: the source has no text, or the library fails.

    >>> trained = train_sentencepiece(["low lower lowest"], vocab_size=12, progress=False)
    >>> trained.tokenizer.vocabulary.special
    mappingproxy({'<unk>': 0, '</s>': 1})
    """
    workers = 16 if workers is None else resolve_num_threads(workers, "workers")
    user_defined_symbols = check_names("user_defined_symbols", user_defined_symbols)
    options = record_options("sentencepiece", locals()) | {"workers": workers}
    roles = {"unk": unk_token, "bos": bos_token, "eos": eos_token, "pad": pad_token}
    special = tuple(check_special_names(special_tokens))
    named_pieces = _collect_named_pieces(roles, special, user_defined_symbols)
    check_choice("model_type", model_type, get_args(ModelType))
    check_choice("normalization", normalization, get_args(Normalization))
    for name in ("byte_fallback", "add_dummy_prefix", "remove_extra_whitespaces", "split_digits"):
        check_bool(name, options[name])
    _check_vocab_size(vocab_size, len(named_pieces), byte_fallback)
    check_float("character_coverage", character_coverage, minimum=0.98, maximum=1)
    max_bytes = check_int("max_sentence_bytes", max_sentence_bytes, minimum=16)
    maximum = None if max_sentences is None else check_int("max_sentences", max_sentences, minimum=1)
    library_options = {name: options[name] for name in _LIBRARY_OPTIONS} | {
        "normalization_rule_name": normalization,
        "control_symbols": [name for name in special if name not in roles.values()],
        "max_sentence_length": max_bytes,
        "num_threads": workers,
        "hard_vocab_limit": False,
        **_build_role_options(roles),
    }
    corpus = open_corpus(source, ("\n", *special), _CHUNK_BYTES, safe_splits=False)
    text, seconds, start = _Text(max_bytes), {}, time.perf_counter()
    with ExitStack() as progress_display:
        advance = progress_display.enter_context(
            show_progress_bar("reading", corpus.nbytes, unit="bytes", enabled=progress)
        )

        def iter_sentences() -> Iterator[bytes]:
            sentences = _read_sentences(corpus.chunks, special, text, advance)
            try:
                yield from map(text.measure, sentences if maximum is None else _sample(sentences, maximum))
            except BaseException as error:
                text.failure = error
                raise
            seconds["reading"] = time.perf_counter() - start
            progress_display.close()
            bar = show_progress_bar("training", None, unit="models", enabled=progress)
            progress_display.enter_context(bar)

        proto = _train_with_library(iter_sentences(), text, library_options)
    seconds["training"] = time.perf_counter() - start - seconds["reading"]
    tokenizer = sentencepiece(proto, bos_token=bos_token, eos_token=eos_token, pad_token=pad_token)
    num_tokens = len(tokenizer.encode_segments(as_segments(text.sample), sources=False).ids)
    stats = TrainingStats(
        documents=text.documents,
        bytes=text.nbytes,
        num_unique_pretokens=len(text.word_hashes),
        seconds=seconds,
        bytes_per_token=text.sample_nbytes / num_tokens if num_tokens else 0.0,
        exhausted=warn_if_exhausted(tokenizer.vocabulary, options["vocab_size"], "more pieces"),
        files=corpus.files,
        notes=tuple(text.make_notes()),
    )
    return Trained(tokenizer, stats, options | {"special_tokens": special})


@dataclass
class _Text:
    """Measures of the text that is read, and the changes to it.

    Attributes:
        max_bytes: maximum length of a line in bytes.
        documents: number of non-empty segments of text between special tokens and ends of texts.
        nbytes: number of bytes of text, without special tokens.
        changes: notes on changes of the text, with the number of each.
        num_sentences: number of sentences that the library got.
        sentence_nbytes: number of bytes of these sentences.
        word_hashes: hashes of the distinct strings between whitespace.
        sample: first sentences, on which bytes per token is measured.
        sample_nbytes: number of bytes of `sample`.
        failure: error of the source. The library may hide it, and train on the sentences so far.
    """

    max_bytes: int
    documents: int = 0
    nbytes: int = 0
    changes: Counter[str] = field(default_factory=Counter)
    num_sentences: int = 0
    sentence_nbytes: int = 0
    word_hashes: set[int] = field(default_factory=set)
    sample: list[bytes] = field(default_factory=list)
    sample_nbytes: int = 0
    failure: BaseException | None = None

    def measure(self, sentence: bytes) -> bytes:
        """Measures a sentence for the library, and returns it."""
        self.num_sentences += 1
        self.sentence_nbytes += len(sentence)
        self.word_hashes.update(map(hash, sentence.split()))
        if self.sample_nbytes < _SAMPLE_BYTES:
            self.sample.append(sentence)
            self.sample_nbytes += len(sentence)
        return sentence

    def make_notes(self) -> Iterator[str]:
        """Yields a note on the sentences, and one for each kind of change that was made."""
        yield f"sentences trained on: {self.num_sentences:,} ({self.sentence_nbytes:,} bytes)"
        yield from (f"{change}: {count:,}" for change, count in self.changes.items() if count)
        if self.sample_nbytes < self.sentence_nbytes:
            yield f"bytes_per_token is measured on their first {self.sample_nbytes:,} bytes"


def _read_sentences(
    chunks: Iterable[Chunk], special_tokens: tuple[str, ...], text: _Text, advance: AdvanceProgress
) -> Iterator[bytes]:
    """Yields the non-empty lines of a corpus, in UTF-8. One chunk is in memory at a time.

    Args:
        chunks: chunks of the corpus.
        special_tokens: names of special tokens. The text is split at them, and they are left out.
        text: measures that this function updates.
        advance: callback for the number of bytes of each chunk that was read.
    """
    names = frozenset(special_tokens)
    for chunk in chunks:
        for part, starts_document in chunk.read():
            segments = split_ordinary_text(part, names)
            text.documents -= bool(segments[0]) and not starts_document  # counted with the previous chunk
            for segment in [each for each in segments if each]:
                text.documents += 1
                yield from _iter_lines(_clean_text(segment, text), text)
        advance(chunk.read_nbytes)


def _sample(sentences: Iterator[bytes], maximum: int) -> list[bytes]:
    """Returns a uniform random sample of sentences, the same in each run (reservoir sampling)."""
    sample = list(itertools.islice(sentences, maximum))
    rng = random.Random(0)
    for num_read, sentence in enumerate(sentences, maximum + 1):
        if (index := rng.randrange(num_read)) < maximum:
            sample[index] = sentence
    return sample


def _split_line(line: bytes, max_bytes: int) -> Iterator[bytes]:
    r"""Yields parts of a line of at most `max_bytes` bytes each.

    A part ends at the last space or tab of the next `max_bytes` bytes, which is left out like the end of a
    line. If the second half of these bytes has no space or tab, the part ends between two characters.

    >>> list(_split_line(b"one two three", 8)), list(_split_line("ééé".encode(), 5))
    ([b'one two', b'three'], [b'\xc3\xa9\xc3\xa9', b'\xc3\xa9'])
    """
    start = 0
    while len(line) - start > max_bytes:
        limit = start + max_bytes
        window = (start + max_bytes // 2, limit + 1)
        stop = max(line.rfind(b" ", *window), line.rfind(b"\t", *window))
        if stop >= 0:
            yield line[start:stop]
            start = stop + 1
            continue
        while line[limit] & 0xC0 == 0x80:  # a continuation byte: do not split inside a character
            limit -= 1
        yield line[start:limit]
        start = limit
    yield line[start:]


def _clean_text(segment: Text, text: _Text) -> bytes:
    """Returns a segment as valid UTF-8, with U+FFFD for surrogates and invalid bytes."""
    data = to_utf8(segment)
    text.nbytes += len(data)
    replaced = "lone surrogates and invalid UTF-8 bytes, replaced by U+FFFD"
    if isinstance(segment, str):
        if not is_encodable(segment):
            text.changes[replaced] += to_characters(segment).count("\ufffd") - segment.count("\ufffd")
        return data
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        valid, count = _INVALID.subn("\ufffd", to_characters(data))
        text.changes[replaced] += count
        return valid.encode("utf-8")
    return data


def _iter_lines(data: bytes, text: _Text) -> Iterator[bytes]:
    """Yields the non-empty lines of a text, and splits those over the limit."""
    text.changes["U+0000 characters, which can't be in a piece"] += data.count(b"\0")
    reserved = "U+2585 characters, reserved by the library, treated as line ends"
    text.changes[reserved] += data.count(_RESERVED)
    for line in filter(None, _LINE_ENDS.split(data)):
        if len(line) <= text.max_bytes:
            yield line
        else:
            text.changes[f"lines over {text.max_bytes:,} bytes, which were split"] += 1
            yield from filter(None, _split_line(line, text.max_bytes))


def _train_with_library(sentences: Iterator[bytes], text: _Text, options: dict[str, Any]) -> bytes:
    """Trains with the library, and returns the serialized model."""
    from sentencepiece import SentencePieceTrainer  # noqa: PLC0415 (slow to import)

    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=sentences, model_writer=model, minloglevel=_ERRORS_ONLY, **options
        )
    except Exception as error:
        if text.failure is None:
            raise _translate_error(error, text.num_sentences, options) from error
    if text.failure is not None:
        raise text.failure
    return model.getvalue()


def _translate_error(error: Exception, num_sentences: int, options: dict[str, Any]) -> Exception:
    """Returns the error of tokjax to raise for an error of the library."""
    if not num_sentences:
        return TrainingError("the source has no text to train on: it has no lines, or all were left out")
    too_small = re.search(r"smaller than required_chars\. (\d+) vs (\d+)", str(error))
    if too_small:
        coverage = options["character_coverage"]
        return InvalidArgumentError(
            f"vocab_size is {too_small[1]}; the special tokens and the characters that cover {coverage} of "
            f"the text need {too_small[2]}: pass vocab_size={too_small[2]} or more, or a "
            f"character_coverage below {coverage}"
        )
    if re.search(r"\(all_chars_count\) > \(0\)|!required_chars_\.empty\(\)", str(error)):
        return TrainingError("the source has no text to train on: it has only whitespace")
    message = _INTERNAL_DETAILS.sub("", str(error)).strip() or str(error)
    return TrainingError(f"the sentencepiece library could not train: {message}")


def _collect_named_pieces(
    roles: dict[str, str | None], special_tokens: tuple[str, ...], symbols: Sequence[str]
) -> list[str]:
    """Checks the names of roles, special tokens and symbols, and returns them without duplicates."""
    check_role_names(roles)
    if not roles["unk"]:
        raise InvalidArgumentError(f"unk_token is {roles['unk']!r}; a model needs that piece: pass its name")
    for role in ("bos", "eos", "pad"):
        if roles[role] == roles["unk"]:
            raise InvalidArgumentError(f"{role}_token and unk_token are both {roles[role]!r}")
    reserved = dict.fromkeys([*filter(None, roles.values()), *special_tokens])
    for name in (*reserved, *symbols):
        if not name or not is_encodable(name):
            raise InvalidArgumentError(f"{name!r} must be a non-empty string without surrogates")
        if _BYTE_PIECE.fullmatch(name):
            raise InvalidArgumentError(f"{name!r} is the name of a byte piece, and can't be another piece")
    for symbol in symbols:
        if symbol in reserved:
            raise InvalidArgumentError(f"user-defined symbol {symbol!r} is a duplicate, or a special token")
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
