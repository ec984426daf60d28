"""Tests of shards that are opened before a loader needs them."""

import gc
import threading
import time
import uuid

import numpy as np
import pytest

import tokjax
from tests.support.counted_files import NUM_SHARDS, TOKENS, list_downloads
from tests.support.loader_cases import FIELDS, LOADERS, OTHER_TEXTS, TEXTS, TOKENIZER, are_equal
from tests.support.variants import mark_slow_except
from tokjax.datasets.dataset import Dataset

fsspec = pytest.importorskip("fsspec")

IN_ORDER = {"batch_size": 5, "documents": False, "shuffle": False}
"""Options of a loader of 25 steps, of which three are read from a shard."""


@pytest.fixture(scope="module")
def urls():
    """URLs of datasets of all fields."""
    root = f"memory://{uuid.uuid4().hex}"
    urls = {}
    for name, field in FIELDS.items():
        for texts, key in ((TEXTS, name), (OTHER_TEXTS, f"{name} others")):
            urls[key] = f"{root}/{key.replace(' ', '-')}"
            tokjax.write_dataset(texts, field, urls[key], shard_size=300)
    return urls


def open_all(urls, **options):
    return {name: tokjax.open_dataset(url, TOKENIZER, **options) for name, url in urls.items()}


def wait_until(condition):
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("not within 10 seconds")


def wait_for_downloads(names):
    wait_until(lambda: len(list_downloads()) >= len(names))
    time.sleep(0.1)  # (a wrong download would follow)
    assert list_downloads() == names


@pytest.mark.parametrize("is_mapped", [False, True])
@pytest.mark.parametrize("num_shards", [1, 3])
def test_next_shards_are_downloaded(url, counted, num_shards, is_mapped):
    loader = tokjax.PackedTokenLoader(tokjax.open_dataset(url, fetch_ahead=num_shards), **IN_ORDER)
    batches = iter(loader.map(tokjax.datasets.TokenChunks._asdict) if is_mapped else loader)
    assert list_downloads() == []
    for shard in (0, 0, 0, 1):  # (the last one that a batch needs)
        next(batches)
        wait_for_downloads(TOKENS[: shard + 1 + num_shards])
    rest = list(batches)
    assert len(rest) == 21
    assert list_downloads() == TOKENS
    assert not batches._fetcher._thread.is_alive()


def test_fetching_goes_on_from_a_restored_position(url, counted):
    loader = tokjax.PackedTokenLoader(tokjax.open_dataset(url, fetch_ahead=1), **IN_ORDER)
    start = loader.get_state()
    loader.step = 13
    later = loader.get_state()
    batches = iter(loader)
    next(batches)
    wait_for_downloads([TOKENS[4], TOKENS[5]])
    batches.set_state(start)
    next(batches)
    wait_for_downloads([TOKENS[i] for i in (4, 5, 0, 1)])
    loader.set_state(later)
    for _ in range(3):  # (the last of them needs shard 5)
        next(batches)
    wait_for_downloads([TOKENS[i] for i in (4, 5, 0, 1, 6)])
    loader.set_state(start)
    for _ in range(4):
        next(batches)
    wait_for_downloads([TOKENS[i] for i in (4, 5, 0, 1, 6, 2)])
    assert len([*batches]) == 21
    assert not batches._fetcher._thread.is_alive()


def test_fetching_starts_again_after_the_end(url, counted):
    loader = tokjax.PackedTokenLoader(tokjax.open_dataset(url, fetch_ahead=1), **IN_ORDER)
    start = loader.get_state()
    loader.step = 22
    batches = iter(loader)
    assert len([*batches]) == 3
    thread = batches._fetcher._thread
    assert not thread.is_alive()
    batches.set_state(start)
    downloaded = list_downloads()
    next(batches)
    wait_for_downloads([*downloaded, *TOKENS[:2]])
    batches.close()
    assert batches._fetcher._thread is not thread
    assert not batches._fetcher._thread.is_alive()


def test_old_download_ends_after_a_restored_position(url, counted, monkeypatch):
    """The new thread does not wait for the download that the old one is in."""
    is_waiting, is_released = [], []

    def wait(name):
        if name == TOKENS[5]:
            is_waiting.append(name)
            wait_until(lambda: is_released)

    monkeypatch.setattr(counted, "before", staticmethod(wait))
    loader = tokjax.PackedTokenLoader(tokjax.open_dataset(url, fetch_ahead=2), **IN_ORDER)
    start = loader.get_state()
    loader.step = 13
    batches = iter(loader)
    next(batches)
    wait_until(lambda: is_waiting)
    old = batches._fetcher._thread
    batches.set_state(start)
    next(batches)
    wait_for_downloads([TOKENS[i] for i in (4, 0, 1, 2)])
    assert old.is_alive()
    is_released.append(True)
    old.join(10)
    assert not old.is_alive()
    wait_for_downloads([TOKENS[i] for i in (4, 0, 1, 2, 5)])
    batches.close()


def test_random_access_does_not_fetch_ahead(url, counted):
    loader = tokjax.PackedTokenLoader(tokjax.open_dataset(url, fetch_ahead=2), **IN_ORDER)
    assert loader[9].ids.shape == loader.batch_at(9).ids.shape
    time.sleep(0.1)
    assert set(list_downloads()) <= {TOKENS[2], TOKENS[3]}


