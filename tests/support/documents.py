"""Documents of a source as bytes, which all kinds of sources have in common."""

import tokjax


def read_bytes_of_documents(source, separator=None):
    return list(map(tokjax.offsets.to_utf8, tokjax.corpus.read_documents(source, separator)))
