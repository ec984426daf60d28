"""Tests of counting pre-tokens: files and texts, threads and processes, invalid arguments."""

import multiprocessing
import os
import signal
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial

import loky
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.datasets.test_executors import RecordingExecutor
from tests.support.text_strategies import byte_strings, hard_texts
from tokjax.core.utf8 import from_characters, to_characters
from tokjax.errors import InvalidArgumentError, TrainingError
from tokjax.pretokenize.patterns import make_pattern_splitter
from tokjax.trainer import count_pretokens, counting, train_bpe


def train(source, vocab_size, **options):
    return train_bpe(source, vocab_size=vocab_size, progress=False, **options)


class TestFiles:
    @pytest.fixture
    def path(self, tmp_path, corpus):
        path = tmp_path / "corpus.txt"
        path.write_text("<|endoftext|>".join(corpus * 20))
        return path

    def test_counts_do_not_depend_on_number_of_workers(self, path, monkeypatch, corpus):
        monkeypatch.setattr(counting, "_CHUNK_BYTES", 5000)
        sequential = train(path, 400, special_tokens=["<|endoftext|>"], workers=1)
        parallel = train(path, 400, special_tokens=["<|endoftext|>"], workers=3)
        from_texts = train(iter(corpus * 20), 400, special_tokens=["<|endoftext|>"], workers=2)
        assert sequential.merges == parallel.merges == from_texts.merges
        assert sequential.stats.bytes == parallel.stats.bytes == from_texts.stats.bytes
        documents = [trained.stats.documents for trained in (sequential, parallel, from_texts)]
        assert documents == [documents[0]] * 3

    def test_killed_worker_raises_instead_of_hanging(self, path, monkeypatch):
        monkeypatch.setattr(counting, "_EXECUTOR_CHUNK_BYTES", 1000)
        with loky.ProcessPoolExecutor(2) as executor:
            worker = executor.submit(os.getpid).result()
            os.kill(worker, signal.SIGKILL)
            with pytest.raises(TrainingError, match="a counting process died.*with a new executor"):
                train([path] * 50, 400, special_tokens=["<|endoftext|>"], executor=executor)

    def test_normalized_files(self, tmp_path, monkeypatch):
        monkeypatch.setattr(counting, "_EXECUTOR_CHUNK_BYTES", 500)
        monkeypatch.setattr(counting, "_CHUNK_BYTES", 500)
        text = "un cafe\u0301 <|endoftext|> ou <|A\u030a|> de\u0301ja\u0300 vu " * 100
        path = tmp_path / "corpus.txt"
        path.write_text(text, encoding="utf-8")
        special = ["<|endoftext|>", "<|A\u030a|>"]
        tokenizer = tokjax.byte_level_bpe(
            {bytes([i]): i for i in range(256)},
            special_tokens={name: 256 + i for i, name in enumerate(special)},
            pattern="qwen2",
        )
        options = {"special_tokens": special, "pattern": "qwen2", "progress": False}
        expected = count_pretokens([tokjax.normalize(tokenizer, text)], **options)
        assert " caf\u00e9".encode() in dict(expected.items())
        normalize = partial(tokjax.normalize, tokenizer)
        for executor in (None, RecordingExecutor()):
            counts = count_pretokens(path, normalize=normalize, executor=executor, **options)
            assert counts == expected


@given(
    st.lists(hard_texts | byte_strings, max_size=6),
    st.sampled_from(["gpt2", "o200k", "whitespace", r"\S+|\s+"]),
)
def test_counts_match_sequential_counting(texts, pattern):
    special = ["<|endoftext|>"]
    counts = count_pretokens(texts, special_tokens=special, pattern=pattern, progress=False)
    splitter = make_pattern_splitter(pattern)
    pretokens = [
        from_characters(pretoken)
        for text in texts
        for part in to_characters(text).split("<|endoftext|>")
        for pretoken in splitter.split(part)
    ]
    assert dict(counts.items()) == Counter(pretokens)
    assert counts.nbytes == sum(map(len, pretokens))


def test_patterns_of_normalizing_tokenizers():
    text = "<e\u0301> e\u0301"
    options = {"special_tokens": ["<e\u0301>"], "progress": False}
    counts = count_pretokens([text], pattern="qwen2", **options)
    assert [*counts.items()] == [(" \u00e9".encode(), 1)]
    for pattern, normalize in (("qwen2", None), ("gpt2", "auto")):
        counts = count_pretokens([text], pattern=pattern, normalize=normalize, **options)
        assert b"".join(pretoken for pretoken, _ in counts.items()) == " e\u0301".encode()


@given(st.lists(st.text(), max_size=6))
def test_normalized_texts(texts):
    counts = count_pretokens(texts, normalize=str.lower, progress=False)
    assert counts == count_pretokens(map(str.lower, texts), progress=False)


class TestWhitespacePattern:
    """Tests of the pattern for text that is normalized after it was counted."""

    def test_pretokens_include_leading_whitespace(self):
        counts = count_pretokens(
            ["a  b.c\n\u3000d \n", " a", "a\x0cb\x85c\x0bd e"], pattern="whitespace", progress=False
        )
        assert dict(counts.items()) == {
            b"a": 1,
            b"  b.c": 1,
            "\n\u3000d".encode(): 1,
            b" \n": 1,
            b" a": 1,
            "a\x0cb\x85c\x0bd".encode(): 1,
            b" e": 1,
        }


def test_invalid_executor_is_rejected():
    with pytest.raises(InvalidArgumentError, match=r"Executor, not 4; for threads pass workers=N"):
        count_pretokens(["a"], executor=4)


@pytest.mark.parametrize(
    ("normalize", "message"),
    [
        ("nfc", "normalize must be a function of a text, None or 'auto', not 'nfc'"),
        (len, "the result of normalize must be str or bytes, not int"),
    ],
)
def test_invalid_normalize_is_rejected(normalize, message):
    with pytest.raises(InvalidArgumentError, match=message):
        count_pretokens(["a"], normalize=normalize, progress=False)


class OddError(Exception):
    """Error that pickles, and does not unpickle."""

    def __init__(self, text, number):
        super().__init__(f"{text} {number}")


def raise_odd_error(text):
    raise OddError(text, 1)


def test_errors_that_do_not_unpickle():
    """They break a pool of processes that sends them, as if a worker had died."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        with pytest.raises(RuntimeError, match="(?s)a worker raised an error .*OddError: low 1"):
            count_pretokens(["low"], normalize=raise_odd_error, executor=executor, progress=False)
        assert count_pretokens(["low"], executor=executor, progress=False).nbytes == 3
    with ThreadPoolExecutor(1) as executor, pytest.raises(OddError, match="low 1"):
        count_pretokens(["low"], normalize=raise_odd_error, executor=executor, progress=False)


def test_roles_are_checked_before_the_corpus_is_read():
    def unreadable_texts():
        raise AssertionError("the corpus was read")
        yield

    with pytest.raises(InvalidArgumentError, match="eos_token is '<eos>', which is not among"):
        train_bpe(unreadable_texts(), vocab_size=300, eos_token="<eos>", progress=False)
    with pytest.raises(InvalidArgumentError, match="has a lone surrogate"):
        train_bpe(unreadable_texts(), vocab_size=300, special_tokens=["\ud800"], progress=False)


def test_progress_bar_reaches_total(corpus, capsys):
    counts = count_pretokens(corpus * 3, progress=True)
    assert f"{len(counts):,} pre-tokens" in capsys.readouterr().err
