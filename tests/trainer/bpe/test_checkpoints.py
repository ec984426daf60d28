"""Tests of checkpoints: training that was stopped resumes, with the same result."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.training import limit_segments
from tokjax.trainer import count_pretokens, train_bpe
from tokjax.trainer.bpe import batched_training, checkpoints


class StoppedError(Exception):
    """Raised to stop training."""


def train(source, vocab_size, **options):
    return train_bpe(source, vocab_size=vocab_size, progress=False, **options)


def stop_after(patch, merges, error=StoppedError):
    """Writes a checkpoint after each step, and stops training at the given number of merges."""
    patch.setattr(checkpoints, "_INTERVAL_SECONDS", 0.0)
    save = checkpoints.CheckpointFile.save

    def save_and_stop(self, checkpoint):
        save(self, checkpoint)
        if len(checkpoint.id_merges) >= merges:
            raise error

    patch.setattr(checkpoints.CheckpointFile, "save", save_and_stop)


@get_max_examples(150)
@given(
    texts=st.lists(st.text("abc", max_size=12), max_size=8),
    num_tokens=st.integers(1, 30),
    stops=st.lists(st.integers(1, 30), max_size=3),
    tie_break=st.sampled_from(["lexicographic", "huggingface"]),
    symbols_per_pair=st.sampled_from([0, 2, 16]),
)
def test_resuming_gives_the_same_merges(
    tmp_path_factory, texts, num_tokens, stops, tie_break, symbols_per_pair
):
    path = tmp_path_factory.mktemp("training") / "checkpoint.npz"
    options = {"tie_break": tie_break, "max_token_length": 6}
    for merges in stops:
        with pytest.MonkeyPatch.context() as patch:
            limit_segments(patch, symbols_per_pair)
            stop_after(patch, merges)
            try:
                train(texts, 256 + num_tokens, checkpoint=path, **options)
            except StoppedError:
                assert path.exists()
    resumed, full = (
        train(texts, 256 + num_tokens, checkpoint=checkpoint, **options) for checkpoint in (path, None)
    )
    assert resumed.merges == full.merges
    assert resumed.tokenizer == full.tokenizer
    assert resumed.stats.bytes_per_token == full.stats.bytes_per_token


def test_larger_vocabulary_resumes_smaller(corpus, tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.npz"
    train(corpus, 400, checkpoint=path)
    limits = []
    advance = batched_training._Merger.advance
    monkeypatch.setattr(
        batched_training._Merger, "advance", lambda self, limit: limits.append(limit) or advance(self, limit)
    )
    assert train(corpus, 500, checkpoint=path).merges == train(corpus, 500).merges
    assert limits[0] == 100
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="has 244 new tokens, more than the 44 requested"
    ):
        train(corpus, 300, checkpoint=path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"texts": ["other"]}, "of another training run: its counts is 'sha256:"),
        ({"min_frequency": 2}, "its min_frequency is 1, not 2; pass another path, or delete the file"),
        ({"tie_break": "huggingface"}, "its tie_break is 'lexicographic', not 'huggingface'"),
        ({"special_tokens": ["<x>"]}, "of another training run"),
    ],
)
def test_checkpoint_of_another_training_is_rejected(corpus, tmp_path, change, message):
    path = tmp_path / "checkpoint.npz"
    train(corpus, 300, checkpoint=path)
    texts = change.pop("texts", corpus)
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        train(texts, 300, checkpoint=path, **change)


def test_damaged_checkpoint_is_rejected(corpus, tmp_path):
    path = tmp_path / "checkpoint.npz"
    train(corpus, 300, checkpoint=path)
    data = path.read_bytes()
    for damaged in (data[:-100], data[:2000], b"", b"text", data[:3000] + b"\xff" * 8 + data[3008:]):
        path.write_bytes(damaged)
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match=r"point\.npz is not a checkpoint, or is damaged"
        ):
            train(corpus, 300, checkpoint=path)
    np.savez(path, made=np.zeros(3))
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="is not a checkpoint, or is damaged: .*training"
    ):
        train(corpus, 300, checkpoint=path)


@given(st.data())
def test_every_bit_flip_is_detected(tmp_path_factory, corpus, data):
    path = tmp_path_factory.mktemp("damaged") / "checkpoint.npz"
    expected = train(corpus, 300, checkpoint=path).merges
    stored = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(stored)
    with suppress(
        tokjax.errors.InvalidArgumentError
    ):  # a flip in a name or time of the archive has no effect
        assert train(corpus, 300, checkpoint=path).merges == expected


def test_unwritable_path_is_rejected_first(corpus, tmp_path):
    def fail_if_read():
        raise AssertionError("the corpus was read")
        yield

    for path in (tmp_path, tmp_path / "nowhere" / "c.npz"):
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match="is a directory, or its directory does not exist"
        ):
            train(fail_if_read(), 300, checkpoint=path)


def test_full_disk_does_not_end_training(corpus, tmp_path, monkeypatch, caplog):
    path = tmp_path / "checkpoint.npz"
    monkeypatch.setattr(checkpoints, "_INTERVAL_SECONDS", 0.0)
    save = checkpoints.CheckpointFile.save

    def save_if_empty(self, checkpoint):
        if checkpoint.id_merges:
            raise OSError("no space left on device")
        save(self, checkpoint)

    monkeypatch.setattr(checkpoints.CheckpointFile, "save", save_if_empty)
    assert train(corpus, 300, checkpoint=path).merges == train(corpus, 300).merges
    assert "could not be written: no space left on device" in caplog.text


def test_fingerprint_of_counts_ignores_text_order(corpus):
    counts = [count_pretokens(texts, progress=False) for texts in (corpus, corpus[::-1], corpus[:-1])]
    assert counts[0].fingerprint == counts[1].fingerprint != counts[2].fingerprint


class TestInterrupted:
    def test_without_a_checkpoint(self, corpus, tmp_path, monkeypatch):
        def interrupt(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(batched_training._Merger, "advance", interrupt)
        with pytest.raises(KeyboardInterrupt, match="after 0 of 44 merges; nothing was saved; train with"):
            train(corpus, 300)
        with pytest.raises(KeyboardInterrupt, match=r"c\.npz has 0 of them"):
            train(corpus, 300, checkpoint=tmp_path / "c.npz")

    def test_with_a_checkpoint(self, corpus, tmp_path, monkeypatch):
        path = tmp_path / "checkpoint.npz"
        stop_after(monkeypatch, 20, KeyboardInterrupt)
        with pytest.raises(
            KeyboardInterrupt, match=r"npz has \d\d of them; to resume, train again with the same checkpoint"
        ):
            train(corpus, 400, checkpoint=path)


PROGRAM = """
import sys
from tokjax.trainer import train_bpe
from tokjax.trainer.bpe import checkpoints
checkpoints._INTERVAL_SECONDS = 0.0
texts = [chr(97 + i % 26) * (i % 7) + str(i * i) for i in range(20_000)]
train_bpe(texts, vocab_size=5000, progress=False, checkpoint=sys.argv[1])
"""


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
def test_killed_process_leaves_complete_checkpoint(tmp_path):
    path = tmp_path / "checkpoint.npz"
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(path)])
    while not path.exists():
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.2)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    texts = [chr(97 + i % 26) * (i % 7) + str(i * i) for i in range(20_000)]
    assert train(texts, 1000, checkpoint=None).merges == train(texts, 5000, checkpoint=path).merges[:744]
