"""Tests of the examples with Dask, Grain, several processes, and a custom tokenizer, on small corpora."""

import re

import pytest
from hypothesis import given

import tokjax
from tests.support.example_runner import load_example, run_example
from tests.support.text_strategies import byte_strings, hard_texts
from tokjax.core.utf8 import to_utf8

SOURCE = '''def read_http(first_line):
    """Read the first line of a response."""
    status_code = parseStatus(first_line)
    return status_code, first_line

'''


@pytest.fixture
def corpus(tmp_path):
    """Returns a file with forty different documents of Python source."""
    path = tmp_path / "corpus.txt"
    documents = [f"# {i}\n" + SOURCE.replace("status", f"status_{i}") * 4 for i in range(40)]
    path.write_text("<|endoftext|>".join(documents), encoding="utf-8")
    return path


@pytest.mark.slow
def test_dask_corpus(tmp_path, corpus):
    small = ["--directory", tmp_path / "run", "--vocab-size", 300]
    done = run_example("dask_corpus.py", "--corpus", corpus, *small)
    assert re.search(r"on the cluster: .* s, [1-9]\d* tasks on [12] workers", done.stdout)
    assert re.search(r"all 5 files .* byte for byte", done.stdout)
    tokenizer = tokjax.load_tokenizer(tmp_path / "run" / "cluster" / "bpe.json")
    dataset = tokjax.open_dataset(tmp_path / "run" / "cluster" / "dataset", tokenizer)
    assert tokjax.vocab_size(tokenizer) == 300
    assert dataset.num_documents == 40
    assert tokjax.decode(tokenizer, dataset[7][:-1]).startswith("# 7\ndef read_http")


@pytest.mark.slow
def test_grain_pipeline(tmp_path, corpus):
    small = ["--vocab-size", 300, "--length", 32, "--batch-size", 8, "--steps", 30]
    done = run_example("grain_pipeline.py", "--corpus", corpus, "--directory", tmp_path / "run", *small)
    assert "resumed: 15 of 15 batches equal those of the uninterrupted run" in done.stdout
    nats, baseline = map(float, re.search(r"nats per token: (.+); .* baseline: (.+)", done.stdout).groups())
    assert nats < baseline


@pytest.mark.slow
def test_multi_host(tmp_path, corpus):
    small = ["--directory", tmp_path / "run", "--steps", 6, "--processes", 2, 1]
    done = run_example("multi_host.py", "--corpus", corpus, *small)
    first, last = map(float, re.search(r"loss (.+) to (.+) in one process", done.stdout).groups())
    assert last < first


@pytest.mark.slow
def test_custom_tokenizer(tmp_path, corpus):
    small = ["--directory", tmp_path / "run", "--vocab-size", 300]
    done = run_example("custom_tokenizer.py", "--corpus", corpus, *small)
    assert "passed 16 checks" in done.stdout
    name_parts, bpe = (float(share) for share in re.findall(r"token, (.+)% of words", done.stdout))
    assert name_parts == 100 > bpe


@pytest.fixture(scope="module")
def name_parts():
    with pytest.MonkeyPatch.context() as patch:
        return load_example("custom_tokenizer", patch).train_name_parts([SOURCE], 300)


@given(text=hard_texts | byte_strings)
def test_custom_tokenizer_is_lossless(name_parts, text):
    result = tokjax.encode_result(name_parts, text, disallowed_special=())
    assert tokjax.decode_bytes(name_parts, result.ids, skip_special_tokens=True) == to_utf8(text)
    for id_, span in zip(result.ids[:-1].tolist(), result.offsets, strict=False):
        assert tokjax.offsets.span_bytes(text, span) == tokjax.id_to_bytes(name_parts, id_)


def test_custom_tokenizer_splits_names(name_parts):
    result = tokjax.encode_result(name_parts, " parseStatus(first_line)", add_special_tokens=False)
    assert [t for t in result.tokens if t.strip("_()")] == [" parse", "Status", "first", "line"]
