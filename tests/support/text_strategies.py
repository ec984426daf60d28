"""Hypothesis strategies of texts that are difficult for tokenizers."""

from hypothesis import strategies as st

from tokjax.corpus.files import is_file


def is_ordinary(text):
    """Returns whether a text is neither the path of a file nor a special token such as `<|endoftext|>`.

    Hypothesis also draws constants of modules.
    """
    return "<|" not in text and not is_file(text)


characters = st.one_of(
    st.sampled_from("abcdeABC  \n\r\t'\"sStT019.,!/_"),
    st.sampled_from("\x00\x1c\x1f\x85\xa0\u200b\u2028\u3000\u017f\u0301\u0130ßǅʰ中が한🙂🇩\u200d٣Ⅷ½"),
    st.characters(exclude_categories=["Cs"]),
)
texts = st.text(characters, max_size=60)
FRAGMENTS = [
    "'s",
    "'S",
    "'ll",
    "'\u017f",
    "  ",
    "\n\n",
    " \n ",
    "\r\n",
    "1234567",
    "hello",
    " world",
    "HTTPServer",
]
fragments = st.sampled_from([*FRAGMENTS, "é", "日本", "!!!", "/\n"])
hard_texts = st.lists(st.one_of(fragments, texts), max_size=12).map("".join).filter(is_ordinary)
any_strings = st.text(max_size=40).filter(is_ordinary)  # includes lone surrogates
byte_strings = st.one_of(st.binary(max_size=40), hard_texts.map(str.encode))
