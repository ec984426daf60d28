"""Tests of sampled and n-best segmentations of SentencePiece models."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given

import tokjax
from tests.support.sentencepiece_models import fuzz, train_sentencepiece_models


@pytest.fixture(scope="module")
def models():
    return train_sentencepiece_models()


class TestSampling:
    TEXT = "the apparent meaning, the inner ½ meaning…"

    @pytest.mark.parametrize("name", ["unigram", "unigram with bytes", "bpe", "suffixes"])
    def test_sampling_is_deterministic(self, models, name):
        def sample(seed):
            return tokjax.models.sample_encode(models[name], self.TEXT, alpha=0.2, seed=seed)

        alone = [sample(seed) for seed in range(8)]
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(sample, range(8))) == alone
        assert len({result.tokens for result in alone}) > 1
        best = tokjax.decode(models[name], tokjax.encode(models[name], self.TEXT), skip_special_tokens=True)
        for result in alone:
            tokjax.offsets.assert_offsets_contract(self.TEXT, result.offsets)
            assert tokjax.decode(models[name], result.ids, skip_special_tokens=True) == best
            assert result.offsets.max() == len(self.TEXT.encode()) + 1

    def test_disabled_sampling_gives_best_segmentation(self, models):
        for name, alpha in (("bpe", 0.0), ("unigram", 1e6)):
            tokenizer = models[name]
            sampled = tokjax.models.sample_encode(tokenizer, self.TEXT, alpha=alpha, seed=1)
            assert sampled == tokjax.encode_result(tokenizer, self.TEXT)

    @given(text=fuzz)
    def test_any_text(self, models, text):
        tokenizer = models["unigram"]
        options = {"alpha": 0.3, "seed": 3, "nbest_size": 4}
        try:
            result = tokjax.models.sample_encode(tokenizer, text, **options)
        except tokjax.errors.DisallowedSpecialTokenError:
            return
        tokjax.offsets.assert_offsets_contract(text, result.offsets)
        [best] = tokjax.models.nbest_encode(tokenizer, text, 1)
        assert best.offsets.shape == (*best.ids.shape, 2)

    def test_nbest_segmentations(self, models):
        tokenizer = models["unigram"]
        ranked = tokjax.models.nbest_encode(tokenizer, self.TEXT, 5)
        assert ranked[0] == tokjax.encode_result(tokenizer, self.TEXT)
        assert len({result.tokens for result in ranked}) == 5
        assert [row.ids.tolist()[:-1] for row in ranked] == tokenizer.processor.nbest_encode(
            self.TEXT, nbest_size=5, out_type=int
        )
        assert [len(result) for result in tokjax.models.nbest_encode(tokenizer, "", 5)] == [1]

    def test_special_tokens_in_texts(self, models):
        """Both functions accept the options that the error suggests. Segments are encoded separately."""
        tokenizer = models["unigram"]
        text = "low </s>the inner meaning"
        id_ = tokjax.token_to_id(tokenizer, "</s>")
        for call in (
            lambda **options: tokjax.models.sample_encode(tokenizer, text, alpha=1e6, seed=1, **options),
            lambda **options: tokjax.models.nbest_encode(tokenizer, text, 4, **options)[0],
        ):
            with pytest.raises(
                tokjax.errors.DisallowedSpecialTokenError, match=r"pass disallowed_special=\(\)"
            ):
                call()
            for options in ({"allowed_special": "all"}, {"disallowed_special": ()}):
                result = call(add_special_tokens=False, **options)
                expected = tokjax.encode_result(tokenizer, text, add_special_tokens=False, **options)
                assert result == expected
                assert (id_ in result.ids) == ("allowed_special" in options)

    def test_nbest_of_several_segments(self, models):
        """The segmentations of all segments are combined, the most likely first."""
        tokenizer = models["unigram"]
        first, second = "low", " inner"
        options = {"add_special_tokens": False}
        alone = [
            list(tokjax.models.nbest_encode(tokenizer, text, 512, **options)) for text in (first, second)
        ]
        full = tokjax.models.nbest_encode(
            tokenizer, f"{first}</s>{second}", 512, allowed_special="all", **options
        )
        assert len(full) == min(512, len(alone[0]) * len(alone[1]))
        id_ = tokjax.token_to_id(tokenizer, "</s>")
        expected = [[*alone[0][0].ids.tolist(), id_, *row.ids.tolist()] for row in alone[1]]
        order = [row.ids.tolist() for row in full]
        assert order[0] == expected[0]
        positions = [order.index(ids) for ids in expected if ids in order]
        assert len(positions) > 1
        assert positions == sorted(positions)

    @pytest.mark.parametrize(
        ("name", "options", "message"),
        [
            ("char", {}, "needs a model of type unigram or bpe, and this one is of type char"),
            ("bpe", {"alpha": 1.5}, "alpha for a bpe model must be a number, from 0 to 1, not 1.5"),
            ("unigram", {"alpha": -1.0}, "alpha for a unigram model must be a number, at least 0, not -1.0"),
            ("unigram", {"alpha": float("nan")}, "not nan"),
            ("unigram", {"nbest_size": 1}, "nbest_size must be -1, or from 2 to 512, not 1"),
            ("unigram", {"seed": 2**32 - 1}, "seed must be at most 4294967294"),
            ("unigram", {"seed": -1}, "seed must be at least 0"),
        ],
    )
    def test_invalid_options(self, models, name, options, message):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            tokjax.models.sample_encode(models[name], "low", **({"alpha": 0.1, "seed": 1} | options))

    def test_invalid_nbest_arguments(self, models, tokenizer):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="needs a model of type unigram, and"):
            tokjax.models.nbest_encode(models["bpe"], "low", 2)
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match="nbest_size must be from 1 to 512, not 0"
        ):
            tokjax.models.nbest_encode(models["unigram"], "low", 0)
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="not a ByteLevelBPE"):
            tokjax.models.nbest_encode(tokenizer, "low", 2)
        with pytest.raises(tokjax.errors.DisallowedSpecialTokenError):
            tokjax.models.nbest_encode(models["unigram"], "</s>", 2)
