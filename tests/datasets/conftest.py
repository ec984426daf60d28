"""Fixtures of datasets at URLs."""

import uuid

import pytest

import tokjax


@pytest.fixture
def counted(monkeypatch):
    """Replaces `memory://` by a file system that records requests, and returns its class."""
    fsspec = pytest.importorskip("fsspec")
    from tests.support.counted_files import CountedFileSystem, MemoryFileSystem

    monkeypatch.setattr(CountedFileSystem, "requests", [])
    fsspec.register_implementation("memory", CountedFileSystem, clobber=True)
    yield CountedFileSystem
    fsspec.register_implementation("memory", MemoryFileSystem, clobber=True)


@pytest.fixture(scope="session")
def url():
    """URL of a packed dataset of `counted_files.TEXTS`."""
    from tests.support.counted_files import PACKED, TEXTS

    url = f"memory://{uuid.uuid4().hex}"
    tokjax.write_dataset(TEXTS, PACKED, url, shard_size=1000)
    return url
