"""Uses the feature that an extra of tokjax enables: `uses.py EXTRA`.

With `--missing`, the extra is not installed, and the error must name it: `uses.py EXTRA --missing`.
"""

import argparse
import json
import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import tokjax

TEXTS = ["the cat sat", "naïve café"]
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"


def use_parquet(directory):
    path = directory / "texts.parquet"
    path.touch()
    if find_spec("pyarrow"):
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS}), path)
    assert list(tokjax.corpus.read_documents(path, None)) == TEXTS


def use_zstd(directory):
    path = directory / "texts.txt.zst"
    # A frame that stores its contents without compression.
    path.write_bytes(bytes.fromhex("28b52ffd 20 03 19 0000") + b"low")
    assert list(tokjax.corpus.read_documents(path, None)) == [b"low"]


def use_huggingface(directory):
    model = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["the", -1.0], [" cat", -2.0]]}
    (directory / "tokenizer.json").write_text(
        json.dumps({"version": "1.0", "added_tokens": [], "model": model})
    )
    tokenizer = tokjax.load_tokenizer(directory / "tokenizer.json")
    assert tokjax.encode(tokenizer, "the cat").tolist() == [1, 2]


def use_hub(directory):
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(directory)}
    commit, repository = "0" * 40, directory / "models--owner--name"
    for path in (repository / "refs", repository / "snapshots" / commit):
        path.mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    tokjax.save_tokenizer(tokjax.byte_level(), path / "tokenizer.tokjax.json")
    assert tokjax.load_tokenizer("owner/name") == tokjax.byte_level()


def use_tiktoken(directory):
    plugins = directory / "tiktoken_ext"  # encodings of a plug-in need no download
    plugins.mkdir()
    (plugins / "tiny.py").write_text(
        "def make_tiny():\n"
        "    ranks = {bytes([i]): i for i in range(256)}\n"
        "    return {'name': 'tiny', 'pat_str': '.', 'mergeable_ranks': ranks, 'special_tokens': {}}\n"
        "ENCODING_CONSTRUCTORS = {'tiny': make_tiny}\n"
    )
    sys.path.insert(0, str(directory))
    assert tokjax.encode(tokjax.load_tokenizer("tiktoken://tiny"), "a").tolist() == [97]


def use_chat(directory):
    messages = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
    chat = tokjax.encode_chat(tokjax.byte_level(), messages, TEMPLATE)
    assert tokjax.decode(tokjax.byte_level(), chat.result.ids) == "<user>2 + 2?\n<assistant>4\n"


def use_remote(directory):
    url = "memory://texts/corpus.txt"
    if find_spec("fsspec"):
        import fsspec

        with fsspec.open(url, "w") as file:
            file.write(TEXTS[1])
    assert b"".join(tokjax.corpus.read_documents(url, None)).decode() == TEXTS[1]


def use_grain(directory):
    operation = tokjax.pipelines.grain_map(str.upper)
    import grain.python as grain

    loader = grain.DataLoader(
        data_source=TEXTS,
        sampler=grain.SequentialSampler(len(TEXTS), grain.ShardOptions(0, 1)),
        operations=[operation],
    )
    assert list(loader) == [text.upper() for text in TEXTS]


def use_arrayrecord(directory):
    path = directory / "texts.array_record"
    path.touch()
    if find_spec("array_record"):
        from array_record.python.array_record_module import ArrayRecordWriter

        writer = ArrayRecordWriter(str(path), "group_size:1")
        # A tf.train.Example whose feature "text" is "low".
        writer.write(bytes.fromhex("0a11 0a0f 0a04") + b"text" + bytes.fromhex("1207 0a05 0a03") + b"low")
        writer.close()
    assert list(tokjax.corpus.read_documents(path, None)) == [b"low"]


USES = {
    name.removeprefix("use_"): function for name, function in globals().items() if name.startswith("use_")
}


def get_error(extra):
    """Uses an extra. Returns the text of the error if it is not installed, or `None` if it works."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            USES[extra](Path(directory))
        except tokjax.errors.MissingExtraError as error:
            return str(error)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extra", choices=USES)
    parser.add_argument("--missing", action="store_true")
    options = parser.parse_args()
    assert "site-packages" in tokjax.__file__, f"{tokjax.__file__} is not the installed tokjax"
    error = get_error(options.extra)
    if options.missing:
        assert error, f"{options.extra} works, although it was not installed"
        assert error.endswith(f"is not installed; pip install 'tokjax[{options.extra}]'"), error
    else:
        assert error is None, error
    print(f"{options.extra}: {error or 'works'}")


if __name__ == "__main__":
    main()
