"""Counting: from files and texts, in any number of workers, to counts that are saved, loaded and added."""

import os
import signal
from collections import Counter
from contextlib import suppress
from io import BytesIO

import loky
import numpy as np
import pytest
import regex
from hypothesis import given, strategies as st

import tokjax
from tests.support.text_strategies import byte_strings, hard_texts
from tokjax.core.utf8 import from_characters, to_characters
from tokjax.corpus import readers
from tokjax.pretokenize.patterns import PATTERNS, make_pattern_splitter
from tokjax.trainer import count_pretokens, counting, load_pretoken_counts, save_pretoken_counts, train_bpe


def train(source, vocab_size, **options):
    return train_bpe(source, vocab_size=vocab_size, progress=False, **options)


class TestFiles:
    @pytest.fixture
    def path(self, tmp_path, corpus):
        path = tmp_path / "corpus.txt"
        path.write_text("<|endoftext|>".join(corpus * 20))
        return path

    def test_counts_match_the_texts(self, path, corpus):
        special = ["<|endoftext|>"]
        expected = train(corpus * 20, 500, special_tokens=special)
        for source in (path, str(path), [path]):
            assert train(source, 500, special_tokens=special).merges == expected.merges
        twice = train([path, path], 500, special_tokens=special)
        assert twice.merges == expected.merges
        assert twice.stats.documents == 2 * len(corpus) * 20

    @pytest.mark.parametrize("pattern", ["gpt2", r"\S+|\s+"])
    def test_are_counted_alike_in_chunks_of_any_size(self, path, monkeypatch, pattern):
        complete = train(path, 400, special_tokens=["<|endoftext|>"], pattern=pattern)
        for size in (50, 777, 5000):
            monkeypatch.setattr(counting, "_CHUNK_BYTES", size)
            parts = train(path, 400, special_tokens=["<|endoftext|>"], pattern=pattern, workers=1)
            assert parts.merges == complete.merges
            assert parts.stats.documents == complete.stats.documents
            assert parts.stats.bytes == complete.stats.bytes

    def test_are_counted_alike_by_any_number_of_workers(self, path, monkeypatch, corpus):
        monkeypatch.setattr(counting, "_CHUNK_BYTES", 5000)
        alone = train(path, 400, special_tokens=["<|endoftext|>"], workers=1)
        together = train(path, 400, special_tokens=["<|endoftext|>"], workers=3)
        texts = train(iter(corpus * 20), 400, special_tokens=["<|endoftext|>"], workers=2)
        assert alone.merges == together.merges == texts.merges
        assert alone.stats.bytes == together.stats.bytes == texts.stats.bytes
        assert alone.stats.documents == together.stats.documents == texts.stats.documents

    def test_without_separators_memory_is_still_bounded(self, tmp_path, monkeypatch):
        path = tmp_path / "plain.txt"
        path.write_text("the quick brown fox jumps over the lazy dog\n" * 2000)
        monkeypatch.setattr(counting, "_CHUNK_BYTES", 1000)
        largest = 0
        read = readers.FileChunk.read

        def watched(chunk):
            nonlocal largest
            largest = max(largest, chunk.nbytes)
            return read(chunk)

        monkeypatch.setattr(readers.FileChunk, "read", watched)
        trained = train(path, 300, workers=1)
        assert trained.stats.documents == 1
        assert largest < 2000

    def test_a_worker_that_is_killed(self, path, monkeypatch):
        """A clear error, and no hang."""
        monkeypatch.setattr(counting, "_EXECUTOR_CHUNK_BYTES", 1000)
        with loky.ProcessPoolExecutor(2) as executor:
            worker = executor.submit(os.getpid).result()
            os.kill(worker, signal.SIGKILL)
            with pytest.raises(
                tokjax.errors.TrainingError, match="a counting process died.*with a new executor"
            ):
                train([path] * 50, 400, special_tokens=["<|endoftext|>"], executor=executor)

    def test_are_counted_alike_in_processes(self, path, monkeypatch):
        monkeypatch.setattr(counting, "_EXECUTOR_CHUNK_BYTES", 5000)
        here = count_pretokens(path, special_tokens=["<|endoftext|>"], progress=False)
        with loky.ProcessPoolExecutor(2) as executor:
            present = count_pretokens(
                path, special_tokens=["<|endoftext|>"], progress=False, executor=executor
            )
        assert here == present


