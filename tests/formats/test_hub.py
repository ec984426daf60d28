"""Tests of tokenizers by name: repositories of the Hugging Face hub, on a server of the tests."""

import errno
import importlib
import inspect
import json
import os
import re
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import tokjax
from tests.support.hub_server import HubServer
from tests.support.sentencepiece_models import train_sentencepiece_models
from tokjax.cli.commands import _load_tokenizers

huggingface_hub = pytest.importorskip("huggingface_hub")
NotFoundError, FormatError = tokjax.errors.TokenizerNotFoundError, tokjax.errors.TokenizerFormatError
TEMPLATE, RAG_TEMPLATE = "{{ messages[0].content }}", "rag {{ messages[0].content }}"
WEIGHTS = "weights" * 10_000


@contextmanager
def change_settings(**settings):
    """Changes settings of the library, which reads them from the environment only when it is imported."""
    utils = importlib.import_module("huggingface_hub.utils")
    close = getattr(utils, "close_session", None) or utils.reset_sessions
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setattr(f"huggingface_hub.constants.{name}", value)
            patch.setattr(f"huggingface_hub.file_download.{name}", value, raising=False)  # versions below 1
        close()
        yield
    close()


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Starts a server, and directs the library to it, with an empty cache and no token."""
    for name in [name for name in os.environ if name.startswith(("HF_", "HUGGING", "TRANSFORMERS_"))]:
        monkeypatch.delenv(name)
    home = tmp_path / "home"
    monkeypatch.setenv("HF_HOME", str(home))  # of programs that a test starts
    monkeypatch.chdir(tmp_path)
    with (
        HubServer() as server,
        change_settings(
            ENDPOINT=server.url,
            HUGGINGFACE_CO_URL_TEMPLATE=server.url + "/{repo_id}/resolve/{revision}/{filename}",
            HF_HUB_CACHE=str(home / "hub"),
            HF_TOKEN_PATH=str(home / "token"),
            HF_HUB_OFFLINE=False,
        ),
    ):
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


@pytest.fixture(scope="module")
def files(tmp_path_factory, tokenizer):
    """Returns the files of a repository with a tokenizer in several formats, chat templates and weights."""
    directory = tmp_path_factory.mktemp("repository")
    for format_ in ("huggingface", "gpt2"):
        tokjax.formats.export_tokenizer(tokenizer, directory, format_)
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    config = json.loads(files["tokenizer_config.json"])
    files["tokenizer_config.json"] = json.dumps(config | {"pad_token": "<|pad|>"})
    files |= {"config.json": "{}", "model.safetensors": WEIGHTS, "model.bin": WEIGHTS, "README.md": "hello"}
    files |= {"chat_template.jinja": TEMPLATE, "additional_chat_templates/rag.jinja": RAG_TEMPLATE}
    return files


def write_files(files, directory):
    for name, data in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return directory


def set_offline():
    return change_settings(HF_HUB_OFFLINE=True)


class TestDownloads:
    def test_tokenizer_equals_that_of_a_directory(self, hub, files, tmp_path):
        hub.add("Qwen/Qwen3-8B", files)
        expected = tokjax.load_tokenizer(write_files(files, tmp_path / "local"))
        assert tokjax.pad_id(expected) is not None
        for name in (
            "Qwen/Qwen3-8B",
            "hf://Qwen/Qwen3-8B",
            "hf://models/Qwen/Qwen3-8B",
            "Qwen/Qwen3-8B@main",
        ):
            assert tokjax.load_tokenizer(name) == expected
        assert tokjax.load_tokenizer("Qwen/Qwen3-8B", "huggingface", pad_token=None) == expected
        ids = tokjax.quick.quick_tokenize("Qwen/Qwen3-8B", "low lower").token_ids
        assert ids.tolist() == tokjax.encode(expected, "low lower").tolist()

    def test_only_files_of_the_tokenizer_are_downloaded(self, hub, files):
        hub.add("a/b", files)
        tokjax.load_tokenizer("a/b")
        assert sorted(hub.downloads) == [
            "additional_chat_templates/rag.jinja",
            "chat_template.jinja",
            "tokenizer.json",
            "tokenizer_config.json",
        ]
        hub.requests.clear()
        tokjax.load_tokenizer("a/b")
        commit = hub.repositories["a/b"].revisions["main"]
        assert [request[:2] for request in hub.requests] == [
            ("GET", "/api/models/a/b/revision/main"),
            ("HEAD", "/a/b/resolve/main/tokenizer.json"),
        ]
        hub.requests.clear()
        tokjax.load_tokenizer(f"a/b@{commit}")
        assert [request[:2] for request in hub.requests] == [("GET", f"/api/models/a/b/revision/{commit}")]

    def test_other_formats(self, hub, files, tmp_path):
        model = train_sentencepiece_models()["bpe"].processor.serialized_model_proto()
        hub.add("a/pieces", {"tokenizer.model": model, "model.safetensors": WEIGHTS})
        assert tokjax.load_tokenizer("a/pieces") == tokjax.sentencepiece(model)
        assert hub.downloads == ["tokenizer.model"]
        pair = {
            name: data for name, data in files.items() if "jinja" not in name and name != "tokenizer.json"
        }
        hub.add("a/pair", pair)
        hub.downloads.clear()
        assert tokjax.load_tokenizer("a/pair") == tokjax.load_tokenizer(write_files(pair, tmp_path / "pair"))
        assert sorted(hub.downloads) == ["config.json", "merges.txt", "tokenizer_config.json", "vocab.json"]

    def test_paths_in_a_repository(self, hub, files, tmp_path, tokenizer):
        tokjax.formats.export_tokenizer(tokenizer, tmp_path / "x.tiktoken", "tiktoken")
        ranks = (tmp_path / "x.tiktoken").read_bytes()
        nested = {f"sub/dir/{name}": data for name, data in files.items()} | {
            "a.tiktoken": ranks,
            "b.tiktoken": ranks,
        }
        hub.add("a/b", nested)
        hub.add("gpt2", files)
        expected = tokjax.load_tokenizer("gpt2@main")
        for name in ("hf://a/b/sub/dir", "hf://a/b@main/sub/dir/", "hf://a/b@main/sub/dir/tokenizer.json"):
            assert tokjax.load_tokenizer(name) == expected
        assert tokjax.load_tokenizer("hf://gpt2@main/tokenizer.json") == expected
        pair = tokjax.load_tokenizer("hf://a/b@main/sub/dir/merges.txt")
        assert pair == tokjax.load_tokenizer("hf://a/b@main/sub/dir/vocab.json") != expected
        with pytest.raises(
            FormatError,
            match=r"several .*a.tiktoken, b.tiktoken; .*load_tokenizer\('hf://a/b@main/a.tiktoken'\)",
        ):
            tokjax.load_tokenizer("a/b")
        special = dict(tokenizer.vocabulary.special)
        ranks_tokenizer = tokjax.load_tokenizer(
            "hf://a/b@main/a.tiktoken", pattern="gpt2", special_tokens=special
        )
        assert tokjax.encode(ranks_tokenizer, "low lower").size
        with pytest.raises(
            NotFoundError,
            match=r"^hf://a/b@main/x/y.json: the repository has no file or directory 'x/y.json'",
        ):
            tokjax.load_tokenizer("hf://a/b/x/y.json")

    def test_revisions(self, hub, files):
        repository = hub.add("a/b", files)
        old = repository.revisions["main"]
        new_files = files | {"tokenizer_config.json": '{"eos_token": "<|pad|>"}'}
        repository.commit(new_files, "main")
        repository.commit(new_files, "refs/pr/3")
        repository.commit(new_files, "feature/x")
        repository.revisions["v1"] = old
        new_id = tokjax.eos_id(tokjax.load_tokenizer("a/b"))
        assert new_id != tokjax.eos_id(tokjax.load_tokenizer("a/b@v1"))
        assert tokjax.load_tokenizer(f"hf://a/b@{old}") == tokjax.load_tokenizer("a/b@v1")
        for revision in ("refs/pr/3", "feature%2Fx"):
            assert tokjax.eos_id(tokjax.load_tokenizer(f"hf://a/b@{revision}")) == new_id
            assert tokjax.eos_id(tokjax.load_tokenizer(f"hf://a/b@{revision}/tokenizer.json")) == new_id

    def test_chat_templates(self, hub, files):
        hub.add("a/b", files)
        assert tokjax.formats.load_chat_template("a/b") == TEMPLATE
        assert tokjax.formats.load_chat_template("hf://a/b", "rag") == RAG_TEMPLATE
        old = {name: data for name, data in files.items() if "jinja" not in name}
        old["tokenizer_config.json"] = json.dumps({"chat_template": "old"})
        hub.add("a/old", old)
        assert tokjax.formats.load_chat_template("a/old") == "old"
        with pytest.raises(
            FormatError, match="'tiktoken://gpt2' is an encoding of tiktoken, which has no chat"
        ):
            tokjax.formats.load_chat_template("tiktoken://gpt2")


class TestCache:
    def test_without_the_server(self, hub, files, caplog):
        hub.add("a/b", files)
        expected = tokjax.load_tokenizer("a/b")
        hub.stop()
        assert tokjax.load_tokenizer("a/b") == expected
        assert "hf://a/b@main: using tokenizer.json in the cache, since the hub failed: " in caplog.text
        caplog.clear()
        with set_offline():
            assert tokjax.load_tokenizer("a/b") == expected
            assert tokjax.load_tokenizer("hf://a/b@main/tokenizer.json") == expected
            assert tokjax.load_tokenizer(f"a/b@{hub.repositories['a/b'].revisions['main']}") == expected
            assert tokjax.formats.load_chat_template("a/b", "rag") == RAG_TEMPLATE
        assert not caplog.text

    def test_prefetch(self, hub, files):
        hub.add("a/b", files)
        detected = tokjax.formats.prefetch_tokenizer("a/b")
        assert detected.format == "huggingface"
        assert tokjax.formats.prefetch_tokenizer(detected.files[0]).files == detected.files
        with set_offline():
            assert tokjax.load_tokenizer("a/b") == tokjax.load_tokenizer(detected.files[0])

    def test_a_changed_revision_is_downloaded(self, hub, files):
        repository = hub.add("a/b", files)
        old = tokjax.load_tokenizer("a/b")
        repository.commit(files | {"tokenizer_config.json": '{"eos_token": "<|pad|>"}'})
        new = tokjax.load_tokenizer("a/b")
        assert tokjax.eos_id(new) != tokjax.eos_id(old)
        hub.stop()
        assert tokjax.load_tokenizer("a/b") == new

    def test_interrupted_download(self, hub, files, monkeypatch):
        """The cache keeps the previous commit until all files of the next one are there."""
        repository = hub.add("a/b", files)
        old = tokjax.load_tokenizer("a/b")
        downloaded = []

        def stop_before_the_last(name, file, **options):
            if file == "tokenizer.json":
                raise KeyboardInterrupt
            downloaded.append(file)
            return download(name, file, **options)

        changed = {
            name: data + b" " if isinstance(data, bytes) else data + " " for name, data in files.items()
        }
        repository.commit(changed)
        for _ in range(2):
            with monkeypatch.context() as patch:
                library = importlib.import_module("huggingface_hub")
                download = library.hf_hub_download
                patch.setattr(library, "hf_hub_download", stop_before_the_last)
                with pytest.raises(KeyboardInterrupt):
                    tokjax.load_tokenizer("a/b")
            assert downloaded
            with set_offline():
                assert tokjax.load_tokenizer("a/b") == old

    @pytest.mark.parametrize("size", [0, 100])
    def test_truncated_files_in_the_cache(self, hub, files, size):
        hub.add("a/b", files)
        expected = tokjax.load_tokenizer("a/b")
        path = tokjax.formats.prefetch_tokenizer("a/b").files[0].resolve()
        os.truncate(path, size)
        assert tokjax.load_tokenizer("a/b") == expected
        assert path.read_bytes() == files["tokenizer.json"]

    def test_caches_without_the_tokenizer(self, hub, files):
        """Only weights; and links to files that are missing, as in a copy of the cache."""
        hub.add("a/b", {name: files[name] for name in ("tokenizer.json", "model.safetensors")})
        importlib.import_module("huggingface_hub").hf_hub_download("a/b", "model.safetensors")
        for _ in range(2):
            message = "its tokenizer at the revision 'main' is not in the cache"
            with set_offline(), pytest.raises(NotFoundError, match=message):
                tokjax.load_tokenizer("a/b")
            tokjax.formats.prefetch_tokenizer("a/b").files[0].resolve().unlink()
        assert tokjax.load_tokenizer("a/b") is not None

    def test_cached_files_of_a_gated_repository(self, hub, files):
        repository = hub.add("a/b", files)
        expected = tokjax.load_tokenizer("a/b")
        repository.is_gated = True
        assert tokjax.load_tokenizer("a/b") == expected


class TestErrors:
    def check(self, name, *messages):
        with pytest.raises(NotFoundError) as raised:
            tokjax.load_tokenizer(name)
        assert isinstance(raised.value, FileNotFoundError)
        for message in messages:
            assert re.search(message, str(raised.value)), str(raised.value)

    def test_missing_repository(self, hub, files, monkeypatch):
        error = (
            rf"{hub.url} failed with RepositoryNotFoundError: .*, and its tokenizer at the revision 'main' is"
        )
        advice = "; check the name; if it is private, run `hf auth login`, or set HF_TOKEN$"
        self.check("hf://a/b", f"^'hf://a/b': {error}", advice)
        self.check("a/b", f"^'a/b': no such file or directory, and {error}", advice)
        hub.tokens = {"secret"}
        monkeypatch.setenv("HF_TOKEN", "secret")
        self.check("a/b", error, advice)
        hub.add("a/b", files)
        tokjax.load_tokenizer("a/b")
        error = "RevisionNotFoundError: .*'v2' is not in the cache .*; pass a branch, .*: 'hf://a/b@main'$"
        self.check("a/b@v2", error)

    def test_access(self, hub, files, monkeypatch):
        hub.tokens = {"reader", "stranger"}
        hub.add("a/gated", files, is_gated=True, readers=("reader",))
        hub.add("a/private", files, is_private=True, readers=("reader",))
        for token in ("", "stranger"):
            monkeypatch.setenv("HF_TOKEN", token)
            self.check("a/gated", f"GatedRepoError: .*; accept its conditions at {hub.url}/a/gated, then run")
            self.check("a/private", "RepositoryNotFoundError: .*; check the name; if it is private, run")
        monkeypatch.setenv("HF_TOKEN", "wrong")
        self.check("a/gated", "401.*; check the network, HF_ENDPOINT and HF_TOKEN, or pass")
        monkeypatch.setenv("HF_TOKEN", "reader")
        assert tokjax.load_tokenizer("a/gated") == tokjax.load_tokenizer("a/private")

    def test_hub_that_fails(self, hub, files):
        hub.add("a/b", files)
        for hub.status in (404, 500):  # without the code of the hub
            self.check("a/b", f"{hub.url} failed with .*{hub.status} .* is not in the cache .*; check the")

    @pytest.mark.parametrize("page", [b"<html>Please log in</html>", b"{}"])
    def test_server_that_is_not_a_hub(self, hub, files, page, caplog):
        hub.add("a/b", files)
        hub.page = page
        self.check(
            "a/b", rf"{hub.url} failed with \w+Error: .*; check the network, HF_ENDPOINT and HF_TOKEN, or"
        )
        hub.page = None
        tokenizer = tokjax.load_tokenizer("a/b")
        hub.page = page
        assert tokjax.load_tokenizer("a/b") == tokenizer
        assert "using tokenizer.json in the cache, since the hub failed: " in caplog.text

    @pytest.mark.parametrize(
        ("option", "call"),
        [
            ("revision", "pass 'hf://OWNER/NAME@REVISION'; a slash"),
            ("token", "set HF_TOKEN, or run `hf auth"),
        ],
    )
    def test_options_of_transformers(self, hub, option, call):
        message = f"^load_tokenizer has no option '{option}'; {call}"
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            tokjax.load_tokenizer("a/b", **{option: "x"})
        assert not hub.requests

    def test_no_network(self, hub, files):
        hub.add("a/b", files)
        with set_offline():
            self.check("a/b", "OfflineModeIsEnabled: .*; load it once without HF_HUB_OFFLINE, or pass")
        assert not hub.requests
        hub.stop()
        self.check("a/b", r"failed with \w+: .* is not in the cache \S+hub; check the network, HF_ENDPOINT")

    def test_missing_library(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "huggingface_hub", None)
        cause = r" from the Hugging Face hub needs huggingface_hub, .*; pip install 'tokjax\[hub\]'$"
        with pytest.raises(tokjax.errors.MissingExtraError, match=f"^loading 'hf://a/b'{cause}"):
            tokjax.load_tokenizer("hf://a/b")
        with pytest.raises(
            tokjax.errors.MissingExtraError,
            match=f"^no file or directory 'a/b' exists, and loading 'a/b'{cause}",
        ):
            tokjax.load_tokenizer("a/b")

    def test_tokenizers_in_directories(self, hub):
        hub.add("a/b", {"README.md": "", "x/one/tokenizer.json": "{}", "x/two/tokenizer.json": "{}"})
        for name in ("a/b", "hf://a/b/x"):
            with pytest.raises(
                FormatError,
                match=r"^hf://a/b@main(/x)?: no tokenizer in this directory, but in others: pass "
                "'hf://a/b@main/x/one' or 'hf://a/b@main/x/two'$",
            ):
                tokjax.load_tokenizer(name)

    def test_nothing_is_downloaded_without_a_tokenizer(self, hub, files):
        hub.add("a/empty", {})
        self.check("a/empty", "^hf://a/empty@main: the repository has no files$")
        hub.add("a/model", {"model.safetensors": WEIGHTS, "sub/README.md": "hello"})
        hub.add("a/large", files, reported_sizes={"tokenizer.json": 1 << 30})
        for name, message in {
            "a/model": r"contains no tokenizer .*, only \['model.safetensors'\]. Looked for",
            "a/large": r".*, tokenizer.json have 1,073,[0-9,]+ bytes; the limit is 536,870,912",
        }.items():
            with pytest.raises(FormatError, match=rf"^hf://a/\w+@main(/model\.\w+)?: {message}"):
                tokjax.load_tokenizer(name)
        assert not hub.downloads

    def test_file_of_another_size_than_announced(self, hub, files):
        if "tqdm_class" not in inspect.signature(huggingface_hub.hf_hub_download).parameters:
            pytest.skip("this version of huggingface_hub does not report the progress of a file")
        hub.add("a/b", files, reported_sizes={"tokenizer.json": 10})
        self.check(
            "a/b", "tokenizer.json has more than the 10 bytes that the hub announced, .*; check the net"
        )
        hub.add("a/b", files, reported_sizes={"tokenizer.json": None})
        with tokjax.limits(file_bytes=10_000):
            self.check("a/b", "tokenizer.json has more than the 10,000 bytes of the limit file_bytes, .*")
        hub.add("a/b", files)
        hub.reported_commit = "../../x"
        self.check("a/b", "the hub answers with '../../x', which is no commit")
        hub.reported_commit = None
        hub.truncated = {"tokenizer.json"}
        self.check("a/b", "Consistency check failed.*; check the network")

    @pytest.mark.parametrize("code", [errno.EACCES, errno.ENOSPC])
    def test_cache_that_cannot_be_written(self, hub, files, monkeypatch, code):
        def fail(*_, **__):
            raise OSError(code, os.strerror(code), "cache")

        hub.add("a/b", files)
        monkeypatch.setattr("huggingface_hub.hf_hub_download", fail)
        with pytest.raises(OSError, match="'cache'") as raised:
            tokjax.load_tokenizer("a/b")
        assert not isinstance(raised.value, NotFoundError)
        [note] = raised.value.__notes__
        assert "to the cache of huggingface_hub; set HF_HUB_CACHE" in note

    @pytest.mark.parametrize(
        "name", ["hf://", "hf://a/b@", "hf://datasets/a/b", "hf://spaces/a/b", "hf://ä/b", "hf://a/b/../c"]
    )
    def test_invalid_names(self, name):
        with pytest.raises(
            tokjax.errors.InvalidArgumentError,
            match=r"does not name a model .*'hf://OWNER/NAME\[@REVISION\]\[/PATH\]'",
        ):
            tokjax.load_tokenizer(name)

    def test_names_that_the_library_rejects(self, hub):
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match="'a/b--c' is not the name of a repository: "
        ):
            tokjax.load_tokenizer("a/b--c")
        assert not hub.requests


class TestPathsAndNames:
    def test_existing_paths_win(self, hub, files, tmp_path):
        write_files(files, tmp_path / "a" / "b")
        write_files(files, tmp_path / "gpt2")
        write_files(files, tmp_path / "cl100k_base")
        for name in ("a/b", "gpt2", "cl100k_base"):
            assert tokjax.load_tokenizer(name) == tokjax.load_tokenizer(tmp_path / name)
        assert not hub.requests
        hub.add("a/b", files | {"tokenizer_config.json": '{"eos_token": "<|pad|>"}'})
        assert tokjax.load_tokenizer("hf://a/b") != tokjax.load_tokenizer("a/b")

    @pytest.mark.parametrize(
        "text",
        [
            "a/b/c",
            "a/b@v2/x",
            "./a/b",
            "/a/b",
            "a/tokenizer.json",
            "tokenizer.model.v3",
            "x.TXT",
            "a b",
            "-x",
            "",
            "x" * 5000 + "/",
        ],
    )
    def test_missing_paths(self, hub, text):
        with pytest.raises(
            NotFoundError,
            match=r"': no such file or directory, and not a name; a name is 'OWNER/NAME' or "
            "'hf://OWNER/NAME@REVISION/PATH' for .*, or 'tiktoken://ENCODING'",
        ):
            tokjax.load_tokenizer(text)
        assert not hub.requests

    def test_home_directories(self, hub):
        expanded = Path("~/model").expanduser()
        with pytest.raises(NotFoundError, match=f"'~/model': .*; ~ is not expanded: pass '{expanded}'"):
            tokjax.load_tokenizer("~/model")
        assert not hub.requests

    @pytest.mark.usefixtures("hub")
    @pytest.mark.parametrize("text", ['{"model": ' + "x" * 5000, "a/" + "b" * 300])
    def test_strings_that_are_too_long_for_a_path(self, text):
        """Such as the contents of a file. The error shows their beginning."""
        with pytest.raises(tokjax.errors.TokjaxError, match=re.escape(text[:100])) as error:
            tokjax.load_tokenizer(text)
        assert len(str(error.value)) < 1000

    def test_path_objects_are_never_names(self, hub, files, tmp_path):
        hub.add("a/b", files)
        with pytest.raises(FileNotFoundError, match=r"\[Errno 2\] No such file or directory: .*'"):
            tokjax.load_tokenizer(tmp_path / "a" / "b")
        assert not hub.requests


def test_names_of_tokenizers_in_reports(hub, files, tmp_path, tokenizer):
    hub.add("a/b-1.5", files)
    tokjax.save_tokenizer(tokenizer, tmp_path / "tokenizer.tokjax.json")
    assert list(_load_tokenizers(["a/b-1.5", "tokenizer.tokjax.json"])) == ["a/b-1.5", "tokenizer.tokjax"]
