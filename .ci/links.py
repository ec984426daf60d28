"""Checks that every link within a built site leads to an existing page and anchor: `links.py SITE`.

MkDocs checks the links in the sources of pages, but not in text that pages print when the site is built.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """Anchors and links of a page."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links = {""}, set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        """Collects the anchors and links of an element."""
        attributes = dict(attrs)
        self.anchors |= {attributes[name] for name in ("id", "name") if attributes.get(name)}
        self.links |= {attributes[name] for name in ("href", "src") if attributes.get(name)}


def main():
    site = Path(sys.argv[1]).resolve()
    pages = {path: Page(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}
    broken = []
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not target.exists() or (anchor and target in pages and anchor not in pages[target].anchors):
                broken.append(f"{path.relative_to(site)}: {link}")
    print(f"{len(pages)} pages, {sum(len(page.links) for page in pages.values())} links")
    if broken:
        sys.exit("error: broken links:\n" + "\n".join(broken))


if __name__ == "__main__":
    main()
