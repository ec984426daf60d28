"""Tests of encoding, counting and writing with worker processes: the results equal those of one thread."""

import json

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.remote_work import work_in_worker_processes
from tests.support.text_strategies import any_strings, byte_strings, hard_texts
from tokjax._util import threads, worker_processes
from tokjax.bpe import array_engine
from tokjax.errors import DisallowedSpecialTokenError
from tokjax.models import word_engine
from tokjax.trainer import count_pretokens, counting, train_wordpiece

pytestmark = pytest.mark.skipif(not threads.can_start_workers(), reason="workers need memfd_create")
MERGES = [("▁", "l"), ("o", "w"), ("▁l", "ow")]


def make_metaspace_tokenizer():
    tokens = [f"<0x{i:02X}>" for i in range(256)] + ["▁", "l", "o", "w", "▁l", "ow", "▁low"]
    return tokjax.metaspace_bpe({token: id_ for id_, token in enumerate(tokens)}, MERGES)


TOKENIZER_MAKERS = {
    "byte-level": lambda tokenizer, **_: tokenizer,
    "merges": lambda ranks, trained, **_: tokjax.byte_level_bpe(ranks, merges=trained.merges),
    "custom pattern": lambda ranks, **_: tokjax.byte_level_bpe(ranks, pattern=r"\w+|\W"),
    "metaspace": lambda **_: make_metaspace_tokenizer(),
    "dropout": lambda tokenizer, **_: tokjax.models.with_dropout(tokenizer, 0.3, seed=1),
    "classic": lambda **_: tokjax.word_bpe(["<unk>", *"lowers", "lo"], [("l", "o")], end_of_word=None),
    "wordpiece": lambda corpus, **_: train_wordpiece(corpus, vocab_size=300, progress=False).tokenizer,
}


@pytest.fixture(scope="module", params=TOKENIZER_MAKERS)
def any_tokenizer(request, tokenizer, trained, corpus):
    ranks = dict(tokenizer.vocabulary.ordinary)
    make = TOKENIZER_MAKERS[request.param]
    return make(tokenizer=tokenizer, ranks=ranks, trained=trained, corpus=corpus)


@pytest.fixture(scope="module", autouse=True)
def small_chunks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(array_engine, "FEW_CHARACTERS", -1)
        patch.setattr(word_engine, "FEW_CHARACTERS", -1)
        patch.setattr(array_engine.ArrayEngine, "_is_loop_faster", lambda *_: False)
        patch.setattr(array_engine, "CHUNK_CHARACTERS", 40)
        patch.setattr(array_engine, "DROPOUT_CHUNK_CHARACTERS", 40)
        patch.setattr(word_engine, "CHUNK_CHARACTERS", 40)
        yield


@get_max_examples(50)
@given(texts=st.lists(hard_texts | byte_strings | any_strings, min_size=1, max_size=6))
def test_batches_equal(any_tokenizer, texts):
    texts = [*texts, "low lower " * 20]
    options = {"disallowed_special": (), "allowed_special": "all"}
    expected = tokjax.encode_batch_result(any_tokenizer, texts, threads=1, **options)
    with work_in_worker_processes() as calls:
        batch = tokjax.encode_batch_result(any_tokenizer, texts, threads=2, **options)
    assert calls
    assert list(batch) == list(expected)


def test_new_pretokens_are_merged_in_the_worker(plain_tokenizer, corpus):
    fresh = tokjax.byte_level_bpe(dict(plain_tokenizer.vocabulary.ordinary))
    for texts in (corpus, [text[::-1] for text in corpus], ["x" * 500, "a\0b" * 50]):
        with work_in_worker_processes():
            ids = tokjax.encode_to_array(fresh, texts, threads=2).ids
        np.testing.assert_array_equal(ids, tokjax.encode_to_array(plain_tokenizer, texts, threads=1).ids)


def test_worker_gets_the_cache_of_a_used_tokenizer(plain_tokenizer, corpus):
    fresh = tokjax.byte_level_bpe(dict(plain_tokenizer.vocabulary.ordinary))
    tokjax.encode_to_array(fresh, [text * 9 for text in corpus], threads=1)
    with work_in_worker_processes():
        ids = tokjax.encode_to_array(fresh, corpus, threads=2).ids
    np.testing.assert_array_equal(ids, tokjax.encode_to_array(plain_tokenizer, corpus, threads=1).ids)


@pytest.mark.parametrize(("suffix", "pattern"), [(".txt", "gpt2"), (".jsonl", r"\w+|\W")])
def test_counts_equal(suffix, pattern, tmp_path, corpus, monkeypatch):
    path = tmp_path / f"corpus{suffix}"
    lines = [json.dumps({"text": f"low {i} lower"}) for i in range(200)]
    text = "<|endoftext|>".join(corpus * 5) + "x" * 300
    path.write_text("\n".join(lines) if suffix == ".jsonl" else text, "utf-8")
    monkeypatch.setattr(counting, "_CHUNK_BYTES", 300)
    options = {"special_tokens": ["<|endoftext|>"], "pattern": pattern, "workers": 2, "progress": False}
    expected = count_pretokens(path, **options)
    earlier_workers = {*worker_processes._workers}
    with work_in_worker_processes() as calls:
        counts = count_pretokens(path, **options)
    assert calls.count("count") > 3
    assert calls[-1] == "to_counted_pretokens"
    assert counts == expected
    assert counts.files == expected.files
    assert any(worker.is_alive for worker in worker_processes._workers)
    assert len({*worker_processes._workers} - earlier_workers) <= 1  # the same worker did all calls


@pytest.mark.parametrize("is_text", [False, True])
def test_datasets_equal(is_text, tokenizer, tmp_path, corpus):
    field = tokjax.RawTextField() if is_text else tokjax.PackedTokenField(tokenizer)
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(text.replace("\n", " ") for text in corpus * 5), "utf-8")
    tokjax.write_dataset(path, field, tmp_path / "one", separator="\n", workers=1, progress=False)
    with work_in_worker_processes() as calls:
        tokjax.write_dataset(path, field, tmp_path / "two", separator="\n", workers=2, progress=False)
    assert calls
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "two").iterdir())
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_errors_of_the_worker_name_the_document(tokenizer, tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("low\nlow <|pad|>\n", "utf-8")
    field = tokjax.PackedTokenField(tokenizer)
    messages = []
    for workers in (1, 2):
        with work_in_worker_processes(), pytest.raises(DisallowedSpecialTokenError) as error:
            tokjax.write_dataset(
                path, field, tmp_path / str(workers), separator="\n", workers=workers, progress=False
            )
        messages.append(str(error.value))
    assert messages[0] == messages[1]
