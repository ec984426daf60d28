"""Tests of datasets and loaders with Grain, Orbax and several JAX processes."""

import json
import os
import socket
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tokjax
from tests.conftest import CORPUS
from tests.support.byte_tokenizers import make_byte_tokenizer
from tests.support.rejections import rejects
from tokjax.errors import DatasetMismatchError

TOKENIZER = make_byte_tokenizer("</s>", "<pad>")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.fixture
def dataset(tmp_path):
    field = tokjax.PackedTokenField(TOKENIZER, chunk_tokens=16)
    tokjax.write_dataset(CORPUS * 8, field, tmp_path / "data", shard_size=700)
    return tokjax.open_dataset(tmp_path / "data")


class TestGrain:
    def test_documents_are_a_source(self, dataset):
        grain = pytest.importorskip("grain.python")
        assert isinstance(dataset, grain.RandomAccessDataSource)
        batches = grain.MapDataset.source(dataset).shuffle(seed=1).map(len)
        assert sorted(batches[i] for i in range(len(dataset))) == sorted(dataset.document_lengths.tolist())

    def test_chunks_are_a_source(self, dataset):
        grain = pytest.importorskip("grain.python")
        chunks = dataset.chunks(16)
        assert isinstance(chunks, grain.RandomAccessDataSource)
        assert len(chunks) == dataset.num_tokens // 16
        assert chunks[3].tolist() == dataset.read(48, 64).tolist()
        assert dataset.chunks(16, extra_token=True)[3].tolist() == dataset.read(48, 65).tolist()
        with pytest.raises(IndexError, match=r"there is no chunk \d+: there are"):
            chunks[len(chunks)]
        loader = grain.DataLoader(
            data_source=chunks,
            sampler=grain.IndexSampler(len(chunks), seed=3, shuffle=True, num_epochs=1),
            operations=[grain.Batch(4, drop_remainder=True)],
            worker_count=0,
        )
        seen = np.concatenate(list(loader))
        assert seen.shape == (len(chunks) // 4 * 4, 16)
        assert {row.tobytes() for row in seen} <= {chunks[i].tobytes() for i in range(len(chunks))}

    def test_loaders_are_a_source(self, dataset):
        grain = pytest.importorskip("grain.python")
        loader = tokjax.PackedTokenLoader(dataset, batch_size=4, seed=9)
        assert isinstance(loader, grain.RandomAccessDataSource)
        source = grain.MapDataset.source(loader)
        assert len(source) == len(loader)
        read = list(source.seed(1).shuffle().to_iter_dataset(grain.ReadOptions(num_threads=2)))
        assert sorted(batch.ids.tobytes() for batch in read) == sorted(
            batch.ids.tobytes() for batch in loader
        )
        sampler = grain.SequentialSampler(len(loader), grain.ShardOptions(0, 1))
        read = list(grain.DataLoader(data_source=loader, sampler=sampler, worker_count=0))
        assert all(np.array_equal(batch.ids, loader[i].ids) for i, batch in enumerate(read))

    def test_states_of_data_loaders(self, dataset):
        # Grain compares the `repr` of the source with that of the checkpoint.
        grain = pytest.importorskip("grain.python")

        def read(seed):
            loader = tokjax.PackedTokenLoader(dataset, batch_size=4, seed=seed).map(
                tokjax.PackedBlocks.to_grain
            )
            sampler = grain.IndexSampler(len(loader), grain.ShardOptions(0, 1), shuffle=True, seed=3)
            return iter(grain.DataLoader(data_source=loader, sampler=sampler, worker_count=0))

        interrupted, resumed = read(9), read(9)
        for _ in range(5):
            next(interrupted)
        resumed.set_state(interrupted.get_state())
        expected, received = next(interrupted), next(resumed)
        assert all(np.array_equal(expected[name], received[name]) for name in expected)
        with pytest.raises(ValueError, match="DataSource in checkpoint does not match"):
            read(8).set_state(interrupted.get_state())

    @pytest.mark.parametrize("kind", ["source", "two epochs", "mixture", "mapped"])
    def test_iterators_resume(self, dataset, kind):
        # Grain's own test of iterators saves the state before each element, and reads the rest again.
        grain = pytest.importorskip("grain")
        loader = tokjax.PackedTokenLoader(dataset, batch_size=4, seed=9)
        count = len(loader)
        mixture = tokjax.PackedTokenLoader([dataset, dataset], batch_size=4, weights=[3, 1])
        batches = {
            "source": lambda: grain.MapDataset.source(loader).seed(1).shuffle()[:8],
            "two epochs": lambda: grain.MapDataset.range(count - 4, count + 4).map(loader.batch_at),
            "mixture": lambda: grain.MapDataset.range(8).map(mixture.batch_at),
            "mapped": lambda: grain.MapDataset.source(loader.map(tokjax.PackedBlocks.to_grain))[:8],
        }[kind]()
        pipeline = batches.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=2))
        grain.experimental.assert_equal_output_after_checkpoint(pipeline)


def test_new_interface_of_orbax(dataset, tmp_path):
    pytest.importorskip("orbax.checkpoint", minversion="0.12")  # earlier versions do not close event loops
    orbax = pytest.importorskip("orbax.checkpoint.experimental.v1")
    loader, resumed = (tokjax.PackedTokenLoader(dataset, batch_size=4, seed=2**40) for _ in range(2))
    next(loader.repeat())
    model = {"table": jnp.zeros(3)}
    orbax.save_checkpointables(tmp_path / "saved", {"model": model, "loader": loader.get_state()})
    resumed.set_state(orbax.load_checkpointables(tmp_path / "saved")["loader"])
    assert resumed.get_state() == loader.get_state()


