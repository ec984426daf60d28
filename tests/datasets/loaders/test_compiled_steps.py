"""Tests of the shapes of batches, and of steps that are compiled before they are needed."""

import contextlib
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tokjax
from tests.support.loader_cases import LOADERS, TOKENIZER
from tests.support.rejections import rejects
from tokjax.datasets import Column

LIMIT = 60
"""Number of steps whose shapes are compared."""


def describe(batch):
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), batch)


def count_tokens(total, batch):
    ids = batch.ids
    return total + jnp.sum(ids * 0 + 1, dtype=jnp.int32)


@pytest.mark.parametrize("name", LOADERS)
class TestElementSpecs:
    def test_specs_are_the_shapes_of_the_batches(self, datasets, name):
        loader = LOADERS[name](datasets, drop_last=False)
        seen = [describe(loader.batch_at(step)) for step in range(min(len(loader), LIMIT))]
        specs = loader.element_specs
        assert len(specs) == len({str(spec) for spec in specs})
        assert all(spec in specs for spec in seen)
        shard = LOADERS[name](datasets).shard(1, 3)
        assert describe(shard.batch_at(0)) in shard.element_specs
        if name != "multiples":  # (a batch is as long as its longest document, so short lengths do not occur)
            assert all(spec in seen for spec in specs)

    def test_one_spec(self, datasets, name):
        loader = LOADERS[name](datasets)
        if len(loader.element_specs) == 1:
            assert (loader.element_spec,) == loader.element_specs
            return
        with rejects(r"batches have \d shapes; element_specs has all of them"):
            loader.element_spec  # noqa: B018

    def test_batches_by_index(self, datasets, name):
        loader = LOADERS[name](datasets)
        count = len(loader)
        assert np.array_equal(loader[np.int64(1)].ids, loader.batch_at(1).ids)
        assert np.array_equal(loader[-1].ids, loader.batch_at(count - 1).ids)
        for index in (count, -count - 1):
            with pytest.raises(IndexError, match=rf"no batch {index}: an epoch has {count}; see batch_at"):
                loader[index]
        with rejects("index must be an integer, not slice"):
            loader[:2]
        assert loader.step == 0


def test_mixtures_have_any_index(datasets):
    loader = LOADERS["packed"](datasets, weights=[1])
    assert np.array_equal(loader[10**9].ids, loader.batch_at(10**9).ids)
    with rejects("step must be at least 0, not -1"):
        loader[-1]


def test_specs_of_a_schedule(datasets):
    loader = tokjax.PlannedLoader(
        datasets["tokenized"], batch_size={0: 2, 3: 4, 9: 2, 10: 8}, block_size={0: 64, 5: 96}, num_steps=10
    )
    seen = {loader.batch_at(step).ids.shape for step in range(10)}
    assert {spec.ids.shape for spec in loader.element_specs} == seen == {(2, 64), (4, 64), (4, 96), (2, 96)}
    assert len(loader.element_specs) == 4


def test_specs_with_side_columns(tmp_path):
    columns = [
        Column("loss_mask", bool),
        Column("weights", "float16"),
        Column("score", "int64", per="document"),
    ]
    records = [{"ids": [1] * n, "loss_mask": [1] * n, "weights": [0.5] * n, "score": n} for n in range(1, 30)]
    field = tokjax.TokenizedTextField(TOKENIZER, columns=columns)
    tokjax.write_dataset(records, field, tmp_path / "data")
    dataset = tokjax.open_dataset(tmp_path / "data")
    for loader in (
        tokjax.datasets.BucketedLoader(dataset, batch_size=2, bucket_boundaries=[16, 40]),
        tokjax.datasets.SequenceLoader(dataset, batch_size=2, length=20),
    ):
        seen = [describe(batch) for batch in loader]
        assert all(spec in loader.element_specs for spec in seen)
        assert seen[0].columns["weights"].dtype == np.float16


