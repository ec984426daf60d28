"""Tests of pauses of garbage collection."""

import gc

import pytest

from tokjax._util.garbage_collection import pause_garbage_collection


@pytest.fixture(params=[True, False])
def was_enabled(request):
    (gc.enable if request.param else gc.disable)()
    yield request.param
    gc.enable()


def test_collection_is_off_in_the_block_and_as_before_after_it(was_enabled):
    with pause_garbage_collection():
        assert not gc.isenabled()
        with pause_garbage_collection():
            pass
        assert not gc.isenabled()
    assert gc.isenabled() == was_enabled


def test_collection_is_as_before_after_an_error(was_enabled):
    with pytest.raises(ValueError, match="damaged"), pause_garbage_collection():
        raise ValueError("damaged")
    assert gc.isenabled() == was_enabled
