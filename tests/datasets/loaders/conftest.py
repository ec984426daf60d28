"""Datasets of all kinds, for the tests of loaders."""

import pytest

import tokjax
from tests.support.loader_cases import FIELDS, TEXTS, write_datasets


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    return write_datasets(tmp_path_factory.mktemp("loaders"))


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Directory with one dataset per field, and a second raw one."""
    directory = tmp_path_factory.mktemp("options")
    for name, field in FIELDS.items():
        tokjax.write_dataset(TEXTS, field, directory / name)
    tokjax.write_dataset(["one", "two", "three"], FIELDS["raw"], directory / "raw others")
    return directory
