"""The trainer against the naive algorithm, and against Hugging Face's."""

import copy
import dataclasses
import logging
import os
import pickle
import signal
from collections import Counter
from io import BytesIO

import loky
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import tokjax
from tests.oracles.incremental import train_incrementally
from tests.oracles.training import split_words, train_naively
from tests.strategies import byte_strings, hard_texts
from tokjax.text import sources
from tokjax.text.patterns import word_splitter
from tokjax.trainer import (
    _pair_table,
    count_pretokens,
    counting,
    load_pretoken_counts,
    merging,
    save_pretoken_counts,
    train_and_pack,
    train_bpe,
)
from tokjax.utf8 import from_characters, to_characters


def train(source, vocab_size, **options):
    return train_bpe(source, vocab_size=vocab_size, progress=False, **options)


def naive_merges(texts, num_tokens, special_tokens=(), pattern="gpt2", **options):
    words = [word for text in texts for word in split_words(text, special_tokens, pattern)]
    return train_naively(words, num_tokens, **options)


@settings(max_examples=300)
@given(st.lists(st.text("ab", max_size=12), max_size=8), st.integers(0, 25), st.integers(1, 3))
def test_tiny_alphabets(texts, num_tokens, min_frequency):
    """Where ties, overlaps and merges that make the same bytes are everywhere."""
    trained = train(texts, 256 + num_tokens, min_frequency=min_frequency)
    assert list(trained.merges) == naive_merges(texts, num_tokens, min_frequency=min_frequency)


@settings(max_examples=300)
@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=14), st.integers(1, 9), max_size=30),
    st.integers(0, 60),
    st.integers(1, 4),
    st.sampled_from(["lexicographic", "huggingface"]),
    st.sampled_from([1, 2, 16]),
    st.sampled_from([1, 3, 512]),
    st.sampled_from([0, 1, 3, 1000]),
)
def test_many_merges_a_step_are_one_at_a_time(words, num_tokens, min_frequency, tie_break, width, most, slow):
    """However many pairs are looked at, or merged, at a time."""
    texts = [word for word, count in words.items() for _ in range(count)]
    options = {"min_frequency": min_frequency, "tie_break": tie_break}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "_LEAST_WIDTH", width)
        patch.setattr(merging, "_MOST_AT_ONCE", most)
        patch.setattr(merging, "_SLOW_STEPS", slow)
        patch.setattr(_pair_table, "_MOST_PROMOTED", most)
        merges = train(texts, 256 + num_tokens, **options).merges
    counts = {word.encode(): count for word, count in words.items()}
    assert list(merges) == train_incrementally(counts, num_tokens, **options)


@given(
    st.lists(hard_texts, max_size=5),
    st.integers(0, 40),
    st.sampled_from(["gpt2", "cl100k", "o200k", r"\S+|\s+"]),
)
def test_any_text(texts, num_tokens, pattern):
    trained = train(texts, 256 + num_tokens, pattern=pattern)
    assert list(trained.merges) == naive_merges(texts, num_tokens, pattern=pattern)


def test_a_corpus(corpus):
    trained = train(corpus * 3, 600)
    expected = naive_merges(corpus * 3, 344)
    assert list(trained.merges) == expected
    assert trained.stats.exhausted == (len(expected) < 344)


def test_two_merges_that_make_the_same_bytes_are_one_token():
    texts = ["abc"] * 5 + ["bc"] * 9 + ["xab"] * 20 + ["zbc"] * 9 + ["ab"] * 3
    trained = train(texts, 300)
    assert len(set(trained.vocab.values())) == len(trained.vocab)


def test_ids_are_bytes_then_special_tokens_then_merges(corpus):
    special = ["<|endoftext|>", "<|pad|>"]
    trained = train(corpus, 270, special_tokens=special)
    assert len(trained.vocab) == 270
    assert [trained.vocab[i] for i in range(256)] == [bytes([i]) for i in range(256)]
    assert [trained.vocab[256 + i] for i in range(2)] == [name.encode() for name in special]
    assert [trained.vocab[258 + i] for i in range(12)] == [left + right for left, right in trained.merges]
    assert list(trained.vocab) == list(range(270))
    tokenizer = trained.tokenizer
    assert tokjax.special_tokens(tokenizer) == {"<|endoftext|>": 256, "<|pad|>": 257}
    assert tokjax.eos_id(tokenizer) == 256
    assert tokjax.pad_id(tokenizer) is None


