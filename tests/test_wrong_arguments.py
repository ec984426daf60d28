"""Wrong arguments of many functions raise the library's own error, which names the value."""

import io
import os
import pickle
import re
import stat
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import tokjax
from tests.cli.test_hints import run_rejected
from tests.support.counted_files import PACKED, TOKENIZER
from tests.support.rejections import rejects
from tokjax.trainer import load_training_bundle, save_training_bundle, train_bpe

NOT_PATHS = [None, 3, b"x", ["x"], "", "a\0b", True]
PATH_FUNCTIONS = {
    "write_dataset": lambda path, _: tokjax.write_dataset(["a"], PACKED, path),
    "open_dataset": lambda path, _: tokjax.open_dataset(path),
    "merge_datasets": lambda path, data: tokjax.datasets.merge_datasets([data, data], path),
    "export_dataset": lambda path, data: tokjax.datasets.export_dataset(
        tokjax.open_dataset(data), path, "npy"
    ),
    "convert_dataset": lambda path, data: tokjax.datasets.convert_dataset(path, TOKENIZER, data),
    "load_tokenizer": lambda path, _: tokjax.load_tokenizer(path),
    "save_tokenizer": lambda path, _: tokjax.save_tokenizer(TOKENIZER, path),
    "export_tokenizer": lambda path, _: tokjax.formats.export_tokenizer(TOKENIZER, path, "huggingface"),
    "save_training_bundle": lambda path, _: save_training_bundle(
        train_bpe(["low"], vocab_size=256, progress=False), path
    ),
    "download_dir": lambda path, data: tokjax.open_dataset(f"file://{data}", download_dir=path or 3),
    "read_conll": lambda path, _: tokjax.corpus.read_conll(path),
    "plan_dir": lambda path, data: tokjax.PlannedLoader(
        tokjax.open_dataset(data), batch_size=1, block_size=128, plan_dir=path or 3
    ),
}


@pytest.fixture
def data(tmp_path):
    tokjax.write_dataset(["a" * 99] * 4, PACKED, tmp_path / "data")
    return tmp_path / "data"


@pytest.mark.parametrize("name", PATH_FUNCTIONS)
def test_arguments_that_are_no_paths(data, name):
    for value in NOT_PATHS:
        with pytest.raises(tokjax.errors.TokjaxError):
            PATH_FUNCTIONS[name](value, data)


@pytest.mark.parametrize(
    "name", sorted(PATH_FUNCTIONS.keys() - {"read_conll", "load_tokenizer", "convert_dataset"})
)
def test_tildes_are_not_expanded(data, monkeypatch, name):
    monkeypatch.chdir(data.parent)
    message = f"'~/low' begins with ~, which is not expanded; pass '{Path('~/low').expanduser()}'"
    with rejects(re.escape(message)):
        PATH_FUNCTIONS[name]("~/low", data)
    assert not (data.parent / "~").exists()


def test_tildes_of_commands(data, monkeypatch):
    """A shell expands `~` at the start of an argument, but not in `--out=~/low`."""
    monkeypatch.chdir(data.parent)
    Path("c.txt").write_text("low lower")
    tokjax.save_tokenizer(TOKENIZER, "t.json")
    for arguments in (
        ["train", "c.txt", "--out=~/low/t.json"],
        ["pack", "c.txt", "--field=raw", "--out=~/low"],
        ["pack", "~/low", "--field=raw", "--out=data"],
        ["report", "c.txt", "-t", "t.json", "--json=~/low/r.json"],
    ):
        assert "begins with ~, which is not expanded" in run_rejected(*arguments)
    assert not Path("~").exists()


def test_names_that_begin_with_a_tilde(data, monkeypatch):
    monkeypatch.chdir(data.parent)
    Path("~low").write_text("low")
    assert list(tokjax.corpus.read_documents("~low", None)) == [b"low"]
    tokjax.write_dataset(["low"], PACKED, "./~/low")
    assert len(tokjax.open_dataset("./~/low")) == 1


@pytest.mark.parametrize("name", ["write_dataset", "open_dataset", "merge_datasets"])
def test_root_of_the_file_system(data, name):
    with rejects("^'/' is the root of a file system; pass a dir"):
        PATH_FUNCTIONS[name]("/", data)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no such pipes")
@pytest.mark.parametrize("name", ["a.bin", "a.idx", "a.npy", "a.array_record", "a.conll", "a.jsonl"])
def test_pipes_and_devices(tmp_path, name):
    """A pipe without a writer would block its reader, and a device has no end."""
    os.mkfifo(tmp_path / "pipe")
    for target in (tmp_path / "pipe", Path("/dev/zero")):
        path = tmp_path / f"{target.name}-{name}"
        path.symlink_to(target)
        functions = {
            ".conll": tokjax.corpus.read_conll,
            ".jsonl": tokjax.corpus.read_annotations,
        }
        convert = partial(tokjax.datasets.convert_dataset, tokenizer=TOKENIZER, out=tmp_path / "out")
        with rejects("is a pipe or a device, not a regular file"):
            functions.get(path.suffix, convert)(path)


