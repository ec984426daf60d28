"""Tests of `show_batch` with a tag set: tags beside tokens, colours of classes, the legend."""

import re

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.reports.show_batch.test_show import BYTES, get_lines, render_in_terminal, strip_colour
from tests.support.html_pages import HTMLPage
from tests.support.token_strategies import SCHEMES

PEOPLE = tokjax.align.TagSet(["PER", "LOC"])
WORDS = tokjax.wordpiece(["[UNK]", "Zoe", "ran", "to", "New", "York", "with", "<b>"])
SENTENCES = tokjax.PaddedBatch(
    np.array([[1, 2, 3, 4, 5], [6, 1, 2, 0, 0]]), np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
)
TAGS = np.array([[1, 0, 0, 3, 4], [0, 1, -100, -100, -100]])


def test_tags_are_shown_after_tokens():
    assert str(tokjax.show_batch(SENTENCES, WORDS, labels=TAGS, tagset=PEOPLE)).splitlines() == [
        "PaddedBatch: 2 rows of 5 positions",
        "row  tokens                                 padding",
        "  0  Zoe→B-PER ran to New→B-LOC York→I-LOC   0 of 5",
        "  1  with Zoe→B-PER ⟨ran⟩ ▯×2                2 of 5",
        "padding: 2 of 10 positions (20.0%)",
        "labels not ignored: 7 of 8 tokens",
        "x→T tag T   x tag O   ⟨x⟩ label ignored   ▯ padding",
        "classes: PER LOC",
    ]


def test_labels_of_the_batch_and_labels_that_are_not_tags():
    batch = {"ids": [[1, 2, 3]], "attention_mask": [[1, 1, 1]], "labels": [[5, -1, 4]]}
    assert get_lines(batch, WORDS, tagset=PEOPLE)[2] == "0 Zoe→5 ran→-1 to→I-LOC 0 of 3"
    ignored = get_lines(SENTENCES, WORDS, labels=np.abs(TAGS) % 5, tagset=PEOPLE, ignore_index=0)
    assert ignored[2:4] == [
        "0 Zoe→B-PER ⟨ran to⟩ New→B-LOC York→I-LOC 0 of 5",
        "1 ⟨with⟩ Zoe→B-PER ⟨ran⟩ ▯×2 2 of 5",
    ]
    assert "classes" not in str(tokjax.show_batch(SENTENCES, WORDS, labels=TAGS * 0, tagset=PEOPLE))


def get_label(token, tagset):
    tag = token.removeprefix("Zoe").removeprefix("→") or "O"
    return tagset.get_id(tag) if tag in tagset.tags else int(tag)


@given(st.lists(st.integers(-3, 12), min_size=1, max_size=9), st.integers(-3, 12), st.data())
def test_text_shows_all_labels(labels, ignore_index, data):
    scheme = data.draw(st.sampled_from(SCHEMES))
    tagset = tokjax.align.TagSet(["a", "b→c"], scheme)
    loss_mask = data.draw(st.lists(st.booleans(), min_size=len(labels), max_size=len(labels)))
    shown = tokjax.show_batch(
        np.ones((1, len(labels)), int),
        WORDS,
        labels=[labels],
        loss_mask=[loss_mask],
        tagset=tagset,
        ignore_index=ignore_index,
    )
    row = strip_colour(render_in_terminal(shown, width=300))[2]
    parsed, ignored = [], False
    for token in re.fullmatch(r"  0  (.*?) +\? of \d", row)[1].split(" "):
        ignored = ignored or "⟨" in token
        parsed.append(ignore_index if ignored else get_label(token.strip("⟦⟧"), tagset))
        ignored = ignored and "⟩" not in token
    assert parsed == labels