class TestCounts:
    @given(st.lists(hard_texts | byte_strings, max_size=6), st.sampled_from(["gpt2", "o200k", r"\S+|\s+"]))
    def test_counts_match_sequential_counting(self, texts, pattern):
        special = ["<|endoftext|>"]
        counts = count_pretokens(texts, special_tokens=special, pattern=pattern, progress=False)
        splitter = make_pattern_splitter(pattern)
        words = [
            from_characters(pretoken)
            for text in texts
            for part in to_characters(text).split("<|endoftext|>")
            for pretoken in splitter.split(part)
        ]
        assert dict(counts.items()) == Counter(words)
        assert counts.nbytes == sum(map(len, words))

    @given(st.lists(hard_texts, max_size=6), st.integers(0, 6))
    def test_counts_add_up(self, texts, truncated):
        parts = [count_pretokens(part, progress=False) for part in (texts[:truncated], texts[truncated:])]
        assert parts[0] + parts[1] == count_pretokens(texts, progress=False)

    def test_are_the_same_after_saving(self, corpus, tmp_path):
        counts = count_pretokens(
            [*corpus, "\0" * 200, "x" * 300],
            special_tokens=["<|endoftext|>"],
            pattern="o200k",
            progress=False,
        )
        for path in (tmp_path / "a.npz", tmp_path / "b.npz"):
            save_pretoken_counts(counts, path)
            counts = load_pretoken_counts(path)
        assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
        assert (
            train(counts, 400).merges
            == train(
                [*corpus, "\0" * 200, "x" * 300], 400, special_tokens=["<|endoftext|>"], pattern="o200k"
            ).merges
        )

    def test_counts_with_another_pattern_are_rejected(self, corpus):
        counts = count_pretokens(corpus, progress=False)
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match="counted with pattern='gpt2', not 'o200k'"
        ):
            train(counts, 300, pattern="o200k")
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match="counted with special_tokens=\\(\\), not"
        ):
            train(counts, 300, special_tokens=["<x>"])
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match="don't add up; count both corpora with the same"
        ):
            counts + count_pretokens(corpus, pattern="o200k", progress=False)

    def test_truncated_or_altered_counts_are_rejected(self, corpus, tmp_path):
        path = tmp_path / "counts.npz"
        save_pretoken_counts(count_pretokens(corpus, progress=False), path)
        complete = path.read_bytes()
        for altered in (
            complete[:-30],
            complete[:100],
            b"",
            b"text",
            complete.replace(b"counts.npy", b"cnuots.npy"),
        ):
            path.write_bytes(altered)
            with pytest.raises(tokjax.errors.InvalidArgumentError, match="holds no counts of words"):
                load_pretoken_counts(path)
        np.savez(path, **(dict(np.load(BytesIO(complete))) | {"counts": np.arange(3)}))
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="was altered"):
            load_pretoken_counts(path)

    @pytest.mark.parametrize(
        ("name", "column"),
        [
            ("counts", np.full(1, -1)),
            ("counts", np.ones(1)),
            ("counts", np.int64(1)),
            ("data", np.arange(97, 100)),
            ("lengths", np.zeros(1, np.int64)),
            ("about", np.frombuffer(b"[]", np.uint8)),
            ("about", np.frombuffer(b'{"version": 1}', np.uint8)),
        ],
    )
    def test_impossible_counts_are_rejected(self, tmp_path, name, column):
        path = tmp_path / "counts.npz"
        save_pretoken_counts(count_pretokens(["abc"], progress=False), path)
        np.savez(path, **(dict(np.load(path)) | {name: column}))
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="was altered|holds no counts of words"):
            load_pretoken_counts(path)

    @given(st.data())
    def test_damaged_counts_are_rejected_or_equal(self, tmp_path_factory, corpus, data):
        path = tmp_path_factory.mktemp("counts") / "counts.npz"
        counts = count_pretokens(corpus, progress=False)
        save_pretoken_counts(counts, path)
        stored = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 3))):
            stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(stored)
        with suppress(tokjax.errors.InvalidArgumentError):  # (not where a name or time is hit)
            assert load_pretoken_counts(path) == counts

    def test_that_are_summed(self, corpus):
        counts = [count_pretokens([text], progress=False) for text in corpus]
        assert sum(counts) == count_pretokens(corpus, progress=False)

    def test_that_are_equal_have_one_hash(self, corpus):
        present, back = (count_pretokens(texts, progress=False) for texts in (corpus, corpus[::-1]))
        assert present == back
        assert len({present, back}) == 1
        assert present != count_pretokens(corpus[1:], progress=False)


class TestWhiteSpace:
    """The pattern by which words are counted that are to be normalised afterwards."""

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

    @given(texts=st.lists(st.one_of(hard_texts, byte_strings), max_size=4))
    def test_any_texts_as_by_the_expression(self, texts):
        counts = count_pretokens(texts, pattern="whitespace", progress=False)
        expression = regex.compile(PATTERNS["whitespace"])
        words = Counter(
            from_characters(pretoken)
            for text in texts
            for pretoken in expression.findall(to_characters(text))
        )
        assert dict(counts.items()) == words

    def test_chunk_boundaries_preserve_pretokens(self, tmp_path, monkeypatch, corpus):
        path = tmp_path / "corpus.txt"
        path.write_text("\n".join(corpus * 20))
        complete = count_pretokens(path, pattern="whitespace", progress=False)
        for size in (50, 777):
            monkeypatch.setattr(counting, "_CHUNK_BYTES", size)
            assert count_pretokens(path, pattern="whitespace", progress=False, workers=2) == complete


def test_invalid_executor_is_rejected():
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match=r"Executor, not 4; for threads pass workers=N"
    ):
        count_pretokens(["a"], executor=4)


def test_roles_are_checked_before_the_corpus_is_read():
    def never():
        raise AssertionError("the corpus was read")
        yield

    with pytest.raises(tokjax.errors.InvalidArgumentError, match="eos_token is '<eos>', which is not among"):
        train_bpe(never(), vocab_size=300, eos_token="<eos>", progress=False)
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="has a lone surrogate"):
        train_bpe(never(), vocab_size=300, special_tokens=["\ud800"], progress=False)


def test_progress_bar_reaches_total(corpus, capsys):
    counts = count_pretokens(corpus * 3, progress=True)
    assert f"{len(counts):,} words" in capsys.readouterr().err
