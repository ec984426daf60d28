"""Tests of pipelines: in this process, in executors and on Grain."""

import itertools
import multiprocessing
import os
import pickle
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial

import jax
import jax.numpy as jnp
import loky
import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests._util.test_threads import NotUnpicklableError, collect_until_error
from tests.project.test_imports import find_loaded_modules
from tests.support.numpy_jax_agreement import assert_same
from tokjax import LengthBuckets
from tokjax.pipelines import batched, compose, pipeline

TEXTS = ["naïve café", "", "low lower lowest", "日本語 🙂", "a\x00b", "\ud800", "it's"] * 4


def halve(number):
    return 12 // number


def raise_odd_error(number):
    raise NotUnpicklableError("no", number)


def add_labels(batch):
    labels = tokjax.causal_lm_labels(batch.ids, batch.attention_mask)
    return tokjax.CausalLMBatch(batch.ids, batch.attention_mask, labels)


def add_process_id(value):
    return os.getpid(), value


@pytest.fixture
def to_batch(tokenizer):
    return pipeline(
        ("tokens", partial(tokjax.encode_batch_result, tokenizer)),
        ("padded", partial(tokjax.collate_padded_batch, pad_id=0, buckets=LengthBuckets([8, 32]))),
        ("labels", add_labels),
    )


@pytest.fixture
def expected(tokenizer):
    padded = [
        tokjax.collate_padded_batch(
            tokjax.encode_batch_result(tokenizer, texts), pad_id=0, buckets=LengthBuckets([8, 32])
        )
        for texts in batched(TEXTS, 5)
    ]
    return [add_labels(batch) for batch in padded]


def assert_all_same(expected, batches):
    for left, right in zip(expected, batches, strict=True):
        assert_same(left, right, np.ndarray)


def test_the_first_function_is_applied_first():
    shout = pipeline(("stripped", str.strip), ("loud", str.upper))
    assert shout("  low ") == "LOW"
    assert compose(len, str)([1, 2]) == "2"
    assert pipeline()("as it is") == compose()("as it is") == "as it is"


@given(st.lists(st.sampled_from([str.strip, str.upper, str.swapcase, str.title])), st.text())
def test_composition_is_associative(functions, text):
    expected = text
    for function in functions:
        expected = function(expected)
    assert compose(*functions)(text) == expected
    for split_index in range(len(functions) + 1):
        assert compose(compose(*functions[:split_index]), compose(*functions[split_index:]))(text) == expected


def test_pipelines_are_immutable_and_comparable():
    first = pipeline(("stripped", str.strip))
    longer = first.then("loud", str.upper)
    assert first.steps == (("stripped", str.strip),)
    assert longer == pipeline(("stripped", str.strip), ("loud", str.upper))
    assert hash(longer) == hash(pickle.loads(pickle.dumps(longer)))
    assert pickle.loads(pickle.dumps(longer)) == longer
    assert repr(longer) == "Pipeline(stripped -> loud)"
    assert (
        repr(compose(partial(int, base=2), LengthBuckets([4]).compute_padded_lengths))
        == "Pipeline(int -> compute_padded_lengths)"
    )
    with pytest.raises(AttributeError):
        longer.steps = ()


def test_from_texts_to_batches(to_batch, expected):
    assert_all_same(expected, to_batch.map(batched(TEXTS, 5)))
    assert_all_same(expected, to_batch.map(batched(TEXTS, 5), workers=3))


def test_jitted_steps_on_a_device(to_batch, expected):
    moved = to_batch.then("on the device", partial(jax.tree.map, jnp.asarray)).then(
        "again", jax.jit(add_labels)
    )
    for batch, on_device in zip(expected, moved.map(batched(TEXTS, 5)), strict=True):
        assert_same(batch, on_device, jax.Array)


@pytest.fixture
def dask():
    distributed = pytest.importorskip("distributed")
    options = {"processes": False, "n_workers": 1, "threads_per_worker": 2}
    with distributed.Client(**options, dashboard_address="127.0.0.1:0") as client:
        yield client.get_executor()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_on_dask(dask, to_batch, expected):
    assert_all_same(expected, to_batch.map(batched(TEXTS, 5), workers=2, executor=dask))


