"""Strict settings for all tests, and shared fixtures."""

import base64
import logging
import os
import signal
import sys
from pathlib import Path

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_NUMPY_DTYPE_PROMOTION"] = "strict"

import numpy as np
import pytest

import tokjax
from tests.support.hypothesis_profiles import is_thorough, load_profiles

load_profiles()
# Most tests write small datasets, for which a progress bar takes longer than the rest.
tokjax.write_dataset.__kwdefaults__["progress"] = False


@pytest.hookimpl(trylast=True)  # after Hypothesis has loaded the profile of the command line
def pytest_configure():
    """Disables XLA optimizations in the fast profile: programs compile faster, but run slower."""
    if not is_thorough():
        os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"


PUBLISHED = Path(__file__).parents[2] / "shared" / "data" / "ranks"

MAPS = Path("/proc/self/maps")
MAX_NUM_MAPS = 20_000
"""Linux ends a process that has more than 65,530 memory maps. Compiled programs have thousands of them."""

CORPUS = [
    "The apparent meaning is for the masses, and the inner meaning is for the learned.",
    "low low low low low lower lower widest widest widest newest newest newest newest newest newest",
    "it's we've I'll they'd 12345 67 8\n\n\n  indented\ttabs  \r\n",
    "naïve café résumé Ünïcödé ελληνικά русский язык 日本語のテキスト 한국어 العربية हिन्दी",
    "👩‍👩‍👧‍👦 🇩🇪 👍🏽 e\u0301 \u00a0\u2003\u3000 \u200b done",
    "def encode(self, text: str) -> list[int]:\n    return [self.ranks[b] for b in text]\n",
]


def get_process_settings():
    """Returns the settings of the process that a test could leave changed for later tests, by name."""
    jax, logger = sys.modules.get("jax"), logging.getLogger("tokjax")
    return {
        "directory": Path.cwd(),
        "logger": (logger.level, logger.disabled, logger.propagate, [*logger.handlers]),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
        "path": [*sys.path],
        "streams": (sys.stdin, sys.stdout, sys.stderr),
        "numpy": (np.geterr(), np.get_printoptions()),
        **os.environ,
        **(jax.config.values if jax else {}),
    }


def check_settings(before, ignored):
    """Fails if a setting was changed. New settings are ignored: libraries add some on import."""
    after = get_process_settings()
    changed = {name: (value, after.get(name)) for name, value in before.items() if value != after.get(name)}
    assert not changed.keys() - ignored, changed


@pytest.fixture(autouse=True)
def check_settings_after_test():
    before = get_process_settings()
    yield
    check_settings(before, {"PYTEST_CURRENT_TEST"})


@pytest.fixture(autouse=True, scope="module")
def check_settings_after_module():
    """Checks fixtures that outlive a test. Streams are ignored: pytest replaces them in each test."""
    before = get_process_settings()
    yield
    check_settings(before, {"PYTEST_CURRENT_TEST", "streams"})


@pytest.fixture(autouse=True, scope="module")
def free_compiled_programs():
    """Frees the compiled programs of earlier tests before they exhaust the memory maps of the process."""
    jax = sys.modules.get("jax")
    if jax and MAPS.exists() and MAPS.read_bytes().count(b"\n") > MAX_NUM_MAPS:
        jax.clear_caches()


@pytest.fixture(scope="session")
def corpus():
    return CORPUS


@pytest.fixture(scope="session")
def trained():
    from tokjax.trainer import train_bpe

    return train_bpe(
        CORPUS * 3,
        vocab_size=500,
        special_tokens=["<|endoftext|>", "<|pad|>", "<|endoftext|><|endoftext|>"],
        pad_token="<|pad|>",
        progress=False,
    )


@pytest.fixture(scope="session")
def tokenizer(trained):
    return trained.tokenizer


@pytest.fixture(scope="session")
def plain_tokenizer(tokenizer):
    """The trained tokenizer without special tokens."""
    return tokjax.byte_level_bpe(dict(tokenizer.vocabulary.ordinary))


def load_published_ranks(name):
    path = PUBLISHED / f"{name}.tiktoken"
    if not path.is_file():
        pytest.skip("the published ranks are outside the project, and are not available")
    lines = path.read_bytes().splitlines()
    return {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, lines)}


@pytest.fixture(scope="session")
def gpt2_ranks():
    return load_published_ranks("gpt2")


@pytest.fixture(scope="session")
def cl100k_ranks():
    return load_published_ranks("cl100k_base")


@pytest.fixture
def field(tokenizer):
    return tokjax.PackedTokenField(tokenizer, chunk_tokens=8)


@pytest.fixture
def written(field, corpus, tmp_path):
    tokjax.write_dataset(corpus * 5, field, tmp_path / "data", shard_size=200)
    return tmp_path / "data"
