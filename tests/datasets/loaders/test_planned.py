"""Tests of `PlannedLoader`: documents of an epoch, rows, mixtures, budgets, schedules and plans in files."""

import pickle
from collections import Counter

import jax
import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.loader_cases import PAD, TOKENIZER, are_equal
from tests.support.rejections import rejects

PLAN = {"batch_size": 4, "block_size": 64}


def iter_segments(batch):
    """Yields the document and the ids of each segment of a batch, and checks the other columns."""
    for row in range(len(batch.ids)):
        segments = batch.segment_ids[row]
        assert (batch.attention_mask[row] == (segments > 0)).all()
        assert (batch.ids[row][segments == 0] == PAD).all()
        assert (batch.document_ids[row][segments == 0] == -1).all()
        assert (np.diff(segments[segments > 0]) >= 0).all()
        for segment in range(1, segments.max() + 1):
            slots = np.flatnonzero(segments == segment)
            assert (batch.positions[row][slots] == np.arange(len(slots))).all()
            [document] = {*batch.document_ids[row][slots].tolist()}
            yield document, batch.ids[row][slots].tolist()


def read_documents(batches):
    return [segment for batch in batches for segment in iter_segments(batch)]


@get_max_examples(25)
@given(
    block_size=st.sampled_from([50, 51, 64, 200, 3000]),
    batch_size=st.integers(1, 9),
    window=st.sampled_from([1, 2, 10, 97, 1000]),
    strategy=st.sampled_from(["best_fit", "first_fit"]),
    shuffle=st.booleans(),
    several=st.booleans(),
)
def test_an_epoch_has_each_document_once(
    datasets, block_size, batch_size, window, strategy, shuffle, several
):
    sources = [datasets["tokenized"], datasets["tokenized others"]][: 2 if several else 1]
    loader = tokjax.PlannedLoader(
        sources,
        block_size=block_size,
        batch_size=batch_size,
        window=window,
        strategy=strategy,
        shuffle=shuffle,
    )
    expected = [ids.tolist() for source in sources for ids in source]
    epochs = [read_documents(loader) for _ in range(2)]
    for epoch in epochs:
        assert sorted(document for document, _ in epoch) == list(range(len(expected)))
        assert all(ids == expected[document] for document, ids in epoch)
    assert loader.step == 2 * len(loader)
    if not shuffle:
        assert epochs[0] == epochs[1]
        if window == 1:
            assert [document for document, _ in epochs[0]] == list(range(len(expected)))


def test_epochs_have_other_orders_and_equal_rows(datasets):
    loader = tokjax.PlannedLoader(datasets["tokenized"], **PLAN)
    first, second = ([row.tobytes() for batch in loader for row in batch.ids] for _ in range(2))
    assert first != second
    assert Counter(first) == Counter(second)
    other = tokjax.PlannedLoader(datasets["tokenized"], **PLAN, seed=1)
    assert Counter(row.tobytes() for batch in other for row in batch.ids) != Counter(first)


def test_rows_equal_a_plan_in_memory(datasets):
    """With one window and without a shuffle, the rows are those of `pack_blocks`."""
    dataset = datasets["packed"]
    for strategy in ("best_fit", "first_fit", "concat"):
        loader = tokjax.PlannedLoader(dataset, **PLAN, strategy=strategy, shuffle=False)
        rows = dataset.rows(range(len(dataset)))
        blocks = tokjax.pack_blocks(rows, block_size=64, pad_id=PAD, strategy=strategy)
        rows = jax.tree.map(lambda *arrays: np.concatenate(arrays), *loader)
        empty = tokjax.PackedBlocks(*(column[len(blocks.ids) :] for column in rows[:5]))
        assert not empty.attention_mask.any()
        assert are_equal(tokjax.PackedBlocks(*(column[: len(blocks.ids)] for column in rows[:5])), blocks)


def test_long_documents(datasets):
    dataset = datasets["tokenized"]
    with rejects(r"document \d+ has 45 tokens, more than a row of 40 holds; pass overlong='split'") as error:
        tokjax.PlannedLoader(dataset, batch_size=2, block_size=40)
    assert dataset.document_lengths[int(str(error.value).split()[1])] == 45
    split = tokjax.PlannedLoader(dataset, batch_size=2, block_size=10, overlong="split")
    parts = Counter()
    for document, ids in read_documents(split):
        parts[document] += len(ids)
    assert [parts[i] for i in range(len(dataset))] == dataset.document_lengths.tolist()
    cut = tokjax.PlannedLoader(dataset, batch_size=2, block_size=10, overlong="truncate")
    assert sorted(read_documents(cut)) == [(i, ids[:10].tolist()) for i, ids in enumerate(dataset)]
    few = tokjax.PlannedLoader(dataset, **PLAN, max_segments=2)
    assert max(batch.segment_ids.max() for batch in few) == 2


