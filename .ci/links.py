"""Whether every link within a built site leads to a page and a place that are there: `links.py SITE`.

MkDocs checks the links of pages as they were written, but not of what pages print when the site is built.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The places of a page, and the links in it."""

    def __init__(self, path):
        super().__init__()
        self.places, self.links = {""}, set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        """Look at one element."""
        given = dict(attrs)
        self.places |= {given[name] for name in ("id", "name") if given.get(name)}
        self.links |= {given[name] for name in ("href", "src") if given.get(name)}


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
            place = unquote(parts.fragment)
            if not target.exists() or (place and target in pages and place not in pages[target].places):
                broken.append(f"{path.relative_to(site)}: {link}")
    print(f"{len(pages)} pages, {sum(len(page.links) for page in pages.values())} links")
    if broken:
        sys.exit("error: these lead nowhere:\n" + "\n".join(broken))


if __name__ == "__main__":
    main()