def test_encoding_the_corpus_follows_the_merges(corpus):
    """Ids by rank equal replaying the merges in their order."""
    trained = train(corpus, 400)
    for word in split_words("".join(corpus), [], "gpt2"):
        parts = [bytes([byte]) for byte in word]
        for left, right in trained.merges:
            i = 0
            while i < len(parts) - 1:
                if (parts[i], parts[i + 1]) == (left, right):
                    parts[i : i + 2] = [left + right]
                i += 1
        ids = tokjax.encode(trained.tokenizer, word)
        assert [trained.vocab[i] for i in ids.tolist()] == parts


def test_the_statistics(corpus):
    text = "<|endoftext|>".join([*corpus, ""])
    trained = train([text], 400, special_tokens=["<|endoftext|>"])
    stats = trained.stats
    nbytes = sum(len(t.encode()) for t in corpus)
    assert stats.documents == len(corpus)
    assert stats.bytes == nbytes
    assert stats.unique_words == len({w for t in corpus for w in split_words(t, [], "gpt2")})
    assert set(stats.seconds) == {"counting", "merging"}
    tokens = sum(len(tokjax.encode(trained.tokenizer, t)) for t in corpus)
    assert stats.bytes_per_token == pytest.approx(nbytes / tokens)
    assert not stats.exhausted


def test_special_tokens_split_and_never_merge():
    text = "ab<|x|>ab<|x|>ab<|x|><|x|>ab" * 10
    trained = train([text], 300, special_tokens=["<|x|>"])
    assert trained.merges == ((b"a", b"b"), (b"ab", b"ab"))
    assert trained.stats.documents == 31
    overlapping = train(["low<|a|><|b|>low"], 300, special_tokens=["<|a|>", "<|a|><|b|>", "<|b|>"])
    assert all(b"<" not in left + right for left, right in overlapping.merges)


def test_a_character_of_several_bytes_is_a_word_that_merges():
    assert train(["é"] * 3, 257).merges == ((b"\xc3", b"\xa9"),)


def test_bytes_that_are_no_text():
    trained = train([b"\xff\xfe\xff\xfe", b"\xff\xfe"], 257)
    assert trained.merges == ((b"\xff", b"\xfe"),)
    assert trained.stats.bytes == 6


def test_the_record_travels(trained):
    assert pickle.loads(pickle.dumps(trained)) == trained
    assert copy.deepcopy(trained) == trained
    assert hash(trained) == hash(pickle.loads(pickle.dumps(trained)))
    assert dataclasses.asdict(trained.stats)["seconds"] == trained.stats.seconds