@pytest.mark.parametrize(
    "kind", ["threads", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("loky", "spawned"))]
)
def test_in_executors(kind, to_batch, expected):
    makers = {
        "threads": partial(ThreadPoolExecutor, 2),
        "loky": partial(loky.ProcessPoolExecutor, 2),
        "spawned": partial(ProcessPoolExecutor, 1, multiprocessing.get_context("spawn")),
    }
    with makers[kind]() as executor:
        assert_all_same(expected, to_batch.map(batched(TEXTS, 5), workers=2, executor=executor))
        assert_all_same(expected, executor.map(to_batch, list(batched(TEXTS, 5))))
        [(process, value)] = compose(add_process_id).map([3], executor=executor)
        assert value == 3
        assert (process == os.getpid()) == (kind == "threads")
        with pytest.raises(ZeroDivisionError) as caught:
            list(pipeline(("half", halve)).map([3, 2, 0], executor=executor))
        expected_error = NotUnpicklableError if kind == "threads" else RuntimeError
        with pytest.raises(expected_error, match="no and 3") as reported:
            list(pipeline(("odd", raise_odd_error)).map([3], executor=executor))
        assert ("does not unpickle" in str(reported.value)) == (kind != "threads")
        assert list(compose(halve).map([3], executor=executor)) == [4]
    assert caught.value.__notes__ == [
        "in step 'half' of a pipeline",
        "item 2 of the stream, counted from 0",
    ]
    assert reported.value.__notes__ == ["in step 'odd' of a pipeline", "item 0 of the stream, counted from 0"]


def test_notebook_functions_in_loky():
    with loky.ProcessPoolExecutor(1) as executor:
        assert list(compose(lambda x: x + 1).map([1, 2], executor=executor)) == [2, 3]


def test_steps_that_cannot_be_pickled_are_rejected(monkeypatch):
    monkeypatch.delitem(sys.modules, "cloudpickle", raising=False)
    with (
        ThreadPoolExecutor(1) as executor,
        pytest.raises(
            tokjax.errors.InvalidArgumentError, match="step 'added' can't be pickled .*functools.partial"
        ),
    ):
        pipeline(("half", halve), ("added", lambda x: x + 1)).map([1], executor=executor)


def test_errors_name_the_step_and_the_item():
    inner = pipeline(("half", halve))
    outer = pipeline(("number", int), ("inner", inner))
    with pytest.raises(ZeroDivisionError) as caught:
        list(outer.map(["3", "2", "0"]))
    assert caught.value.__notes__ == [
        "in step 'half' of a pipeline",
        "in step 'inner' of a pipeline",
        "item 2 of the stream, counted from 0",
    ]
    with pytest.raises(ValueError, match="invalid literal") as caught:
        outer("x")
    assert caught.value.__notes__ == ["in step 'number' of a pipeline"]


@pytest.mark.parametrize("items", [[[1], []], [[]], [[1], [1], [1], []], [[1], [], [2]]])
@pytest.mark.parametrize("workers", [1, 2])
def test_stop_iteration_in_a_step_is_an_error(items, workers):
    pipe = pipeline(("iterator", iter), ("inner", pipeline(("first", next))))
    before = items.index([])
    for results in (pipe.map(items, workers=workers), map(pipe, items)):
        assert [next(results) for _ in range(before)] == [1] * before
        with pytest.raises(RuntimeError, match="step 'first' of a pipeline raised StopIteration") as caught:
            next(results)
        assert type(caught.value.__cause__) is StopIteration
        notes = ["in step 'inner' of a pipeline", f"item {before} of the stream, counted from 0"]
        assert caught.value.__notes__ == notes[: 1 if isinstance(results, map) else 2]


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("count", [0, 1, 6])
def test_an_error_in_the_stream_comes_last(count, workers):
    def source():
        yield from range(count)
        raise OSError("gone")

    expected = [str(i) for i in range(count)], "gone"
    assert collect_until_error(compose(str).map(source(), workers=workers)) == expected


def test_streams_are_read_lazily():
    items_read = []
    source = (items_read.append(i) or i for i in itertools.count())
    results = compose(str).map(source)
    assert items_read == []
    assert [next(results) for _ in range(3)] == ["0", "1", "2"]
    assert items_read == [0, 1, 2]
    ahead = compose(str).map(source, workers=2)
    assert [next(ahead) for _ in range(20)] == [str(i) for i in range(3, 23)]
    assert len(items_read) == 23 + 4


def test_number_of_active_workers():
    barrier = threading.Barrier(3, timeout=20)
    assert len(list(compose(lambda _: barrier.wait()).map(range(9), workers=3))) == 9


@given(st.lists(st.integers()), st.integers(1, 5), st.booleans())
def test_batched(items, size, drop_last):
    lists = list(batched(iter(items), size, drop_last=drop_last))
    stop = len(items) // size * size if drop_last else len(items)
    assert lists == [items[i : i + size] for i in range(0, stop, size)]


