"""Drawing of texts as tokens with byte offsets, and of the padded and the packed batch of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tokjax
from docs.drawings.blocks import draw_batches_at
from docs.drawings.svg import DARK, FAINT, INK, PALETTE, Svg
from tokjax.trainer import train_bpe

if TYPE_CHECKING:
    from tokjax import TokenizationResult

TEXTS = ("naïve café", "Zoë reads 🙃", "to be or not to be")
_CORPUS = (
    "to be or not to be: that is the question",
    "Zoë reads in the café 🙂, Zoë reads 🙃 there",
    "the naïve read in cafés, the naïve café is not to be",
)
_VOCAB_SIZE = 304
"""Chosen so that a token ends inside an emoji: the two emoji of the corpus differ only in their last byte."""
_BYTE, _BOX, _ROW, _INSERTED = 27, 40, 72, 62
_WIDTH = 640


def draw_overview() -> str:
    """Draws tokens with ids and byte offsets, and below them the padded and the packed batch."""
    options = {
        "special_tokens": ["<pad>", "<eos>"],
        "eos_token": "<eos>",
        "pad_token": "<pad>",
    }
    trained = train_bpe(_CORPUS, vocab_size=_VOCAB_SIZE, progress=False, **options)
    results = tokjax.encode_batch_result(trained.tokenizer, TEXTS)
    pad_id = tokjax.pad_id(trained.tokenizer)
    svg = Svg(
        _WIDTH,
        len(TEXTS) * _ROW + 100,
        "Three texts as tokens with their bytes, then padded and packed",
    )
    for i, result in enumerate(results):
        _draw_tokens(svg, i * _ROW, result, PALETTE[i])
    svg.text(_WIDTH, 10, "token, id, and the byte offsets", size=11, anchor="end")
    svg.text(_WIDTH, 26, "where it starts and stops;", size=11, anchor="end")
    svg.text(_WIDTH, 42, "<eos> is inserted: no offsets", size=11, anchor="end")
    padded = tokjax.collate_padded_batch(results, pad_id=pad_id)
    packed = tokjax.pack_blocks(
        results, block_size=9, pad_id=pad_id, strategy="best_fit"
    )
    headings = (
        f"padded: {padded.ids.size} positions for {len(results.ids)} tokens",
        f"packed: {packed.ids.size} positions",
    )
    draw_batches_at(
        svg, 0, len(TEXTS) * _ROW, dict(zip(headings, (padded, packed), strict=True))
    )
    return str(svg)


def _draw_tokens(svg: Svg, y: float, result: TokenizationResult, fill: str) -> None:
    """Draws one box per token, as wide as its number of bytes, above the offsets of its boundaries."""
    x = 0
    assert result.offsets is not None  # narrows the type; these results have offsets
    for token, id_, (start, stop) in zip(
        result.tokens, result.ids, result.offsets.tolist(), strict=True
    ):
        width = (stop - start) * _BYTE or _INSERTED
        has_span = tokjax.offsets.has_span((start, stop))
        box = {
            "fill": fill,
            "radius": 4,
            "hint": f"{token!r}, id {id_}, bytes [{start}, {stop})",
        }
        svg.rectangle(
            x + 1, y + 1, width - 2, _BOX - 2, stroke=INK if has_span else FAINT, **box
        )
        middle = {"anchor": "middle", "fill": DARK, "monospace": True}
        size = min(
            13, (width - 4) / len(token) * 1.6
        )  # monospace letters are 0.6 times as wide as high
        svg.text(x + width / 2, y + 13, token.replace(" ", "␣"), size=size, **middle)
        svg.text(x + width / 2, y + 29, str(id_), size=10, **middle)
        position = start if has_span else int(result.offsets.max())
        svg.text(
            x, y + _BOX + 9, str(position), size=10, anchor="middle" if x else "start"
        )
        x += width
