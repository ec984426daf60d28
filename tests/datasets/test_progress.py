"""Tests of the progress bars of `write_dataset`."""

from contextlib import contextmanager

import pytest

import tokjax
from tests.support.documents import write_texts

TEXTS = [f"{i}: a text of the corpus, one of many." for i in range(50)]
NUM_BYTES = sum(map(len, TEXTS))
TOKENIZER = tokjax.byte_level_bpe({bytes([i]): i for i in range(256)})


@pytest.fixture
def bars(monkeypatch):
    """Arguments and updates of each progress bar: description, total, unit, list of `(amount, note)`."""
    recorded_bars = []

    @contextmanager
    def record_bar(description, total, *, unit, enabled):
        reported = []
        if enabled:
            recorded_bars.append((description, total, unit, reported))
        yield lambda amount, note="": reported.append((amount, note))

    for module in ("shard_writing", "writer"):
        monkeypatch.setattr(f"tokjax.datasets.{module}.show_progress_bar", record_bar)
    monkeypatch.setattr("tokjax.datasets.shard_writing._BATCH_SIZE", NUM_BYTES // 4)
    return recorded_bars


def write(source, path, field=None, **options):
    field = field or tokjax.TokenizedTextField(TOKENIZER)
    return tokjax.write_dataset(source, field, path, **{"progress": True, "workers": 1} | options)


@pytest.mark.parametrize("field", [None, tokjax.RawTextField()])
def test_texts_have_no_known_total(bars, tmp_path, field):
    write(TEXTS, tmp_path / "data", field)
    ((description, total, unit, reported),) = bars
    assert (description, total, unit) == ("packing", None, "bytes")
    assert len(reported) > 1
    assert sum(amount for amount, _ in reported) == NUM_BYTES
    assert reported[-1][1] == f"{NUM_BYTES:,} {'bytes' if field else 'tokens'}"
    bars.clear()
    write(TEXTS, tmp_path / "silent", progress=False)
    assert bars == []


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.txt.gz"])
def test_progress_reaches_the_size_of_the_files(bars, tmp_path, name):
    write_texts(tmp_path / name, TEXTS)
    write(tmp_path / name, tmp_path / "data", separator="<|endoftext|>" if "txt" in name else None)
    ((_, total, _, reported),) = bars
    size = (tmp_path / name).stat().st_size
    assert total == size
    reached = 0
    for amount, _ in reported:
        assert amount >= 0
        reached += amount
    assert reached == size
    if "gz" not in name:  # (a small compressed file is read in one step)
        assert 0 < reported[0][0] < size / 2
    assert reported[-1][1] == f"{NUM_BYTES:,} tokens"


@pytest.mark.parametrize("are_files", [True, False])
def test_resumed_write_counts_finished_shards(bars, tmp_path, are_files):
    source = TEXTS
    if are_files:
        source = write_texts(tmp_path / "a.txt", TEXTS)
    options = {"separator": "<|endoftext|>" if are_files else None, "shard_size": NUM_BYTES // 5}

    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tokjax.datasets.writer.write_manifest", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write(source, tmp_path / "data", **options)
    bars.clear()
    write(source, tmp_path / "data", **options)
    (comparing, total, _, compared), (packing, total_bytes, _, reported) = bars
    finished = sum(len(text) for text in TEXTS[: int(compared[-1][1].split()[0])])
    assert (comparing, packing) == ("comparing", "packing")
    assert compared[-1][1] == "41 documents"
    assert 0 < sum(amount for amount, _ in compared) == total == finished < NUM_BYTES
    assert sum(amount for amount, _ in reported) == (total_bytes if are_files else NUM_BYTES)
    assert reported[0][0] >= finished
    assert reported[-1][1] == f"{NUM_BYTES:,} tokens"


def test_finished_dataset_is_compared(bars, tmp_path):
    for _ in range(2):
        bars.clear()
        write(TEXTS, tmp_path / "data", shard_size=NUM_BYTES // 5)
    ((description, total, unit, reported),) = bars
    assert (description, total, unit) == ("comparing", NUM_BYTES, "bytes")
    assert sum(amount for amount, _ in reported) == NUM_BYTES
    assert reported[-1][1] == "50 documents"
    assert len(reported) == 5
