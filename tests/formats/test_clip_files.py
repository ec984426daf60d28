"""Tests of CLIP's merge file, against transformers."""

import gzip

import pytest
from hypothesis import given

import tokjax
from tests.support.text_strategies import hard_texts
from tokjax.core.utf8 import is_encodable
from tokjax.pretokenize.bytes_to_unicode import ALPHABET

transformers = pytest.importorskip("transformers", minversion="5")
FormatError = tokjax.errors.TokenizerFormatError
HEADER = '"bpe_simple_vocab_16e6.txt#version: 0.2\n'
MERGES = [("t", "h"), ("th", "e</w>"), ("c", "a"), ("ca", "t</w>"), ("Ã", "©"), ("!", "!</w>")]
LINES = HEADER + "".join(f"{left} {right}\n" for left, right in MERGES)


@pytest.fixture(scope="module")
def clip_tokenizers(tmp_path_factory):
    path = tmp_path_factory.mktemp("clip") / "bpe_simple_vocab_16e6.txt.gz"
    path.write_bytes(gzip.compress(LINES.encode()))
    forms = [*ALPHABET, *(character + "</w>" for character in ALPHABET), *map("".join, MERGES)]
    forms += ["<|startoftext|>", "<|endoftext|>"]
    library_tokenizer = transformers.CLIPTokenizer(
        vocab={form: id_ for id_, form in enumerate(forms)}, merges=MERGES
    )
    return tokjax.load_tokenizer(path), library_tokenizer, path


def test_clip_by_example(clip_tokenizers):
    tokenizer, _, path = clip_tokenizers
    assert tokjax.encode_result(tokenizer, "The  CAT!!").tokens == (
        *("<|startoftext|>", "the</w>", "cat</w>", "!!</w>", "<|endoftext|>"),
    )
    assert [tokjax.bos_id(tokenizer), tokjax.eos_id(tokenizer), tokjax.pad_id(tokenizer)] == [518, 519, 519]
    assert (
        tokjax.decode(tokenizer, tokjax.encode(tokenizer, "The  CAT!!", add_special_tokens=False))
        == "the cat !!"
    )
    assert tokjax.decode(tokenizer, []) == ""
    assert tokjax.formats.detect_tokenizer_files(path.parent).format == "clip"
    assert tokjax.load_tokenizer(path.parent) == tokjax.load_tokenizer(path, "clip") == tokenizer
    assert tokjax.pad_id(tokjax.load_tokenizer(path, pad_token="<|startoftext|>")) == 518
    plain = path.parent / "plain.txt"
    plain.write_text(LINES)
    assert tokjax.load_tokenizer(plain) == tokenizer


@given(hard_texts)
def test_ids_and_decoding_equal_those_of_transformers(clip_tokenizers, text):
    tokenizer, library_tokenizer, _ = clip_tokenizers
    if isinstance(text, str) and is_encodable(text) and "<|" not in text:
        ids = tokjax.encode_result(tokenizer, text).ids.tolist()
        assert ids == library_tokenizer(text)["input_ids"]
        expected = library_tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert tokjax.decode(tokenizer, ids, skip_special_tokens=True) == expected


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (gzip.compress(LINES.encode(), mtime=0)[:-12], "not gzip, or truncated"),
        (
            gzip.compress(b"#version: 0.2\nt h\n", mtime=0),
            "begins with '#version: 0.2'; CLIP's merge file begins with",
        ),
        (gzip.compress(LINES.encode() + b"\xff", mtime=0), "not UTF-8"),
        ((LINES + "x yz\n").encode(), "line 8: expected two tokens that exist before this line, got 'x yz'"),
        (
            (LINES + "t</w> h\n").encode(),
            "line 8: expected two tokens that exist before this line, got 't</w> h'",
        ),
        ((LINES + "t h\n").encode(), "two merges produce the same token"),
        (gzip.compress(bytes((1 << 26) + 1), 1, mtime=0), "has more than 67,108,864 bytes when decompressed"),
    ],
)
def test_invalid_files(tmp_path, data, message):
    path = tmp_path / "merges.gz"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=message):
        tokjax.load_tokenizer(path, "clip")