def test_mixture_resumes_with_one_seven_and_three_processes(datasets):
    def make():
        sources = [datasets["tokenized"], datasets["packed others"]]
        return tokjax.PlannedLoader(sources, batch_size=21, block_size=64, weights=[0.7, 0.3])

    single = make()
    state = make().get_state()
    for count in (1, 7, 3, 7, 1):
        parts = [make().shard(index, count) for index in range(count)]
        for part in parts:
            part.set_state(state)
        step = parts[0].step
        streams = [part.repeat() for part in parts]
        for offset in range(3):
            rows = jax.tree.map(lambda *arrays: np.concatenate(arrays), *map(next, streams))
            assert are_equal(rows, single.batch_at(step + offset))
        [state] = {str(part.get_state()): part.get_state() for part in parts}.values()


class TestMixtures:
    def make(self, datasets, **options):
        sources = {
            "a": datasets["tokenized"],
            "group": {"b": datasets["tokenized others"], "c": datasets["packed"]},
        }
        return tokjax.PlannedLoader(sources, **PLAN | options)

    def test_names_and_shares(self, datasets):
        weights = {"a": 0.5, "group": 0.5, "group/b": 1, "group/c": 3}
        loader = self.make(datasets, weights=weights, batch_size=8)
        assert loader.names == ["a", "group/b", "group/c"]
        assert loader.steps_per_epoch is None
        with pytest.raises(TypeError, match="a mixture has no end"):
            len(loader)
        firsts = np.cumsum([97, 37])
        for step in (0, 17, 10**6, 10**9):
            batch = loader.batch_at(step)
            rows = np.searchsorted(firsts, batch.document_ids[:, 0], "right")
            assert np.bincount(rows, minlength=3).tolist() == [4, 1, 3]

    def test_documents_are_those_of_their_dataset(self, datasets):
        weights = {"a": 1, "group": 1, "group/b": 1, "group/c": 1}
        loader = self.make(datasets, weights=weights)
        expected = [
            ids.tolist() for name in ("tokenized", "tokenized others", "packed") for ids in datasets[name]
        ]
        seen = Counter()
        for document, ids in read_documents(loader.batch_at(step) for step in range(60)):
            assert ids == expected[document]
            seen[document] += 1
        # A document is seen again only after all others of its dataset were seen.
        for first, last in ((0, 97), (97, 134), (134, 231)):
            counts = [seen[i] for i in range(first, last)]
            assert max(counts) - min(counts) <= 1

    def test_phases(self, datasets):
        loader = self.make(
            datasets,
            batch_size={0: 4, 10: 8},
            block_size={0: 64, 20: 128},
            weights={
                0: {"a": 1, "group": 1, "group/b": 1, "group/c": 1},
                5: {"a": 0, "group": 1, "group/b": 1, "group/c": 0},
            },
        )
        assert [phase.first_step for phase in loader.phases] == [0, 5, 10, 20]
        shapes = [loader.batch_at(step).ids.shape for step in (0, 9, 10, 19, 20)]
        assert shapes == [(4, 64), (4, 64), (8, 64), (8, 64), (8, 128)]
        assert loader.batch_rows == 4
        assert {document for document, _ in iter_segments(loader.batch_at(30))} <= set(range(97, 134))
        lines = tokjax.datasets.describe_schedule(loader).splitlines()
        assert " ".join(lines[0].split()) == "step batch_size block_size dataset tokens share epochs"
        rows = [" ".join(line.split()[:3]) for line in lines[1::3]]
        assert rows == ["5 4 64", "10 8 64", "20 8 128"]

    def test_token_counts_equal_the_batches(self, datasets):
        loaders = [
            self.make(datasets, weights={0: {"a": 1, "group": 2, "group/b": 3, "group/c": 1}}),
            self.make(datasets, block_size={0: 64, 7: 96}, num_steps=50),
            self.make(datasets),
            tokjax.PlannedLoader([datasets["tokenized"]], **PLAN),
        ]
        for loader in loaders:
            firsts = np.cumsum([len(each) for each in loader.datasets])
            totals = np.zeros(len(firsts), np.int64)
            for step in range(40):
                assert list(loader.count_tokens(step).values()) == totals.tolist()
                documents = loader.batch_at(step).document_ids
                found = np.searchsorted(firsts, documents[documents >= 0], "right")
                totals += np.bincount(found, minlength=len(totals))
            assert list(loader.count_tokens(10**9)) == loader.names

    @pytest.mark.parametrize("stop", ["first_exhausted", "all_exhausted"])
    @pytest.mark.parametrize("epochs", [1, 3])
    def test_stop(self, datasets, stop, epochs):
        sources = [datasets["tokenized"], datasets["tokenized others"]]
        loader = tokjax.PlannedLoader(sources, **PLAN, weights=[1, 1], stop=stop, epochs=epochs)
        seen = Counter(document for document, _ in read_documents(loader))
        assert loader.step == len(loader) == loader.num_steps
        by_dataset = [[seen[i] for i in range(97)], [seen[i] for i in range(97, 134)]]
        if stop == "first_exhausted":
            assert max(map(max, by_dataset)) <= epochs
            assert max(map(np.mean, by_dataset)) > epochs - 0.5
        else:
            assert min(map(min, by_dataset)) >= epochs
            assert min(map(np.mean, by_dataset)) < epochs + 0.5
        assert list(loader) == []
        with rejects(rf"step is {len(loader)}, and the run has {len(loader)} steps, from 0"):
            loader.batch_at(len(loader))

    @get_max_examples(20)
    @given(budgets=st.tuples(st.integers(1, 9000), st.integers(1, 3000)), batch_size=st.integers(1, 7))
    def test_token_budgets_are_exact(self, datasets, budgets, batch_size):
        loader = tokjax.PlannedLoader(
            {"one": datasets["tokenized"], "two": datasets["tokenized others"]},
            batch_size=batch_size,
            block_size=64,
            token_budgets={"one": budgets[0], "two": budgets[1]},
        )
        documents = np.concatenate([batch.document_ids.reshape(-1) for batch in loader])
        counts = ((documents >= 0) & (documents < 97)).sum(), (documents >= 97).sum()
        assert counts == budgets
        assert loader.count_tokens(len(loader)) == {"one": budgets[0], "two": budgets[1]}
        assert read_documents(loader.batch_at(step) for step in range(len(loader)))

    def test_functions_of_the_step(self, datasets):
        loader = tokjax.PlannedLoader(
            [datasets["tokenized"], datasets["tokenized others"]],
            batch_size=lambda step: 2 if step < 5 else 4,
            block_size=64,
            weights=lambda step: [1, step],
            num_steps=9,
        )
        assert [len(batch.ids) for batch in loader] == [2] * 5 + [4] * 4
        assert len(loader) == 9
        assert (loader.batch_at(0).document_ids < 97).all()

    def test_state_depends_on_the_schedule(self, datasets):
        weights = {"a": 1, "group": 1, "group/b": 1, "group/c": 1}
        state = self.make(datasets, weights=weights).get_state()
        self.make(datasets, weights={0: weights}).set_state(state)
        for options in ({"weights": {**weights, "a": 2}}, {"weights": weights, "block_size": 65}, {}):
            with pytest.raises(tokjax.errors.DatasetMismatchError, match="the state's schedule is different"):
                self.make(datasets, **options).set_state(state)
        with pytest.raises(tokjax.errors.DatasetMismatchError, match="the state's plan is different"):
            self.make(datasets, weights=weights, window=5).set_state(state)