class TestCompileAhead:
    @pytest.mark.parametrize("name", ["budget", "bucketed", "packed", "planned"])
    def test_no_step_compiles(self, datasets, name):
        loader = LOADERS[name](datasets)
        traces = 0

        def step(total, batch):
            nonlocal traces
            traces += 1
            return count_tokens(total, batch)

        total = jnp.int32(0)
        compiled = tokjax.datasets.compile_ahead(step, loader, total)
        assert traces == len(compiled.compiled) == len(loader.element_specs)
        with (
            tokjax.datasets.prefetch_to_device(loader)
            if name == "packed"
            else contextlib.nullcontext(loader) as batches
        ):
            for batch in batches:
                total = compiled(total, batch)
        assert traces == len(loader.element_specs)
        assert int(total) == sum(batch.ids.size for batch in loader)

    def test_jitted_step_with_donation(self, datasets):
        loader = LOADERS["budget"](datasets)
        step = jax.jit(count_tokens, donate_argnums=0)
        compiled = tokjax.datasets.compile_ahead(step, loader, jax.ShapeDtypeStruct((), jnp.int32))
        total = jnp.int32(0)
        compiled(total, loader[0])
        assert total.is_deleted()

    def test_static_arguments_are_rejected(self, datasets):
        step = jax.jit(lambda number, other, batch: number + other + batch.ids.sum(), static_argnums=0)
        with rejects(r"1 static arguments, .* as in jax\.jit\(functools\.partial\(step, VALUE\)\)"):
            tokjax.datasets.compile_ahead(step, LOADERS["planned"](datasets), 1, 2)

    def test_mapped_batches_with_numbers(self, datasets):
        loader = LOADERS["planned"](datasets).map(lambda batch: {"ids": batch.ids, "scale": 2})
        compiled = tokjax.datasets.compile_ahead(lambda batch: batch["ids"].sum() * batch["scale"], loader)
        assert compiled(loader[0]) == 2 * loader[0]["ids"].sum()

    def test_batches_for_flash_attention_are_rejected(self, datasets):
        loader = LOADERS["planned"](datasets)
        convert = partial(tokjax.PackedBlocks.to_huggingface, flash_attention=True)
        assert len({convert(loader[step])["cu_seq_lens_q"].shape for step in range(len(loader))}) > 1
        for function in (convert, lambda blocks: {"blocks": blocks, "flash": convert(blocks)}):
            with rejects(
                r"of to_huggingface\(flash_attention=True\), .* use blocks\.cu_seqlens\(max_segments\)"
            ):
                tokjax.datasets.compile_ahead(lambda batch: batch, loader.map(function))

    def test_each_example_is_loaded_once(self, datasets):
        converted = []
        loader = LOADERS["planned"](datasets).map(lambda batch: converted.append(batch) or batch.ids)
        tokjax.datasets.compile_ahead(lambda ids: ids.sum(), loader)
        assert len(converted) == 1

    def test_sharded_batches(self, datasets):
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("data",))
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
        loader = LOADERS["budget"](datasets)
        total = jax.device_put(jnp.int32(0), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))
        compiled = tokjax.datasets.compile_ahead(count_tokens, loader, total, sharding=sharding)
        with tokjax.datasets.prefetch_to_device(loader, sharding=sharding) as batches:
            for batch in batches:
                total = compiled(total, batch)
        assert int(total) == sum(batch.ids.size for batch in loader)
        unsharded = tokjax.datasets.compile_ahead(count_tokens, loader, jnp.int32(0))
        with (
            tokjax.datasets.prefetch_to_device(loader, sharding=sharding) as batches,
            pytest.raises(ValueError, match="sharding") as raised,
        ):
            unsharded(jnp.int32(0), next(batches))
        assert "compile_ahead got other shardings: pass it sharding=" in raised.value.__notes__[0]

    def test_other_shapes_are_rejected(self, datasets):
        loader = LOADERS["bucketed"](datasets)
        compiled = tokjax.datasets.compile_ahead(count_tokens, loader, jnp.int32(0))
        other = LOADERS["packed"](datasets)[0]
        with rejects(r"has 5 arrays of shape \(12, 16\), and the step was compiled for 2 arrays of shape "):
            compiled(jnp.int32(0), other)
        with rejects("loader must be a loader of tokjax, not a list"):
            tokjax.datasets.compile_ahead(count_tokens, [other])
