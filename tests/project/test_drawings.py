"""Tests of the drawings in the docs: well-formed, deterministic, and complete."""

from xml.etree import ElementTree

import numpy as np
import pytest

import tokjax
from docs.drawings.__main__ import PICTURES
from docs.drawings.blocks import draw_batches, draw_columns
from docs.drawings.layers import draw_layers, draw_uses, read_packages, read_uses
from docs.drawings.masks import draw_masks
from docs.drawings.svg import FAINT, PALETTE
from docs.drawings.tokens import TEXTS, draw_overview
from tests.support.import_layers import get_package, iter_modules

SVG = "{http://www.w3.org/2000/svg}"


def get_texts(drawing):
    return [element.text for element in ElementTree.fromstring(drawing).iter(f"{SVG}text")]


def get_fills(drawing):
    return [element.attrib["fill"] for element in ElementTree.fromstring(drawing).iter(f"{SVG}rect")]


def get_hints(drawing):
    return [element.text for element in ElementTree.fromstring(drawing).iterfind(f"{SVG}rect/{SVG}title")]


def test_all_packages_are_drawn():
    drawn = get_texts(draw_layers())
    assert {get_package(name) for name in iter_modules()} <= set(drawn)
    assert sum(package.files for package in read_packages()) == len(iter_modules())


@pytest.mark.slow
def test_matrix_has_all_imports():
    drawn = get_texts(draw_uses())
    assert sum(int(number) for number in drawn if number.isdigit()) == sum(
        count for (user, _), count in read_uses().items() if not user.startswith("layer")
    )
    assert f"models imports pretokenize: {read_uses()['models', 'pretokenize']}" in get_hints(draw_uses())


ROWS = [[11, 12, 13], [21, 22], [31]]


def test_batch_cells_have_document_colours():
    rows = tokjax.ragged_from_rows(ROWS)
    padded, packed = (
        tokjax.collate_padded_batch(rows, pad_id=0),
        tokjax.pack_blocks(rows, block_size=4, pad_id=0),
    )
    drawing = draw_batches("both", {"padded": padded, "packed": packed})
    expected = ["padded", *padded.ids.ravel().tolist(), "packed", *packed.ids.ravel().tolist()]
    assert get_texts(drawing) == list(map(str, expected))
    a, b, c = PALETTE[:3]
    assert get_fills(drawing) == [a, a, a, b, b, "none", c, "none", "none", a, a, a, b, b, c, "none", "none"]


def test_columns_of_blocks_have_names():
    packed = tokjax.pack_blocks(tokjax.ragged_from_rows(ROWS), block_size=4, pad_id=0)
    drawn = get_texts(draw_columns("columns", packed))
    assert drawn.count("labels") == packed.ids.shape[0] == 2
    labels = packed.causal_lm_labels()[1].tolist()
    assert drawn[-4:] == list(map(str, labels))


def test_mask_is_coloured_where_it_is_true():
    segments = np.array([1, 2, 0])
    masks = {"segment": tokjax.masks.segment_mask(segments), "causal": tokjax.masks.causal_mask(3)}
    drawing = draw_masks("two masks", masks, segments)
    a, b, none, grey = PALETTE[0], PALETTE[1], "none", FAINT
    segment_fills = [a, none, none, none, b, none, none, none, grey]
    assert get_fills(drawing) == [*segment_fills, a, none, none, a, b, none, a, b, grey]
    assert get_texts(drawing) == ["segment", "causal"]


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_pictures_are_up_to_date(path):
    assert path.read_text(encoding="utf-8") == PICTURES[path]() + "\n", "run: python -m docs.drawings"


def test_overview_shows_all_tokens_and_both_batches():
    drawn = get_texts(draw_overview())
    assert "padded: 24 positions for 17 tokens" in drawn
    assert "packed: 18 positions" in drawn
    assert drawn.count("257") == 3 * len(TEXTS)  # the EOS of each text, padded and packed
    assert "␣\\xf0\\x9f\\x99" in drawn
    assert "'\\\\x83', id 131, bytes [15, 16)" in get_hints(draw_overview())