class TestErrors:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"weights": [1]}, "weights must be 2 numbers, for 0, 1, not"),
            ({"weights": [0, 0]}, "weights of 0, 1 are all 0; at least one must be above 0"),
            ({"weights": [1, -1]}, "the weight of '1' must be a number of at least 0, not -1"),
            ({"weights": {"0": 1}}, "weights has none for '1'; pass a number for each of 0, 1"),
            ({"weights": {"0": 1, "1": 1, "x": 1}}, "weights has an unknown name, 'x'"),
            ({"token_budgets": [5, 0]}, "the budget of '1' must be at least 1"),
            ({"token_budgets": [5, 5], "weights": [1, 1]}, "can't be combined with weights"),
            ({"token_budgets": [5, 5], "block_size": {0: 64, 5: 65}}, "a schedule of block_size"),
            ({"weights": [1, 1], "stop": "later"}, "stop must be 'first_exhausted', 'all_exhausted'"),
            (
                {"weights": {0: [1, 1], 1: [1, 0]}, "stop": "all_exhausted"},
                "a dataset has weight 0 at the end and is never exhausted",
            ),
            (
                {"weights": [1, 1], "stop": "first_exhausted", "batch_size": 500},
                "the first batch would exceed",
            ),
            ({"weights": lambda _: [1, 1]}, "weights is a function of the step"),
            ({"batch_size": 0}, "batch_size must be at least 1"),
            ({"block_size": {0: 64, 5: 0}}, "block_size must be at least 1"),
            ({"strategy": "fit"}, "strategy must be 'concat',"),
            ({"window": 0}, "window must be at least 1"),
            ({"plan_dir": 5}, "^expected a path, got 5$"),
            ({"columns": 5}, "columns must be a list .* not 5"),
        ],
    )
    def test_invalid_arguments(self, datasets, options, message):
        sources = [datasets["tokenized"], datasets["tokenized others"]]
        with rejects(message):
            tokjax.PlannedLoader(sources, **PLAN | options)

    def test_invalid_steps(self, datasets):
        with rejects(r"such as \[5\], not 5"):
            tokjax.datasets.describe_schedule(tokjax.PlannedLoader(datasets["tokenized"], **PLAN), 5)

    def test_invalid_sources(self, datasets, tmp_path):
        with rejects(r"PlannedLoader loads a TokenDataset"):
            tokjax.PlannedLoader(datasets["raw"], **PLAN)
        with rejects("names of datasets must be texts without '/', not 'a/b'"):
            tokjax.PlannedLoader({"a/b": datasets["packed"]}, **PLAN)
        with rejects("the group of datasets 'a' is empty"):
            tokjax.PlannedLoader({"a": {}}, **PLAN)
        tokjax.write_dataset(
            [""], tokjax.TokenizedTextField(TOKENIZER, add_special_tokens=False), tmp_path / "empty"
        )
        with rejects("has no tokens, so there are no rows"):
            tokjax.PlannedLoader(tokjax.open_dataset(tmp_path / "empty"), **PLAN)


