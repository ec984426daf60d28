"""Tests of `BucketedLoader` and `TokenBudgetLoader`: shapes, budgets and invalid options."""

import numpy as np
import pytest

import tokjax
from tests.support.loader_cases import LOADERS, TOKENIZER
from tests.support.rejections import rejects


class TestShapes:
    def test_bucketed_batches(self, datasets):
        shapes = {batch.ids.shape for batch in LOADERS["bucketed"](datasets, drop_last=False)}
        assert shapes == {(12, 16), (12, 32), (12, 50)}

    def test_token_budget_batches(self, datasets):
        loader = LOADERS["budget"](datasets)
        for batch in loader:
            rows, length = batch.ids.shape
            assert rows * length <= 700
            assert length % 8 == rows % 12 == 0
        real = sum(int(batch.attention_mask.sum()) for batch in loader)
        assert real == datasets["tokenized"].num_tokens

    def test_memory_budget_batches(self, datasets):
        loader = tokjax.datasets.TokenBudgetLoader(
            datasets["tokenized"], budget=20_000, cost=lambda rows, length: rows * length**2, multiple_of=16
        )
        assert {batch.ids.shape for batch in loader} == {
            (30, 16),  # all documents of this length
            (19, 32),
            (8, 48),
        }
        cheap = tokjax.datasets.TokenBudgetLoader(
            datasets["tokenized"], budget=1, cost=lambda rows, _: rows * 1e-4
        )
        assert [batch.ids.shape for batch in cheap] == [(97, 64)]

    @pytest.mark.parametrize("max_shapes", [1, 2, 3, 50])
    def test_budget_batches_have_few_shapes(self, datasets, max_shapes):
        both = [datasets["tokenized"], datasets["tokenized others"]]
        loader = tokjax.datasets.TokenBudgetLoader(both, budget=400, multiple_of=4, max_shapes=max_shapes)
        batches = list(loader)
        shapes = {batch.ids.shape for batch in batches}
        assert len(shapes) == len({length for _, length in shapes}) <= max_shapes
        assert sum(int(batch.attention_mask.sum()) for batch in batches) == sum(d.num_tokens for d in both)
        assert {batch.ids.shape for batch in loader.repeat(2)} == shapes

    def test_budget_batches_have_at_most_eight_shapes(self, tmp_path):
        field = tokjax.TokenizedTextField(TOKENIZER)
        tokjax.write_dataset(["x" * n for n in range(1, 300)], field, tmp_path / "data")
        loader = tokjax.datasets.TokenBudgetLoader(
            tokjax.open_dataset(tmp_path / "data"), budget=900, multiple_of=1
        )
        assert len({batch.ids.shape for batch in loader}) == 8

    def test_oversized_documents(self, datasets):
        with rejects("1 rows of 48 ids cost 48, above"):
            tokjax.datasets.TokenBudgetLoader(datasets["tokenized"], budget=40, multiple_of=16)
        with rejects("a document has 45 ids, more than the last of"):
            tokjax.datasets.BucketedLoader(datasets["tokenized"], batch_size=2, bucket_boundaries=[10, 20])


class TestInvalidOptions:
    @pytest.mark.parametrize("boundaries", [8, "64", b"8"])
    def test_invalid_boundaries(self, datasets, boundaries):
        message = "bucket_boundaries must be integers, for instance .*, not "
        with rejects(f"{message}{boundaries!r}"):
            tokjax.datasets.BucketedTokenField(TOKENIZER, bucket_boundaries=boundaries)
        with rejects(f"{message}{boundaries!r}"):
            tokjax.datasets.BucketedLoader(datasets["tokenized"], batch_size=2, bucket_boundaries=boundaries)

    @pytest.mark.parametrize("value", [float("nan"), np.float32("nan"), None, "3"])
    def test_invalid_costs(self, datasets, value):
        with rejects(r"cost\(1, 64\) returned .*, which is not a number"):
            tokjax.datasets.TokenBudgetLoader(datasets["tokenized"], budget=700, cost=lambda *_: value)

    def test_infinite_cost_exceeds_any_budget(self, datasets):
        loader = tokjax.datasets.TokenBudgetLoader(
            datasets["tokenized"],
            budget=700,
            cost=lambda rows, length: rows * length if rows < 5 else float("inf"),
        )
        assert {batch.ids.shape[0] for batch in loader} <= {1, 2, 3, 4}