def test_batched_reads_no_more_than_it_needs():
    source = itertools.count()
    assert next(batched(source, 3)) == [0, 1, 2]
    assert next(source) == 3


def test_on_grain(to_batch, expected):
    grain = pytest.importorskip("grain")
    source = list(batched(TEXTS, 5))
    mapped = grain.MapDataset.source(source).map(to_batch)
    assert_all_same(expected, mapped)
    assert_all_same(expected, mapped.to_iter_dataset())
    assert_all_same(expected, grain.MapDataset.source(source).map(tokjax.pipelines.grain_map(to_batch)))
    by_grain = grain.MapDataset.source(TEXTS).batch(5, batch_fn=list).map(to_batch)
    assert_all_same(expected, by_grain)


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_on_grain_data_loader(workers, to_batch, expected):
    grain = pytest.importorskip("grain")
    pytest.importorskip("absl.flags").FLAGS.mark_as_parsed()  # as `absl.app.run` does
    transform = tokjax.pipelines.grain_map(to_batch)
    assert isinstance(transform, grain.transforms.Map)
    assert_same(expected[0], pickle.loads(pickle.dumps(transform)).map(TEXTS[:5]), np.ndarray)
    loader = grain.DataLoader(
        data_source=list(batched(TEXTS, 5)),
        sampler=grain.samplers.IndexSampler(len(expected), shuffle=False, num_epochs=1),
        operations=[transform],
        worker_count=workers,
    )
    assert_all_same(expected, loader)


def test_description_of_all_steps(to_batch):
    lines = to_batch.describe(TEXTS[:3]).splitlines()
    described = [" ".join(line.split()) for line in lines]
    assert described[:3] == [
        "(example) list of 3",
        "[0] str of 10 characters",
        "tokens TokenizationBatch of 3",
    ]
    assert described[3:6] == ["ids int32 (10,)", "row_splits int64 (4,)", "offsets int64 (10, 2)"]
    assert {"padded PaddedBatch", "offsets int32 (3, 8, 2)", "word_ids int32 (3, 8)"} < {*described}
    assert described[-4:-2] == ["labels CausalLMBatch", "ids int32 (3, 8)"]
    assert len({line.rindex("    ") for line in lines}) == 1


def test_description_of_other_values(tokenizer):
    def split_description(value):
        return [line.split(maxsplit=1) for line in pipeline().describe(value).splitlines()]

    assert split_description(b"abc") == [["(example)", "bytes of 3"]]
    assert split_description({"x": jnp.ones((2, 3)), "y": [1.5], "none": None}) == [
        ["(example)", "dict"],
        ["x", "jax float32 (2, 3)"],
        ["y", "list of 1"],
        ["[0]", "float"],
    ]
    assert split_description(()) == [["(example)", "tuple of 0"]]
    assert split_description(np.float32(1)) == [["(example)", "float32 ()"]]
    result = tokjax.encode_result(tokenizer, "low", return_masks=False)
    assert split_description(result)[:3] == [
        ["(example)", "TokenizationResult"],
        ["ids", f"int32 ({len(result)},)"],
        ["offsets", f"int64 ({len(result)}, 2)"],
    ]
    with pytest.raises(ZeroDivisionError) as caught:
        pipeline(("half", halve)).describe(0)
    assert caught.value.__notes__ == ["in step 'half' of a pipeline"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pipeline(str.strip), r"a step is a name and a function.*compose\(f, g\) takes functions"),
        (lambda: pipeline(("tokens", 3)), r"not \('tokens', 3\)"),
        (lambda: pipeline((str.strip, "tokens")), "a step is a name and a function"),
        (lambda: tokjax.pipelines.Pipeline(("tokens", len)), "not 'tokens'"),
        (lambda: compose(len, "upper"), r"not Step\(name='str', function='upper'\)"),
        (lambda: compose(len).then("again", None), "a step is"),
        (lambda: compose(len).map([], workers=0), "workers must be at least 1, not 0"),
        (lambda: compose(len).map([], workers=1025), "workers must be at most 1024, not 1025"),
        (lambda: compose(len).map([], executor=2), "executor must be a concurrent.futures.Executor, not 2"),
        (lambda: batched([], 0), "size must be at least 1, not 0"),
    ],
)
def test_invalid_pipelines_are_rejected(call, message):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        call()


def test_pipelines_import_no_optional_packages():
    code = "import tokjax; assert list(tokjax.pipelines.compose(len).map(['abc'])) == [3]"
    assert find_loaded_modules(code) == []