class TestPlanFiles:
    def test_files_are_used_again(self, datasets, tmp_path, monkeypatch):
        loader = tokjax.PlannedLoader(datasets["tokenized"], **PLAN, plan_dir=tmp_path / "plans")
        names = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "plans").iterdir()}
        assert {name.rpartition(".")[2] for name in names} == {"pieces", "rows", "json"}
        monkeypatch.setattr("tokjax.datasets.loaders.row_plans.plan_packing", None)
        again = tokjax.PlannedLoader(datasets["tokenized"], **PLAN, plan_dir=tmp_path / "plans")
        assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "plans").iterdir()} == names
        monkeypatch.undo()
        memory = tokjax.PlannedLoader(datasets["tokenized"], **PLAN)
        for step in (0, 3, 10**9):
            assert are_equal(loader.batch_at(step), memory.batch_at(step))
            assert are_equal(again.batch_at(step), memory.batch_at(step))
        assert loader.get_state() == memory.get_state()

    @pytest.mark.parametrize("suffix", ["pieces", "rows", "json"])
    @pytest.mark.parametrize("damage", ["delete", "truncate", "alter"])
    def test_damaged_files_are_made_again(self, datasets, tmp_path, suffix, damage):
        memory = tokjax.PlannedLoader(datasets["tokenized"], **PLAN)
        tokjax.PlannedLoader(datasets["tokenized"], **PLAN, plan_dir=tmp_path)
        [path] = tmp_path.glob(f"*.{suffix}")
        contents = path.read_bytes()
        if damage == "delete":
            path.unlink()
        elif damage == "truncate":
            path.write_bytes(contents[:-16])
        else:
            path.write_bytes(contents[:20] + bytes([contents[20] ^ 1]) + contents[21:])
        loader = tokjax.PlannedLoader(datasets["tokenized"], **PLAN, plan_dir=tmp_path)
        assert are_equal(loader.batch_at(1), memory.batch_at(1))
        assert path.read_bytes() == contents

    def test_other_options_have_other_files(self, datasets, tmp_path):
        for number, options in enumerate(({}, {"seed": 1}, {"window": 9}, {"block_size": 65}), 1):
            tokjax.PlannedLoader(datasets["tokenized"], **PLAN | options, plan_dir=tmp_path)
            assert len([*tmp_path.glob("*.json")]) == number

    def test_pickles_hold_paths_of_plans(self, datasets, tmp_path):
        loader = tokjax.PlannedLoader(datasets["tokenized"], **PLAN, plan_dir=tmp_path)
        pickled = pickle.dumps(loader)
        assert tmp_path.name.encode() in pickled
        [pieces] = tmp_path.glob("*.pieces")
        assert pieces.read_bytes()[:64] not in pickled
        assert are_equal(pickle.loads(pickled).batch_at(5), loader.batch_at(5))
        memory = tokjax.PlannedLoader(datasets["tokenized"], **PLAN)
        assert are_equal(pickle.loads(pickle.dumps(memory)).batch_at(5), loader.batch_at(5))


class TestLargeSteps:
    def make(self, datasets, **options):
        sources = {"a": datasets["tokenized"], "b": datasets["tokenized others"]}
        return tokjax.PlannedLoader(sources, **PLAN, weights=[3, 1], **options)

    def test_counts_can_exceed_64_bits(self, datasets):
        counts = self.make(datasets).count_tokens(10**18)
        assert min(counts.values()) > 0
        assert sum(counts.values()) > 1 << 63

    def test_too_many_rows(self, datasets):
        with rejects(r"rows are counted up to 2\*\*62"):
            self.make(datasets).count_tokens(1 << 62)
        with rejects("epochs is 9223372036854775807.* use fewer epochs"):
            self.make(datasets, stop="first_exhausted", epochs=(1 << 63) - 1)
