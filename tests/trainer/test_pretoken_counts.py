"""Tests of `PretokenCounts`: saving, loading, adding, equality."""

from contextlib import suppress
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.rejections import rejects
from tests.support.text_strategies import hard_texts
from tokjax.trainer import count_pretokens, load_pretoken_counts, save_pretoken_counts, train_bpe


def train(source, vocab_size, **options):
    return train_bpe(source, vocab_size=vocab_size, progress=False, **options)


@given(st.lists(hard_texts, max_size=6), st.integers(0, 6))
def test_sum_of_parts_equals_whole(texts, split):
    parts = [count_pretokens(part, progress=False) for part in (texts[:split], texts[split:])]
    assert parts[0] + parts[1] == count_pretokens(texts, progress=False)


def test_save_load_round_trip(corpus, tmp_path):
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


def test_truncated_or_altered_counts_are_rejected(corpus, tmp_path):
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
        with rejects("does not contain pre-token counts"):
            load_pretoken_counts(path)
    np.savez(path, **(dict(np.load(BytesIO(complete))) | {"counts": np.arange(3)}))
    with rejects("was altered"):
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
def test_impossible_counts_are_rejected(tmp_path, name, column):
    path = tmp_path / "counts.npz"
    save_pretoken_counts(count_pretokens(["abc"], progress=False), path)
    np.savez(path, **(dict(np.load(path)) | {name: column}))
    with rejects("was altered|does not contain pre-token counts"):
        load_pretoken_counts(path)


@given(st.data())
def test_damaged_counts_are_rejected_or_equal(tmp_path_factory, corpus, data):
    path = tmp_path_factory.mktemp("counts") / "counts.npz"
    counts = count_pretokens(corpus, progress=False)
    save_pretoken_counts(counts, path)
    stored = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(stored)
    with suppress(tokjax.errors.InvalidArgumentError):  # changes of file names and times are not detected
        assert load_pretoken_counts(path) == counts


def test_sum_of_many_counts(corpus):
    counts = [count_pretokens([text], progress=False) for text in corpus]
    assert sum(counts) == count_pretokens(corpus, progress=False)


def test_equality_ignores_the_order_of_texts(corpus):
    forward, backward = (count_pretokens(texts, progress=False) for texts in (corpus, corpus[::-1]))
    assert forward == backward != count_pretokens(corpus[1:], progress=False)
