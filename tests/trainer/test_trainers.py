"""Tests of what all trainers have in common: their results, bundles and progress bars."""

import dataclasses
import json
import pickle

import numpy as np
import pytest

import tokjax
from tests.conftest import CORPUS
from tokjax.trainer import (
    load_training_bundle,
    save_training_bundle,
    train_bpe,
    train_sentencepiece,
    train_word_level,
    train_wordpiece,
)

TRAINERS = {
    "bpe": (train_bpe, 300),
    "wordpiece": (train_wordpiece, 170),
    "word_level": (train_word_level, 170),
    "sentencepiece": (train_sentencepiece, 170),
}


@pytest.fixture(scope="module", params=TRAINERS)
def trained(request):
    train, size = TRAINERS[request.param]
    return train(CORPUS * 3, vocab_size=np.int64(size), progress=False)


def test_results_are_immutable_and_comparable(trained):
    assert pickle.loads(pickle.dumps(trained)) == trained
    assert hash(trained) == hash(pickle.loads(pickle.dumps(trained)))
    with pytest.raises(dataclasses.FrozenInstanceError):
        trained.stats = None


def test_options_are_plain_json(trained):
    assert json.loads(json.dumps(trained.options)) == trained.options
    assert trained.options["trainer"] in TRAINERS


def test_bundles_round_trip(trained, tmp_path):
    bundle = save_training_bundle(trained, tmp_path / "bundle")
    assert load_training_bundle(tmp_path / "bundle").trained == bundle.trained == trained
    assert tokjax.load_tokenizer(tmp_path / "bundle") == trained.tokenizer


@pytest.mark.parametrize("name", TRAINERS)
def test_progress_is_shown_on_standard_error(name, capfd):
    train, size = TRAINERS[name]
    train(CORPUS, vocab_size=size)
    output = capfd.readouterr()
    assert output.out == ""
    bars = {line.split()[0] for line in output.err.splitlines() if "━" in line}
    assert {"sentencepiece": "reading"}.get(name, "counting") in bars
    train(CORPUS, vocab_size=size, progress=False)
    assert "━" not in capfd.readouterr().err