def test_a_text_with_too_few_pairs(caplog):
    with caplog.at_level(logging.WARNING, "tokjax"):
        trained = train(["ab"], 1000)
    assert trained.stats.exhausted
    assert tokjax.vocab_size(trained.tokenizer) == 257
    assert "the vocabulary has 257 ids, not 1000" in caplog.text
    assert train([], 256).merges == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocab_size": 256, "special_tokens": ["<x>"]}, "256 bytes and 1 special tokens need at least 257"),
        ({"special_tokens": "<x>"}, r"pass \['<x>'\]"),
        ({"special_tokens": ["<x>", "<x>"]}, "'<x>' stands twice"),
        ({"special_tokens": [""]}, "special token 0 must be a name"),
        ({"min_frequency": 0}, "min_frequency must be at least 1"),
        ({"tie_break": "random"}, "tie_break must be"),
        ({"pattern": "("}, "neither a name"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"workers": "2"}, "workers must be an integer, not '2'"),
        ({"vocab_size": "300"}, "vocab_size must be an integer, not '300'"),
        ({"vocab_size": 300.5}, "vocab_size must be an integer"),
        ({"min_frequency": 1.5}, "min_frequency must be an integer"),
        ({"eos_token": "<y>"}, "eos_token is '<y>'"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(tokjax.InvalidArgumentError, match=message):
        train_bpe(["text"], **{"vocab_size": 300, "progress": False} | options)
    with pytest.raises(
        tokjax.InvalidArgumentError, match="text 1 of the source must be str or bytes, not int"
    ):
        train(["text", 3], 300)


class TestFiles:
    @pytest.fixture
    def path(self, tmp_path, corpus):
        path = tmp_path / "corpus.txt"
        path.write_text("<|endoftext|>".join(corpus * 20))
        return path

    def test_are_the_texts_in_them(self, path, corpus):
        special = ["<|endoftext|>"]
        expected = train(corpus * 20, 500, special_tokens=special)
        for source in (path, str(path), [path]):
            assert train(source, 500, special_tokens=special).merges == expected.merges
        twice = train([path, path], 500, special_tokens=special)
        assert twice.merges == expected.merges
        assert twice.stats.documents == 2 * len(corpus) * 20

    @pytest.mark.parametrize("pattern", ["gpt2", r"\S+|\s+"])
    def test_are_counted_alike_in_chunks_of_any_size(self, path, monkeypatch, pattern):
        whole = train(path, 400, special_tokens=["<|endoftext|>"], pattern=pattern)
        for size in (50, 777, 5000):
            monkeypatch.setattr(counting, "_CHUNK_BYTES", size)
            parts = train(path, 400, special_tokens=["<|endoftext|>"], pattern=pattern, workers=1)
            assert parts.merges == whole.merges
            assert parts.stats.documents == whole.stats.documents
            assert parts.stats.bytes == whole.stats.bytes

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
        read = sources.FileChunk.read

        def watched(chunk):
            nonlocal largest
            largest = max(largest, chunk.nbytes)
            return read(chunk)

        monkeypatch.setattr(sources.FileChunk, "read", watched)
        trained = train(path, 300, workers=1)
        assert trained.stats.documents == 1
        assert largest < 2000

    def test_a_worker_that_is_killed(self, path, monkeypatch):
        """A clear error, and no hang."""
        monkeypatch.setattr(counting, "_CHUNK_BYTES", 1000)
        with loky.ProcessPoolExecutor(2) as executor:
            worker = executor.submit(os.getpid).result()
            os.kill(worker, signal.SIGKILL)
            with pytest.raises(tokjax.TrainingError, match="a counting process died"):
                train([path] * 50, 400, special_tokens=["<|endoftext|>"], executor=executor)

    def test_are_counted_alike_in_processes(self, path, monkeypatch):
        monkeypatch.setattr(counting, "_CHUNK_BYTES", 5000)
        here = count_pretokens(path, special_tokens=["<|endoftext|>"], progress=False)
        with loky.ProcessPoolExecutor(2) as executor:
            there = count_pretokens(path, special_tokens=["<|endoftext|>"], progress=False, executor=executor)
        assert here == there


class TestCounts:
    @given(st.lists(hard_texts | byte_strings, max_size=6), st.sampled_from(["gpt2", "o200k", r"\S+|\s+"]))
    def test_are_those_of_the_words_one_by_one(self, texts, pattern):
        special = ["<|endoftext|>"]
        counts = count_pretokens(texts, special_tokens=special, pattern=pattern, progress=False)
        splitter = word_splitter(pattern)
        words = [
            from_characters(word)
            for text in texts
            for part in to_characters(text).split("<|endoftext|>")
            for word in splitter.words(part)
        ]
        assert dict(counts.items()) == Counter(words)
        assert counts.nbytes == sum(map(len, words))

    @given(st.lists(hard_texts, max_size=6), st.integers(0, 6))
    def test_add_up(self, texts, cut):
        parts = [count_pretokens(part, progress=False) for part in (texts[:cut], texts[cut:])]
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

    def test_of_another_pattern_are_refused(self, corpus):
        counts = count_pretokens(corpus, progress=False)
        with pytest.raises(tokjax.InvalidArgumentError, match="counted with pattern='gpt2', not 'o200k'"):
            train(counts, 300, pattern="o200k")
        with pytest.raises(tokjax.InvalidArgumentError, match="counted with special_tokens=\\(\\), not"):
            train(counts, 300, special_tokens=["<x>"])
        with pytest.raises(
            tokjax.InvalidArgumentError, match="don't add up; count both corpora with the same"
        ):
            counts + count_pretokens(corpus, pattern="o200k", progress=False)

    def test_that_were_cut_or_altered_are_refused(self, corpus, tmp_path):
        path = tmp_path / "counts.npz"
        save_pretoken_counts(count_pretokens(corpus, progress=False), path)
        whole = path.read_bytes()
        for altered in (whole[:-30], whole[:100], b"", b"text", whole.replace(b"counts.npy", b"cnuots.npy")):
            path.write_bytes(altered)
            with pytest.raises(tokjax.InvalidArgumentError, match="holds no counts of words"):
                load_pretoken_counts(path)
        np.savez(path, **(dict(np.load(BytesIO(whole))) | {"counts": np.arange(3)}))
        with pytest.raises(tokjax.InvalidArgumentError, match="was altered"):
            load_pretoken_counts(path)


def byte_of_stand_in():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [i for i in range(256) if i not in printable]
    return {chr(i): i for i in printable} | {chr(256 + n): i for n, i in enumerate(others)}


def huggingface_merges(texts, vocab_size):
    """The merges of Hugging Face's trainer, as pairs of bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(texts, trainer)
    import json

    bytes_of = byte_of_stand_in()
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return [tuple(bytes(bytes_of[c] for c in part) for part in pair) for pair in merges]


@settings(max_examples=60)
@given(st.lists(st.text("abé \n", max_size=12), min_size=1, max_size=8), st.integers(0, 25))
def test_the_tie_break_of_huggingface(texts, num_tokens):
    ours = train(texts, 256 + num_tokens, tie_break="huggingface")
    theirs = huggingface_merges(texts, 256 + num_tokens)
    assert list(ours.merges) == theirs


def test_the_tie_break_of_huggingface_on_a_corpus(corpus):
    assert list(train(corpus * 3, 700, tie_break="huggingface").merges) == huggingface_merges(corpus * 3, 700)


class TestTrainAndPack:
    def test_the_two_in_one(self, corpus, tmp_path):
        made = train_and_pack(corpus * 3, tmp_path / "data", vocab_size=400, chunk_tokens=8, progress=False)
        dataset = tokjax.open_dataset(tmp_path / "data", made.trained.tokenizer)
        assert dataset.num_documents == made.dataset.num_documents == len(corpus) * 3
        assert (
            dataset.tokenizer
            == made.trained.tokenizer
            == train(corpus * 3, 400, special_tokens=["<|endoftext|>"]).tokenizer
        )
        assert dataset.chunk_tokens == 8
        texts = [
            tokjax.decode(dataset.tokenizer, dataset.document(i), skip_special_tokens=True) for i in range(3)
        ]
        assert texts == corpus[:3]

    def test_an_iterator_is_read_once(self, corpus, tmp_path):
        from_list = train_and_pack(corpus, tmp_path / "list", vocab_size=300, progress=False)
        from_iterator = train_and_pack(iter(corpus), tmp_path / "iterator", vocab_size=300, progress=False)
        assert from_list.trained.merges == from_iterator.trained.merges
        assert from_list.dataset[:4] == from_iterator.dataset[:4]

    def test_an_iterable_that_gives_one_iterator_only(self, corpus, tmp_path):
        class Once:
            iterator = iter(corpus)

            def __iter__(self):
                return self.iterator

        made = train_and_pack(Once(), tmp_path / "data", vocab_size=300, progress=False)
        assert made.dataset.num_documents == len(corpus)

    def test_special_tokens_in_the_corpus(self, tmp_path):
        texts = ["low<|endoftext|>lower", "low<|pad|>est"]
        options = {"vocab_size": 262, "special_tokens": ["<|pad|>"], "progress": False}
        with pytest.raises(
            tokjax.DisallowedSpecialTokenError, match=r"in document 2, the text holds .*'<\|pad\|>'"
        ):
            train_and_pack(texts, tmp_path / "data", **options)
        made = train_and_pack(texts, tmp_path / "data", allowed_special="all", **options)
        assert made.dataset.num_documents == 3
        dataset = tokjax.open_dataset(tmp_path / "data")
        assert tokjax.pad_id(dataset.tokenizer) is None
        assert 256 in dataset.document(2)
        with pytest.raises(tokjax.InvalidArgumentError, match=r"pass \['<x>'\]"):
            train_and_pack(texts, tmp_path / "other", vocab_size=300, special_tokens="<x>")

    def test_files_are_split_at_the_eos(self, corpus, tmp_path):
        path = tmp_path / "corpus.txt"
        path.write_text("</s>".join(corpus))
        made = train_and_pack(
            path,
            tmp_path / "data",
            vocab_size=300,
            special_tokens=["<pad>"],
            eos_token="</s>",
            progress=False,
        )
        assert made.dataset.num_documents == len(corpus)
        assert tokjax.special_tokens(made.trained.tokenizer) == {"<pad>": 256, "</s>": 257}
        with pytest.raises(tokjax.DatasetExistsError, match="overwrite=True"):
            train_and_pack(path, tmp_path / "data", vocab_size=300, progress=False)


@pytest.mark.slow
def test_a_corpus_against_both_oracles():
    """Five megabytes of the standard library's source, some hundreds of merges."""
    import sysconfig
    from pathlib import Path

    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    texts = [file.read_text("utf-8", errors="replace") for file in files][:150]
    assert list(train(texts, 2256, tie_break="huggingface").merges) == huggingface_merges(texts, 2256)
    assert list(train(texts, 320).merges) == naive_merges(texts, 64)
    counts = count_pretokens(texts, progress=False)
    for tie_break in ("lexicographic", "huggingface"):
        incremental = train_incrementally(dict(counts.items()), 20_000, tie_break=tie_break)
        assert list(train(counts, 20_256, tie_break=tie_break).merges) == incremental
    assert np.isfinite(train(texts, 300).stats.bytes_per_token)
