"""Reports that the tests of tables and JSON share."""

import pytest

import tokjax
from tests.reports.test_vocabulary_statistics import BYTES, WhitespaceTokenizer

HOSTILE_NAME = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def report(tokenizer, corpus):
    return tokjax.reports.vocabulary_report(
        tokenizer,
        {"en": corpus[:3], "others": corpus[3:]},
        name="trained",
        against={"bytes": BYTES, "words": WhitespaceTokenizer()},
        progress=False,
    )


@pytest.fixture(scope="module")
def hostile_report():
    """Report with names and tokens that contain HTML, terminal, template and math markup."""
    ranks = {bytes([i]): i for i in range(256)} | {
        HOSTILE_NAME.encode(): 256,
        b"\x1b[2J\xe2\x80\xae[red]": 257,
    }
    tokenizer = tokjax.byte_level_bpe(ranks, pattern=r"\S+")
    texts = {f"$\\frac$ {HOSTILE_NAME}": [HOSTILE_NAME] * 9, "_日本\x00\x1b[2J": ["\x1b[2J\u202e[red]"] * 9}
    options = {"name": f'"{HOSTILE_NAME}', "against": {"_{{ 7 * 6 }}[red]": tokenizer}, "progress": False}
    return tokjax.reports.vocabulary_report(tokenizer, texts, **options)


@pytest.fixture(scope="module")
def empty_report():
    """Report without texts."""
    report = tokjax.reports.vocabulary_report(BYTES, [], progress=False)
    assert report.use().tokens == 0
    return report