def test_loaders_and_datasets(data):
    dataset = tokjax.open_dataset(data)
    loader = tokjax.PackedTokenLoader(dataset, batch_size=1)
    state = loader.get_state()
    wrong = {
        "shard_size must be at most 9223372036854775807": lambda: tokjax.write_dataset(
            ["a"], PACKED, data, shard_size=10**30
        ),
        "max_segments must be at most": lambda: tokjax.packing.plan_packing([1], 8, max_segments=10**30),
        "length must be at most 2147483647": lambda: tokjax.datasets.SequenceLoader(
            dataset, batch_size=1, length=1 << 40
        ),
        "state must be a value of get_state, or its JSON": lambda: loader.set_state("[" * 100_000),
        r"the state's seed is \[0, 1\]": lambda: loader.set_state({**state, "seed": np.arange(2)}),
        "start must be an integer, not 'a'": lambda: dataset.read("a", "b"),
        "id must be an integer, not 'a'": lambda: tokjax.id_to_token(TOKENIZER, "a"),
        "token must be str or bytes, not list": lambda: tokjax.token_to_id(TOKENIZER, ["a"]),
        "ids must be integers, not bool": lambda: tokjax.decode(TOKENIZER, [True]),
        "loader must be a PlannedLoader": lambda: tokjax.datasets.describe_schedule(loader, steps=[1]),
        "the single template must be a str or a list": lambda: tokjax.make_template(3),
        "step must be a function of a batch": lambda: tokjax.datasets.compile_ahead(3, loader),
        "file must be open in binary mode": lambda: tokjax.corpus.find_chunk_boundaries(data, 3, b"x"),
        "dataset_type must be a class": lambda: tokjax.open_dataset(data, dataset_type="x"),
        "has no implementation for 'str'": lambda: tokjax.open_dataset(data, tokenizer="a.json"),
        "report must be a VocabularyReport": lambda: tokjax.reports.report_tables(3),
        "progress must be True or False": lambda: tokjax.trainer.count_pretokens(["a"], progress=np.ones(2)),
        "source must be a path, paths, or an": lambda: tokjax.trainer.count_pretokens(np.array(None)),
        "text 0 must be str or bytes": lambda: tokjax.align.trim_offsets(np.array([[1, 2]]), [3]),
        "spans must be an iterable, not 3": lambda: tokjax.align.span_columns(3, ["A"]),
    }
    for message, call in wrong.items():
        with pytest.raises(tokjax.errors.TokjaxError, match=message):
            call()


def test_directory_in_place_of_a_plan(data, tmp_path):
    plan = partial(
        tokjax.PlannedLoader,
        tokjax.open_dataset(data),
        batch_size=1,
        block_size=128,
        plan_dir=tmp_path / "plans",
    )
    plan()
    pieces = next((tmp_path / "plans").glob("*.pieces"))
    pieces.unlink()
    pieces.mkdir()
    with rejects("pieces is a directory; pass the path of a file"):
        plan()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_are_not_replaced(data, tmp_path):
    """A rename would replace a pipe, and as root also a device, by a regular file."""
    os.mkfifo(tmp_path / "a.idx")
    (tmp_path / "a.npy").symlink_to(tmp_path / "a.idx")
    dataset = tokjax.open_dataset(data)
    for write in (
        lambda: tokjax.save_tokenizer(tokjax.byte_level(), tmp_path / "a.idx"),
        lambda: tokjax.datasets.export_dataset(dataset, tmp_path / "a.idx", overwrite=True),
        lambda: tokjax.datasets.export_dataset(dataset, tmp_path / "a.npy", overwrite=True),
    ):
        with rejects(r"a\.(idx|npy) is a pipe or a device; pass the path of a file"):
            write()
    assert stat.S_ISFIFO((tmp_path / "a.npy").stat().st_mode)


def test_batches_that_are_downloaded_ahead_can_be_pickled(data):
    batches = tokjax.PackedTokenLoader(
        tokjax.open_dataset(f"file://{data}", fetch_ahead=1), batch_size=1
    ).repeat(1)
    next(batches)
    copy = pickle.loads(pickle.dumps(batches))
    assert np.array_equal(next(copy).ids, next(batches).ids)


def test_sizes_that_do_not_fit_memory(data):
    dataset, segments, pad = (
        tokjax.open_dataset(data),
        np.array([[1, 2, 0]]),
        tokjax.quick.batch_pad_sequences,
    )
    for message, call in {
        "max_segments must be at most 2147483646": lambda: tokjax.packing.cu_seqlens(segments, 2**31),
        "batch_size must be at most 2147483647": lambda: tokjax.PlannedLoader(
            dataset, batch_size=2**40, block_size=128
        ),
        r"\[0, 1099511627776\) is out of range: the dataset has": lambda: dataset.read(0, 2**40),
        "max_length must be at most": lambda: pad(segments, np.array([1]), 2**40, 0),
        "max_length must be at most 2147483647": lambda: tokjax.masks.create_attention_mask(
            segments[0], 2**40
        ),
    }.items():
        with rejects(message):
            call()


def test_scalars_in_place_of_rows(data):
    scalar = np.array(3)
    loader = tokjax.PlannedLoader(tokjax.open_dataset(data), batch_size=1, block_size=128)
    for message, call in {
        "takes a batch, a Ragged or rows": lambda: tokjax.decode_batch(TOKENIZER, scalar),
        "rows must be rows of ids": lambda: tokjax.ragged_from_rows(scalar),
        "must be a str or a list": lambda: tokjax.make_template(scalar),
        "steps must be a list": lambda: tokjax.datasets.describe_schedule(loader, scalar),
        "boundaries must be lengths": lambda: tokjax.LengthBuckets(scalar),
        "must be an iterable, not 5; pass a list": lambda: tokjax.corpus.find_chunk_boundaries(
            io.BytesIO(b"a"), 2, 5
        ),
        "'/' is the root": lambda: load_training_bundle("/"),
        "have a thread, and can't be pickled": lambda: pickle.dumps(
            tokjax.datasets.prefetch_to_device(iter([]))
        ),
    }.items():
        with rejects(message):
            call()
