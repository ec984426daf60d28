"""What the pages and the README draw, as SVG, from the code and from the arrays that it returns."""