def test_torch_reads_mapped_loaders(dataset):
    torch = pytest.importorskip("torch")
    loader = tokjax.PackedTokenLoader(dataset, batch_size=4, seed=9).map(tokjax.PackedBlocks.to_huggingface)
    read = list(torch.utils.data.DataLoader(loader, batch_size=None))
    assert len(read) == len(loader)
    assert all(np.array_equal(batch["labels"], loader[i]["labels"]) for i, batch in enumerate(read))
    named = tokjax.PackedTokenLoader(dataset, batch_size=4, seed=9).map(tokjax.batch_to_dict)
    pair = next(iter(torch.utils.data.DataLoader(named, batch_size=2)))  # joined by `default_collate`
    assert np.array_equal(pair["segment_ids"][1], named[1]["segment_ids"])
    mixture = tokjax.PackedTokenLoader([dataset, dataset], batch_size=4, weights=[3, 1])
    read = list(torch.utils.data.DataLoader(mixture, batch_size=None, sampler=range(20)))
    assert np.array_equal(read[19].ids, mixture.batch_at(19).ids)


@pytest.mark.parametrize("name", ["grain", "iterator", "json", "standard", "standard with a target"])
def test_states_in_checkpoints(dataset, tmp_path, name):
    orbax, grain = pytest.importorskip("orbax.checkpoint"), pytest.importorskip("grain.checkpoint")

    def make():
        return tokjax.PackedTokenLoader(dataset, batch_size=4, seed=2**40, weights=[1])

    loader, resumed = make(), make()
    stream = loader.repeat()
    for _ in range(5):
        next(stream)
    save, restore = {
        "grain": (grain.CheckpointSave(loader), grain.CheckpointRestore(resumed)),
        "iterator": (grain.CheckpointSave(stream), grain.CheckpointRestore(resumed.repeat())),
        "json": (orbax.args.JsonSave(loader.get_state()), orbax.args.JsonRestore()),
        "standard": (orbax.args.StandardSave(loader.get_state()), orbax.args.StandardRestore()),
        "standard with a target": (
            orbax.args.StandardSave(loader.get_state()),
            orbax.args.StandardRestore(resumed.get_state()),
        ),
    }[name]
    with orbax.CheckpointManager(tmp_path / "checkpoints") as manager:
        model = orbax.args.StandardSave({"table": jnp.zeros(3)})
        manager.save(5, args=orbax.args.Composite(loader=save, model=model))
        manager.wait_until_finished()
        restored = manager.restore(5, args=orbax.args.Composite(loader=restore))
    if not isinstance(save, grain.CheckpointSave):
        resumed.set_state(restored["loader"])
    assert resumed.get_state() == loader.get_state()
    assert next(resumed.repeat()).ids.tolist() == next(stream).ids.tolist()


def test_state_is_a_pytree_of_integers(dataset):
    loader = tokjax.PackedTokenLoader(dataset, batch_size=4, seed=9, weights=[1])
    state = loader.get_state()
    assert {type(leaf) for leaf in jax.tree.leaves(state)} == {int}
    loader.set_state(jax.tree.map(jnp.asarray, state))
    loader.set_state(jax.tree.map(np.asarray, state))
    for text in (json.dumps(state), json.dumps(state).encode()):
        loader.set_state(text)
    with rejects("a value of get_state, or its JSON; this is not JSON"):
        loader.set_state("step 3")
    with pytest.raises(DatasetMismatchError, match="the state's version is 2, this tokjax reads 3"):
        loader.set_state(state | {"version": 2})


PROCESS = """
import json, os, sys
index, port, path = int(sys.argv[1]), sys.argv[2], sys.argv[3]
os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import numpy as np
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{port}", 2, index)
import tokjax
from tests.support.rejections import rejects
loader = tokjax.PackedTokenLoader(tokjax.open_dataset(path), batch_size=4, seed=5)
part = loader.shard(jax.process_index(), jax.process_count())
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
with tokjax.datasets.prefetch_to_device(part, sharding=sharding) as batches:
    sums = []
    for step in range(3):
        batch = next(batches)
        assert batch.ids.shape == (4, 16), batch.ids.shape
        sums.append(int(jax.jit(lambda ids: ids.sum())(batch.ids)))
    rows = [shard.data.tolist() for shard in batch.ids.addressable_shards]
print(json.dumps({"sums": sums, "rows": rows, "total": int(batch.total_tokens)}))
"""


@pytest.mark.slow
def test_two_jax_processes(dataset, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = tmp_path / "process.py"
    script.write_text(PROCESS)
    processes = [
        subprocess.Popen(
            [sys.executable, script, str(index), str(port), dataset.path],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if name != "XLA_FLAGS"},
        )
        for index in range(2)
    ]
    reported = []
    for process in processes:
        out, error = process.communicate(timeout=120)
        assert process.returncode == 0, error.decode()[-3000:]
        reported.append(json.loads(out.splitlines()[-1]))
    loader = tokjax.PackedTokenLoader(dataset, batch_size=4, seed=5)
    expected = [int(loader.batch_at(step).ids.sum()) for step in range(3)]
    assert reported[0]["sums"] == reported[1]["sums"] == expected
    rows = [row for one in reported for shard in one["rows"] for row in shard]
    assert rows == loader.batch_at(2).ids.tolist()
    assert [one["total"] for one in reported] == [64, 64]
