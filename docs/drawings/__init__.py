"""SVG drawings of the README and the pages, generated from the code and from its results."""
