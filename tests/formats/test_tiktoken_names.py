"""Tests of tiktoken's encodings by name, with ranks from a server of the tests and from tiktoken's cache."""

import base64
import hashlib
import shutil
import sys

import pytest

import tokjax
from tests.conftest import PUBLISHED
from tests.support.hub_server import HubServer
from tokjax.pretokenize.patterns import find_pattern_name

tiktoken = pytest.importorskip("tiktoken")
registry = pytest.importorskip("tiktoken.registry")
public = pytest.importorskip("tiktoken_ext.openai_public")
ENCODINGS = tokjax.formats.ENCODINGS
RANKS = b"".join(
    base64.b64encode(token) + b" %d\n" % i
    for i, token in enumerate([*(bytes([byte]) for byte in range(256)), b"lo", b"low"])
)


@pytest.fixture
def server(monkeypatch, tmp_path):
    """Starts a server with the ranks of encodings of two names. tiktoken's cache is empty."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "cache"))
    with HubServer() as server:
        server.add("a/b", {"x.tiktoken": RANKS, "damaged.tiktoken": RANKS + b"x"})

        def make_constructor(name, file):
            def construct():
                url = f"{server.url}/a/b/resolve/main/{file}"
                ranks = tiktoken.load.load_tiktoken_bpe(url, hashlib.sha256(RANKS).hexdigest())
                special = {"<|endoftext|>": 300}
                return {
                    "name": name,
                    "pat_str": r"\S+|\s+",
                    "mergeable_ranks": ranks,
                    "special_tokens": special,
                }

            return construct

        constructors = {
            "cl100k_base": make_constructor("cl100k_base", "x.tiktoken"),
            "damaged": make_constructor("damaged", "damaged.tiktoken"),
        }
        monkeypatch.setattr(registry, "ENCODING_CONSTRUCTORS", constructors)
        monkeypatch.setattr(registry, "ENCODINGS", {})
        yield server


def test_encoding_by_name(server):
    tokenizer = tokjax.load_tokenizer("cl100k_base")
    assert tokenizer == tokjax.formats.from_tiktoken(tiktoken.get_encoding("cl100k_base"))
    assert tokenizer == tokjax.load_tokenizer("tiktoken://cl100k_base", "tiktoken")
    assert tokjax.encode(tokenizer, "low").tolist() == [257]
    assert tokjax.pad_id(tokjax.load_tokenizer("cl100k_base", pad_token="<|endoftext|>")) == 300
    assert tokjax.quick.quick_tokenize("tiktoken://cl100k_base", "low").token_ids.tolist() == [257]
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="conversion of Encoding objects has no option"
    ):
        tokjax.load_tokenizer("cl100k_base", pattern="gpt2")


def test_encodings_that_tiktoken_lacks(server):
    advice = (
        "'llama3' is an encoding that tiktoken lacks: pass the path of its rank file, and encoding='llama3'"
    )
    message = f"'llama3': no such file or directory, and {advice}, or 'hf://llama3' for a repository"
    with pytest.raises(tokjax.errors.TokenizerNotFoundError, match=message):
        tokjax.load_tokenizer("llama3")
    message = f"tiktoken has no encoding 'llama3': Unknown encoding .*; {advice}$"
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        tokjax.load_tokenizer("tiktoken://llama3")


def test_cache(server):
    detected = tokjax.formats.prefetch_tokenizer("cl100k_base")
    assert (detected.format, detected.files) == ("tiktoken", ())
    server.stop()
    registry.ENCODINGS.clear()
    assert tokjax.encode(tokjax.load_tokenizer("cl100k_base"), "low").tolist() == [257]


def test_no_network_and_no_cache(server):
    server.stop()
    with pytest.raises(
        tokjax.errors.TokenizerNotFoundError,
        match=r"of the encoding 'cl100k_base' are not in the cache of tiktoken, and can't be downloaded: "
        r"ConnectionError: .*; set TIKTOKEN_CACHE_DIR to a directory .*, or pass the path of a rank file$",
    ):
        tokjax.load_tokenizer("cl100k_base")


def test_errors(server, tmp_path):
    ArgumentError = tokjax.errors.InvalidArgumentError  # noqa: N806
    with pytest.raises(ArgumentError, match=r"tiktoken has no encoding 'x': Unknown encoding x"):
        tokjax.load_tokenizer("tiktoken://x")
    with pytest.raises(
        ArgumentError, match="'gpt2' is an encoding .*; pass 'tiktoken://gpt2' or 'hf://gpt2'"
    ):
        tokjax.load_tokenizer("gpt2")
    with pytest.raises(
        ArgumentError, match="'cl100k_base' is an encoding of tiktoken; leave out format='gpt2'"
    ):
        tokjax.load_tokenizer("cl100k_base", "gpt2")
    with pytest.raises(tokjax.errors.TokenizerFormatError, match="the encoding 'damaged': Hash mismatch"):
        tokjax.load_tokenizer("tiktoken://damaged")
    (tmp_path / "cache").write_text("not a directory")
    with pytest.raises(FileExistsError):
        tokjax.load_tokenizer("cl100k_base")


def test_missing_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(
        tokjax.errors.MissingExtraError,
        match=r"loading the encoding 'cl100k_base' needs tiktoken, .*; pip install 'tokjax\[tiktoken\]'$",
    ):
        tokjax.load_tokenizer("cl100k_base")


def test_table_of_encodings(monkeypatch):
    """The names, special tokens, patterns and sizes are those of tiktoken."""

    def load_no_ranks(*args, **options):
        return {}

    monkeypatch.setattr(public, "load_tiktoken_bpe", load_no_ranks)
    monkeypatch.setattr(public, "data_gym_to_mergeable_bpe_ranks", load_no_ranks)
    known = {name: encoding for name, encoding in ENCODINGS.items() if encoding.in_tiktoken}
    assert known.keys() <= public.ENCODING_CONSTRUCTORS.keys()
    for name, encoding in known.items():
        published = public.ENCODING_CONSTRUCTORS[name]()
        assert encoding.special_tokens == published["special_tokens"]
        assert encoding.pattern == find_pattern_name(published["pat_str"])
        num_ids = published.get("explicit_n_vocab", 0)
        assert encoding.vocab_size == max(num_ids, *(id_ + 1 for id_ in encoding.special_tokens.values()))


def test_published_encoding(monkeypatch, tmp_path):
    """Loading by name equals loading the rank file."""
    path = PUBLISHED / "cl100k_base.tiktoken"
    if not path.exists():
        pytest.skip("the published ranks are outside the project, and are not available")
    url = "https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken"
    shutil.copy(path, tmp_path / hashlib.sha1(url.encode()).hexdigest())
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(registry, "ENCODINGS", {})
    tokenizer = tokjax.load_tokenizer("cl100k_base")
    assert tokenizer == tokjax.load_tokenizer(path)
    assert tokjax.vocab_size(tokenizer) == ENCODINGS["cl100k_base"].vocab_size
