"""Tests that pickles are equal in every process: `datasets.map` uses their hash as the key of its cache."""

import os
import pickle
import subprocess
import sys

import pytest

import tokjax
from tests.support.tokenizers import TOKENIZERS, VARIANTS

PROGRAM = """
import sys
from datasets import Dataset
import tokjax

tokenizer = tokjax.byte_level(["</s>"], eos_token="</s>")
if sys.argv[2] == "used":
    tokjax.decode(tokenizer, tokjax.encode(tokenizer, "other names are loaded and cached now"))

def add_ids(row):
    return {"ids": tokjax.encode(tokenizer, row["text"])}

rows = Dataset.from_csv(sys.argv[1] + "/texts.csv", cache_dir=sys.argv[1] + "/cache")
mapped = rows.map(add_ids)
print(mapped._fingerprint, mapped.cache_files[0]["filename"])
"""


@pytest.mark.parametrize("name", sorted(TOKENIZERS.keys() - VARIANTS))
def test_pickle_of_used_tokenizer(name):
    tokenizer = TOKENIZERS[name]()
    before = pickle.dumps(tokenizer)
    batch = tokjax.encode_batch_result(tokenizer, ["low low", "w"], disallowed_special=())
    tokjax.decode_batch(tokenizer, batch)
    tokjax.fingerprint(tokenizer)
    assert pickle.dumps(tokenizer) == before
    assert pickle.loads(before) == tokenizer


def test_module_pickles_as_its_name():
    dumped = pickle.dumps(tokjax)
    assert len(dumped) < 100
    assert pickle.loads(dumped) is tokjax
    dill = pytest.importorskip("dill")
    assert len(dill.dumps(tokjax)) < 100


@pytest.mark.slow
def test_datasets_cache_is_hit_in_another_process(tmp_path):
    pytest.importorskip("datasets")
    (tmp_path / "texts.csv").write_text("text\nlow\nlower\n")
    outputs = []
    for seed, use in enumerate(("unused", "used")):
        environment = {**os.environ, "PYTHONHASHSEED": str(seed + 1), "HF_HUB_OFFLINE": "1"}
        command = [sys.executable, "-c", PROGRAM, tmp_path, use]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout.splitlines()[-1])
    assert outputs[0] == outputs[1]
    assert len(list((tmp_path / "cache").rglob("cache-*.arrow"))) == 1
