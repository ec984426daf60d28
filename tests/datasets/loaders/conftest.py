"""Datasets of all kinds, for the tests of loaders."""

import pytest

from tests.support.loader_cases import write_datasets


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    return write_datasets(tmp_path_factory.mktemp("loaders"))