def test_tokens_have_the_colour_of_their_class():
    shown = tokjax.show_batch(SENTENCES, WORDS, labels=TAGS, tagset=PEOPLE)
    coloured = render_in_terminal(shown)
    assert strip_colour(coloured) == str(shown).splitlines()
    assert "\x1b[36mZoe→B-PER\x1b[0m ran to \x1b[32mNew→B-LOC York→I-LOC\x1b[0m" in coloured
    assert "with \x1b[36mZoe→B-PER\x1b[0m \x1b[2m⟨ran⟩ ▯×2\x1b[0m" in coloured
    assert "classes: \x1b[36mPER\x1b[0m \x1b[32mLOC\x1b[0m" in coloured
    locations_only = tokjax.show_batch(SENTENCES, WORDS, labels=np.where(TAGS > 2, TAGS, 0), tagset=PEOPLE)
    assert "classes: \x1b[32mLOC\x1b[0m" in render_in_terminal(locations_only)
    never = tokjax.show_batch(SENTENCES, WORDS, labels=TAGS, tagset=PEOPLE, color=False)
    assert "\x1b" not in render_in_terminal(never)


def test_segments_do_not_change_colours_of_classes():
    packed = {"ids": [[1, 2, 1, 2]], "segment_ids": [[1, 1, 2, 2]], "labels": [[1, 0, 1, 0]]}
    shown = tokjax.show_batch(packed, WORDS, tagset=PEOPLE)
    assert "\x1b[36m1│Zoe→B-PER\x1b[0m ran \x1b[36m2│Zoe→B-PER\x1b[0m ran" in render_in_terminal(shown)


@pytest.mark.parametrize("scheme", ["BIO", "IO", "BILOU"])
def test_24_classes_have_distinct_colours(scheme):
    tagset = tokjax.align.TagSet([f"class{i}" for i in range(24)], scheme)
    first_tags = [tagset.get_id(tag) for tag in tagset.tags if tag[0] == ("I" if scheme == "IO" else "B")]
    shown = tokjax.show_batch(np.ones((1, 24), int), WORDS, labels=[first_tags], tagset=tagset)
    styles = re.findall(r"\x1b\[([0-9;]+)mZoe→[BI]-class\d+\x1b", render_in_terminal(shown, width=1000))
    assert len(set(styles)) == 24


def test_control_characters_of_tags_are_escaped():
    tagset = tokjax.align.TagSet([f"<b>{name}</b>\x1b[2J[red]\u202e\n\"'&人" for name in ("a", "\0")])
    labels = [list(range(len(tagset)))]
    shown = tokjax.show_batch(np.ones((1, len(tagset)), int), WORDS, labels=labels, tagset=tagset)
    page = HTMLPage(shown._repr_html_())
    assert set(page.tags) == {"pre", "span"}
    assert r"\x1b[2J[red]\u202e" in "".join(page.texts)
    for text in (str(shown), *page.texts):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", text)
    assert "[red]" in "".join(render_in_terminal(shown, width=2000))
    assert strip_colour(render_in_terminal(shown)) == str(shown).splitlines()


def test_lines_with_wide_characters_fit_the_width():
    from rich.cells import cell_len

    tagset = tokjax.align.TagSet(["人物と場所"])
    shown = tokjax.show_batch(np.ones((1, 30), int), WORDS, labels=np.ones((1, 30), int), tagset=tagset)
    lines = strip_colour(render_in_terminal(shown, width=60))
    assert max(map(cell_len, lines)) <= 60
    assert "".join("".join(lines).split()).count("人物と場所") == 31


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"labels": TAGS, "tagset": ["PER"]},
            r"tagset must be a TagSet, not \['PER'\]; pass TagSet\(labels\)",
        ),
        ({"tagset": PEOPLE}, "tagset needs labels, and the batch has none; pass labels="),
        ({"labels": TAGS / 2, "tagset": PEOPLE}, "labels must be integers, not float64"),
    ],
)
def test_invalid_labels_are_rejected(options, message):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        tokjax.show_batch(SENTENCES, WORDS, **options)


def test_row_classes_are_not_tags():
    batch = {"input_ids": [[1, 2], [3, 4]], "labels": [0, 1]}
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match=r"has none: labels of shape \(2,\) are not shown"
    ):
        tokjax.show_batch(batch, BYTES, tagset=PEOPLE)
