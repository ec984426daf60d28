"""Parser of HTML pages and fragments."""

import html.parser


class HTMLPage(html.parser.HTMLParser):
    """Tags, attributes, texts and table rows of a page, and the attributes of its spans."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.texts, self.rows, self.spans = [], [], [], [], []
        self.open_tags = []
        self.feed(text)
        self.close()
        assert self.open_tags == []

    def handle_starttag(self, tag, attributes):
        self.handle_startendtag(tag, attributes)
        if tag not in ("meta", "input"):
            self.open_tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")
        if tag == "span":
            self.spans.append(dict(attributes))

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self.open_tags.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)
        if {"td", "th"} & set(self.open_tags):
            self.rows[-1][-1] += data.strip()
