"""Tests of the command `tokjax estimate-mixture`."""

import re
import unicodedata

import pytest

import tokjax
from tests.cli.test_commands import get_output, run, strip_frames
from tests.cli.test_hints import run_rejected
from tokjax.trainer import count_pretokens, mix_counts, train_bpe

TEXTS = {
    "en.txt": "the then there other than that with",
    "de.txt": "eine einen meinen deinen seinen reimen",
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """Writes two texts, and a tokenizer that was trained on a mixture of them."""
    workspace = tmp_path_factory.mktemp("mixture")
    for name, text in TEXTS.items():
        (workspace / name).write_text(text)
    sources = {name: count_pretokens([text], pattern="o200k", progress=False) for name, text in TEXTS.items()}
    mixed = mix_counts(sources, {"en.txt": 1, "de.txt": 3})
    tokjax.save_tokenizer(train_bpe(mixed, vocab_size=290, progress=False).tokenizer, workspace / "t.json")
    return workspace


def test_output_equals_that_of_reports(workspace):
    output = get_output(
        *("estimate-mixture", "en.txt", "de.txt", "-t", "t.json", "--max-merges", 20, "-q"),
        cwd=workspace,
    )
    tokenizer = tokjax.load_tokenizer(workspace / "t.json")
    sources = {name: count_pretokens([text], pattern="o200k", progress=False) for name, text in TEXTS.items()}
    estimate = tokjax.reports.estimate_mixture(tokenizer, sources, max_merges=20, progress=False)
    rows = {
        name: rf"{share:.1%} \({estimate.ranges[name][0]:.1%} to {estimate.ranges[name][1]:.1%}\)"
        for name, share in estimate.shares.items()
    }
    rows |= {"merges": estimate.num_merges, "shortfall": f"{estimate.shortfall:.1f}"}
    for name, value in rows.items():
        assert re.search(rf"{name} .* {value} ", output), name


def test_normalizer_is_applied(tmp_path):
    """The tokenizer normalizes texts, and one of the files is decomposed."""
    texts = {"fr.txt": "été était étoile été élan étage", "de.txt": TEXTS["de.txt"]}
    sources = {name: count_pretokens([text], pattern="qwen2", progress=False) for name, text in texts.items()}
    mixed = mix_counts(sources, {"fr.txt": 2, "de.txt": 1})
    tokenizer = train_bpe(mixed, vocab_size=275, progress=False).tokenizer
    assert tokenizer.normalizer == "nfc"
    tokjax.save_tokenizer(tokenizer, tmp_path / "t.json")
    for name, text in texts.items():
        (tmp_path / name).write_text(unicodedata.normalize("NFD", text), encoding="utf-8")
    output = get_output("estimate-mixture", *texts, "-t", "t.json", "-q", cwd=tmp_path)
    estimate = tokjax.reports.estimate_mixture(tokenizer, sources, progress=False)
    assert estimate.num_merges == 19
    assert re.search(rf"fr.txt .* {estimate.shares['fr.txt']:.1%} ", output)
    assert re.search(r"merges .* 19 ", output)


def test_another_type_of_tokenizer_is_rejected(workspace):
    tokjax.save_tokenizer(tokjax.word_level(["[UNK]", "low"]), workspace / "words.json")
    done = run("estimate-mixture", "en.txt", "-t", "words.json", cwd=workspace)
    assert done.returncode == 2
    message = "words.json is a WordLevelTokenizer; the estimate needs the merges of a byte-level BPE"
    assert message in strip_frames(done.stderr)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["en.txt", "none.txt"], "source 'none.txt' is not a file"),
        (["en.txt", "--max-merges", 0], "--max-merges must be at least 1, not 0"),
    ],
)
def test_errors_before_files_are_counted(workspace, arguments, message):
    stderr = run_rejected("estimate-mixture", *arguments, "-t", "t.json", cwd=workspace)
    assert message in stderr
    assert "counting" not in stderr
