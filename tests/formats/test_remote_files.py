"""Tests of tokenizer files at URLs, in fsspec's file system in memory and on a server of the tests."""

import uuid

import pytest

import tokjax
from tests.support.hub_server import HubServer
from tokjax.cli.options import load_tokenizer_with_eos

fsspec = pytest.importorskip("fsspec")
NotFoundError, FormatError = tokjax.errors.TokenizerNotFoundError, tokjax.errors.TokenizerFormatError
TEMPLATE = "{{ messages[0].content }}"


@pytest.fixture
def url():
    return f"memory://{uuid.uuid4().hex}/model"


def copy(source, url):
    system, path = fsspec.core.url_to_fs(url)
    for file in source.iterdir():
        system.pipe_file(f"{path}/{file.name}", file.read_bytes())
    return system


@pytest.mark.parametrize(("format_", "file"), [("huggingface", "tokenizer.json"), ("gpt2", "merges.txt")])
def test_directories_and_files(url, tmp_path, tokenizer, format_, file):
    tokjax.formats.export_tokenizer(tokenizer, tmp_path, format_)
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    copy(tmp_path, url)
    expected = tokjax.load_tokenizer(tmp_path)
    assert tokjax.eos_id(expected) is not None  # from the configuration file
    for target in (url, f"{url}/", f"{url}/{file}"):
        assert tokjax.load_tokenizer(target) == expected
    assert (
        tokjax.quick.quick_tokenize(url, "low").token_ids.tolist() == tokjax.encode(expected, "low").tolist()
    )
    assert tokjax.formats.load_chat_template(url) == TEMPLATE


def test_commands_with_another_eos_token(url, tmp_path, tokenizer):
    for name in ("huggingface", "tokjax"):
        tokjax.formats.export_tokenizer(tokenizer, tmp_path / name, name)
        copy(tmp_path / name, f"{url}/{name}")
        loaded = load_tokenizer_with_eos(f"{url}/{name}", "<|pad|>")
        assert tokjax.eos_id(loaded) == tokjax.token_to_id(tokenizer, "<|pad|>")


@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("https://huggingface.co/a/b-1.5", "hf://a/b-1.5"),
        ("https://huggingface.co/a/b/?library=x", "hf://a/b"),
        ("https://hf.co/a/b/tree/v1", "hf://a/b@v1"),
        ("https://huggingface.co/a/b/blob/main/x/tokenizer.json", "hf://a/b@main/x/tokenizer.json"),
    ],
)
def test_pages_of_the_hub(page, name):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=f"is a page of the .* hub; pass '{name}'$"):
        tokjax.load_tokenizer(page)


def test_only_needed_files_are_read(url, tmp_path, tokenizer, monkeypatch):
    tokjax.formats.export_tokenizer(tokenizer, tmp_path, "huggingface")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "tokenizer.model").write_bytes(b"x")
    system = copy(tmp_path, url)
    opened, cat_file = [], type(system).cat_file

    def record(self, file, **options):
        opened.append(file.rpartition("/")[2])
        return cat_file(self, file, **options)

    monkeypatch.setattr(type(system), "cat_file", record)
    for target in (url, f"{url}/tokenizer.json"):
        opened.clear()
        tokjax.load_tokenizer(target)
        assert opened[-1] == "tokenizer.json"
        assert not {"tokenizer.model", "model.safetensors"} & set(opened)


def test_http(tmp_path, tokenizer, monkeypatch):
    pytest.importorskip("aiohttp")
    for format_ in ("huggingface", "gpt2"):
        tokjax.formats.export_tokenizer(tokenizer, tmp_path, format_)
    monkeypatch.setenv("no_proxy", "*")
    with HubServer() as server:
        server.add("a/b", {path.name: path.read_bytes() for path in tmp_path.iterdir()})
        url = f"{server.url}/a/b/resolve/main"
        for name in ("tokenizer.json", "vocab.json"):
            assert tokjax.load_tokenizer(f"{url}/{name}") == tokjax.load_tokenizer(tmp_path / name)
        for missing in (f"{url}/x.json", f"{url}/x"):
            with pytest.raises(NotFoundError, match=f"^{missing} can't be read: FileNotFoundError"):
                tokjax.load_tokenizer(missing)
        server.status = 503  # also of a configuration file: the tokenizer would be a different one without it
        with pytest.raises(NotFoundError, match="tokenizer.json can't be read: ClientResponseError: 503"):
            tokjax.load_tokenizer(f"{url}/tokenizer.json")
    with pytest.raises(NotFoundError, match="tokenizer.json can't be read: ClientConnectorError: "):
        tokjax.load_tokenizer(f"{url}/tokenizer.json")


def test_errors(url, tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"model":')
    (tmp_path / "empty.txt").write_text("")
    copy(tmp_path, url)
    for path in (url, f"{url}/", f"{url}/tokenizer.json"):
        with pytest.raises(FormatError, match=f"^copy of {url}/tokenizer.json: not JSON, or truncated"):
            tokjax.load_tokenizer(path)
    with pytest.raises(NotFoundError, match=f"^{url}x can't be read: FileNotFoundError"):
        tokjax.load_tokenizer(f"{url}x")
    with pytest.raises(NotFoundError, match=f"^{url}/x.json can't be read: FileNotFoundError"):
        tokjax.load_tokenizer(f"{url}/x.json")
    (tmp_path / "tokenizer.json").rename(tmp_path / "x.bin")
    copy(tmp_path, f"{url}/other")
    with pytest.raises(
        FormatError, match=rf"^{url}/other: contains no tokenizer .* only \['empty.txt', 'x.bin'\]"
    ):
        tokjax.load_tokenizer(f"{url}/other")
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="is a URL, whose files are not cached; copy them"
    ):
        tokjax.formats.prefetch_tokenizer(url)
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="unknown://a can't be read: .*fsspec supports"
    ):
        tokjax.load_tokenizer("unknown://a")


def test_size_limit(url, tmp_path, tokenizer):
    tokjax.formats.export_tokenizer(tokenizer, tmp_path, "huggingface")
    copy(tmp_path, url)
    with (
        tokjax.limits(file_bytes=1000),
        pytest.raises(
            FormatError, match=f"^{url}: the files have at least [0-9,]+ bytes; the limit is 1,000; if you"
        ),
    ):
        tokjax.load_tokenizer(url)
