"""Tests of writers that are killed between any two changes of the file system.

After each kill the directory must be readable, or rejected with a clear error, and the next call must finish
or undo the interrupted one.
"""

import shutil
from functools import partial

import numpy as np
import pytest

import tokjax
from tests.datasets.test_columns import COLUMNS, make_records
from tests.datasets.test_preference_pairs import make_texts
from tests.support.kill_points import count_kill_points
from tests.support.loader_cases import are_equal
from tokjax._util.locks import keep_locked
from tokjax.trainer import load_training_bundle, save_training_bundle, train_bpe

TOKENIZER = tokjax.byte_level(["</s>"], eos_token="</s>")
FIELD = tokjax.PackedTokenField(TOKENIZER, chunk_tokens=4)


def restore_directory(template, root):
    """Replaces `root` by a copy of `template`."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(template, root)


@pytest.fixture
def template(tmp_path):
    directory = tmp_path / "template"
    directory.mkdir()
    return directory


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


@pytest.mark.parametrize("writer", ["write", pytest.param("merge", marks=pytest.mark.slow)])
def test_replacing_a_dataset(writer, template, root, tmp_path):
    (tmp_path / "old.txt").write_text("old text")
    tokjax.write_dataset(str(tmp_path / "old.txt"), FIELD, template / "data")
    tokjax.write_dataset(["part"], FIELD, tmp_path / "part")
    data = root / "data"
    replace, documents = {
        "write": (lambda: tokjax.write_dataset(["new"], FIELD, data, overwrite=True), 1),
        "merge": (lambda: tokjax.datasets.merge_datasets([tmp_path / "part"] * 2, data, overwrite=True), 2),
    }[writer]
    for point in count_kill_points(replace, lambda: restore_directory(template, root)):
        if data.exists():
            tokjax.open_dataset(data).verify()
        else:
            with pytest.raises(
                tokjax.errors.DatasetIncompleteError,
                match=r"its writer was killed while replacing .* rename data\.replaced\.partial to data",
            ):
                tokjax.open_dataset(data)
        replace()
        dataset = tokjax.open_dataset(data)
        dataset.verify()
        assert len(dataset) == documents, point
        assert [entry.name for entry in root.iterdir()] == ["data"], point
        assert not [entry.name for entry in data.iterdir() if entry.name.startswith(".")], point


def test_writing_again_after_a_kill(template, root):
    tokjax.write_dataset(["old"], FIELD, template / "data")
    data = root / "data"
    replace = lambda: tokjax.write_dataset(["new"], FIELD, data, overwrite=True)  # noqa: E731
    for _ in count_kill_points(replace, lambda: restore_directory(template, root)):
        is_new = data.exists() and tokjax.decode(TOKENIZER, tokjax.open_dataset(data)[0]).startswith("new")
        texts = ["new"] if is_new else ["old"]
        # An interrupted replacement is undone first, so `texts` are already there and nothing is written.
        tokjax.write_dataset(texts, FIELD, data)
        assert len(tokjax.open_dataset(data)) == 1


@pytest.mark.parametrize(
    "call",
    ["merge", "convert", *(pytest.param(call, marks=pytest.mark.slow) for call in ("columns", "pairs"))],
)
def test_the_same_call_finishes_a_dataset(call, template, root, tmp_path):
    """What any call left never needs `overwrite`, and the files are those of an uninterrupted call."""
    tokjax.write_dataset([(7, "a")], FIELD, tmp_path / "part")
    tokjax.datasets.export_dataset(tokjax.open_dataset(tmp_path / "part"), tmp_path / "ids.npy")
    with_columns = tokjax.PackedTokenField(TOKENIZER, columns=COLUMNS)
    pairs = tokjax.datasets.PreferenceField(TOKENIZER, max_tokens=20)
    write = {
        "merge": lambda: tokjax.datasets.merge_datasets([tmp_path / "part"], root / "data"),
        "convert": lambda: tokjax.datasets.convert_dataset(tmp_path / "ids.npy", TOKENIZER, root / "data"),
        "columns": lambda: tokjax.write_dataset(make_records(12), with_columns, root / "data", shard_size=60),
        "pairs": lambda: tokjax.write_dataset(make_texts(14), pairs, root / "data", shard_size=200),
    }[call]
    expected, has_manifest = None, []
    for _ in count_kill_points(write, lambda: restore_directory(template, root)):
        has_manifest += [path.parent.name for path in root.glob("*/manifest.json")]
        counts = write()
        files = {path.name: path.read_bytes() for path in (root / "data").iterdir()}
        expected = expected or (counts, files)
        assert (counts, files) == expected
        assert write() == counts
    assert set(has_manifest) == {"data.incomplete", "data"}
    tokjax.open_dataset(root / "data").verify()


@pytest.mark.parametrize("call", ["merge", "convert"])
def test_another_dataset_is_not_replaced(call, tmp_path):
    for name in ("data", "other"):
        tokjax.write_dataset([name], FIELD, tmp_path / name)
    tokjax.datasets.export_dataset(tokjax.open_dataset(tmp_path / "other"), tmp_path / "ids.npy")
    replace = {
        "merge": partial(tokjax.datasets.merge_datasets, [tmp_path / "other"]),
        "convert": partial(tokjax.datasets.convert_dataset, tmp_path / "ids.npy", TOKENIZER),
    }[call]
    with pytest.raises(tokjax.errors.DatasetExistsError, match=r"data exists; to replace it"):
        replace(tmp_path / "data")


def test_plans(tmp_path):
    tokjax.write_dataset(make_records(40), FIELD, tmp_path / "data")
    dataset = tokjax.open_dataset(tmp_path / "data")
    plans = tmp_path / "plans"

    def load():
        return tokjax.PlannedLoader(dataset, batch_size=4, block_size=40, window=7, plan_dir=plans, pad_id=0)

    expected = load().batch_at(3)
    for _ in count_kill_points(load, lambda: shutil.rmtree(plans, ignore_errors=True)):
        loader = load()
        assert are_equal(loader.batch_at(3), expected)
        documents = np.concatenate([np.unique(batch.document_ids) for batch in loader])
        assert sorted(documents[documents >= 0].tolist()) == list(range(40))
        assert len(list(plans.iterdir())) == 3


def test_replacing_a_bundle(template, root):
    old, new = (train_bpe([text] * 3, vocab_size=258, progress=False) for text in ("old odd", "new net"))
    save_training_bundle(old, template / "bundle")
    bundle = root / "bundle"
    replace = lambda: save_training_bundle(new, bundle, overwrite=True)  # noqa: E731
    for point in count_kill_points(replace, lambda: restore_directory(template, root)):
        if bundle.exists():
            assert load_training_bundle(bundle).trained.merges in (old.merges, new.merges)
        else:
            with pytest.raises(ValueError, match=r"or rename bundle\.replaced\.partial to bundle"):
                load_training_bundle(bundle)
        replace()
        assert load_training_bundle(bundle).trained.merges == new.merges
        assert [entry.name for entry in root.iterdir()] == ["bundle"], point


def test_old_and_new_megatron_files_are_never_mixed(template, root, tmp_path):
    datasets = {}
    for name, texts in {"old": ["aaaa", "b"], "new": ["cc", "ddd"]}.items():  # (both have the same size)
        tokjax.write_dataset(texts, FIELD, tmp_path / name)
        datasets[name] = tokjax.open_dataset(tmp_path / name)
    tokjax.datasets.export_dataset(datasets["old"], template / "ids.idx")

    def replace():
        tokjax.datasets.export_dataset(datasets["new"], root / "ids.idx", overwrite=True)

    def read():
        if not (root / "ids.idx").exists():
            with pytest.raises(tokjax.errors.SourceError, match=r"ids\.bin: ids\.idx is missing"):
                tokjax.datasets.convert_dataset(root / "ids.idx", TOKENIZER, root / "back")
            return None
        tokjax.datasets.convert_dataset(root / "ids.idx", TOKENIZER, root / "back", overwrite=True)
        back = tokjax.open_dataset(root / "back")
        return [back[i].tolist() for i in range(len(back))]

    complete = [[dataset[i].tolist() for i in range(2)] for dataset in datasets.values()]
    observed = []
    for _ in count_kill_points(replace, lambda: restore_directory(template, root)):
        observed.append(read())
        replace()
        assert read() == complete[1]
    assert all(documents in (None, *complete) for documents in observed)
    assert complete[0] in observed
    assert None in observed


def test_full_disk_keeps_the_old_export(template, monkeypatch, tmp_path):
    tokjax.write_dataset(["aaaa"], FIELD, tmp_path / "data")
    dataset = tokjax.open_dataset(tmp_path / "data")
    files = tokjax.datasets.export_dataset(dataset, template / "ids.idx")
    before = [file.read_bytes() for file in files]

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*ids\.bin'"):
        tokjax.datasets.export_dataset(dataset, template / "ids.idx", overwrite=True)
    assert [file.read_bytes() for file in files] == before
    assert sorted(template.iterdir()) == sorted(files)
    with pytest.raises(OSError, match=r"No space left on device: '.*progress\.jsonl'"):
        tokjax.write_dataset(["a"], FIELD, tmp_path / "full")


def test_old_and_new_tokenizer_files_are_never_mixed(template, root):
    old, new = (
        train_bpe([text] * 3, vocab_size=258, pattern="gpt2", progress=False).tokenizer
        for text in ("old odd", "new net")
    )
    tokjax.formats.export_tokenizer(old, template, "gpt2")
    restore_directory(template, root)
    tokjax.formats.export_tokenizer(new, root, "gpt2")
    complete = [tokjax.fingerprint(tokjax.load_tokenizer(directory)) for directory in (template, root)]
    for _ in count_kill_points(
        lambda: tokjax.formats.export_tokenizer(new, root, "gpt2"), lambda: restore_directory(template, root)
    ):
        try:
            loaded = tokjax.load_tokenizer(root)
        except tokjax.errors.TokenizerFormatError:
            continue
        assert tokjax.fingerprint(loaded) in complete


def test_temporary_files_of_a_killed_writer_are_deleted(template, root):
    tokenizer = train_bpe(["old odd"] * 3, vocab_size=258, pattern="gpt2", progress=False).tokenizer
    names = ["merges.txt", "tokenizer.json", "tokenizer_config.json", "vocab.json"]

    def export():
        tokjax.formats.export_tokenizer(tokenizer, root, "gpt2")
        tokjax.formats.export_tokenizer(tokenizer, root, "huggingface")

    num_temporary = 0
    for _ in count_kill_points(export, lambda: restore_directory(template, root)):
        num_temporary += any(entry.name.endswith(".partial") for entry in root.iterdir())
        export()
        assert sorted(entry.name for entry in root.iterdir()) == names
    assert num_temporary
    restore_directory(template, root)
    live = root / ".vocab.json.0123.partial"
    with keep_locked(live):
        export()
        assert live.exists()
    export()
    assert not live.exists()