def test_two_datasets_of_which_one_is_local(urls, tmp_path):
    tokjax.write_dataset(["x" * 1500], FIELDS["packed"], tmp_path / "data")
    local = tokjax.open_dataset(tmp_path / "data")
    loaders = [
        tokjax.PackedTokenLoader([tokjax.open_dataset(urls["packed"], fetch_ahead=n), local], batch_size=5)
        for n in (0, 2)
    ]
    assert are_equal(*map(list, loaders))


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("shuffle", mark_slow_except([True, False], [True]))
def test_batches_are_equal(urls, name, shuffle, tmp_path):
    expected = list(LOADERS[name](open_all(urls), shuffle=shuffle))
    files = [record for each in open_all(urls).values() for record in each.manifest.all_files.values()]
    limit = max(record.nbytes for record in files)
    limited = open_all(urls, fetch_ahead=2, download_dir=tmp_path, download_bytes=limit)
    for datasets in (limited, open_all(urls, read_ranges=True), open_all(urls, fetch_ahead=1)):
        batches = list(LOADERS[name](datasets, shuffle=shuffle))
        assert len(batches) == len(expected)
        assert all(map(are_equal, batches, expected))
    assert 0 < sum(path.stat().st_size for path in tmp_path.glob("*/*")) <= limit


@pytest.mark.parametrize("name", [*LOADERS, "mixture"])
def test_shards_of_a_step(urls, name, monkeypatch):
    datasets = open_all(urls)
    if name == "mixture":
        sources = {"a": datasets["tokenized"], "b": datasets["tokenized others"]}
        weights = {"a": 2, "b": 1}
        loader = tokjax.PlannedLoader(sources, batch_size=6, block_size=64, weights=weights)
    else:
        loader = LOADERS[name](datasets)
    opened, open_shard = set(), Dataset._open

    def record(self, shard, column):
        opened.add((loader.datasets.index(self), shard))
        return open_shard(self, shard, column)

    monkeypatch.setattr(Dataset, "_open", record)
    for shard in (loader, loader.shard(1, 2)):
        for step in range(9):
            opened.clear()
            shard.batch_at(step)
            assert set(shard._find_shards(step)) == opened


def test_errors_are_raised_by_the_batch_that_needs_the_shard(url, counted, monkeypatch):
    failed = []

    def fail(name):
        if name == TOKENS[1]:
            failed.append(name)
            raise ConnectionResetError("reset by the peer")

    dataset = tokjax.open_dataset(url, fetch_ahead=1)
    loader = tokjax.PackedTokenLoader(dataset, **IN_ORDER)
    monkeypatch.setattr(counted, "before", staticmethod(fail))
    batches = iter(loader)
    for _ in range(3):
        next(batches)
        wait_until(lambda: failed == [TOKENS[1]])
    with pytest.raises(ConnectionResetError, match="reset by the peer"):
        next(batches)
    assert loader.step == 3
    monkeypatch.setattr(counted, "before", staticmethod(lambda _: None))
    assert len(list(batches)) == 22
    assert sorted(list_downloads()) == TOKENS


def test_missing_shard(url, counted):
    name, copy = TOKENS[1], f"memory://{uuid.uuid4().hex}"
    system, root = fsspec.core.url_to_fs(url)
    for path in system.ls(root, detail=False):
        if name not in path:
            system.pipe_file(
                f"/{copy.removeprefix('memory://')}/{path.rsplit('/', 1)[-1]}", system.cat_file(path)
            )
    batches = iter(tokjax.PackedTokenLoader(tokjax.open_dataset(copy, fetch_ahead=4), **IN_ORDER))
    for _ in range(3):
        next(batches)
    with pytest.raises(tokjax.errors.DatasetCorruptError, match=f"^{copy}/{name} is missing; write the data"):
        next(batches)
    batches.close()


@pytest.mark.parametrize("close", [lambda batches: batches.close(), lambda _: None])
def test_closing_stops_the_thread(url, counted, close):
    dataset = tokjax.open_dataset(url, fetch_ahead=NUM_SHARDS)
    batches = tokjax.PackedTokenLoader(dataset, **IN_ORDER).repeat()
    next(batches)
    thread = batches._fetcher._thread
    wait_for_downloads(TOKENS)
    assert thread.is_alive()  # (there are more epochs)
    close(batches)
    del batches
    gc.collect()
    thread.join(5)
    assert not thread.is_alive()


def test_prefetch_to_device(url, counted):
    loader = tokjax.PackedTokenLoader(tokjax.open_dataset(url, fetch_ahead=1), **IN_ORDER)
    local = tokjax.PackedTokenLoader(tokjax.open_dataset(url), **IN_ORDER)
    with tokjax.datasets.prefetch_to_device(loader.repeat()) as batches:
        for step in range(30):
            assert np.array_equal(next(batches).ids, local.batch_at(step).ids)
        assert "tokjax-fetch" in {thread.name for thread in threading.enumerate()}
    wait_until(lambda: "tokjax-fetch" not in {thread.name for thread in threading.enumerate()})
    assert set(list_downloads()) == set(TOKENS)
