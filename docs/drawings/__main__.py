"""Writes the drawings of the README: `python -m docs.drawings`."""

from pathlib import Path

from docs.drawings.tokens import draw_overview

PICTURES = {Path(__file__).parents[1] / "pictures" / "overview.svg": draw_overview}

if __name__ == "__main__":
    for path, draw in PICTURES.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(draw() + "\n", encoding="utf-8")
