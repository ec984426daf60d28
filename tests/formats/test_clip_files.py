"""CLIP's list of merges, and GPT-2's files with some of the bytes: what runs on the tokenizers library."""

import gzip
import json

import pytest
from hypothesis import given

import tokjax
from tests.support.text_strategies import hard_texts
from tokjax.core.utf8 import is_encodable
from tokjax.pretokenize.bytes_to_unicode import ALPHABET, map_bytes_to_unicode

transformers = pytest.importorskip("transformers", minversion="5")
FormatError = tokjax.errors.TokenizerFormatError
HEADER = '"bpe_simple_vocab_16e6.txt#version: 0.2\n'
MERGES = [("t", "h"), ("th", "e</w>"), ("c", "a"), ("ca", "t</w>"), ("Ã", "©"), ("!", "!</w>")]
LINES = HEADER + "".join(f"{left} {right}\n" for left, right in MERGES)


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    path = tmp_path_factory.mktemp("clip") / "bpe_simple_vocab_16e6.txt.gz"
    path.write_bytes(gzip.compress(LINES.encode()))
    forms = [*ALPHABET, *(character + "</w>" for character in ALPHABET), *map("".join, MERGES)]
    forms += ["<|startoftext|>", "<|endoftext|>"]
    theirs = transformers.CLIPTokenizer(vocab={form: id_ for id_, form in enumerate(forms)}, merges=MERGES)
    return tokjax.load_tokenizer(path), theirs, path


def test_clip(clip):
    ours, _, path = clip
    assert tokjax.encode_result(ours, "The  CAT!!").tokens == (
        *("<|startoftext|>", "the</w>", "cat</w>", "!!</w>", "<|endoftext|>"),
    )
    assert [tokjax.bos_id(ours), tokjax.eos_id(ours), tokjax.pad_id(ours)] == [518, 519, 519]
    assert tokjax.decode(ours, tokjax.encode(ours, "The  CAT!!", add_special_tokens=False)) == "the cat !!"
    assert tokjax.decode(ours, []) == ""
    assert tokjax.formats.detect_tokenizer_files(path.parent).format == "clip"
    assert tokjax.load_tokenizer(path.parent) == tokjax.load_tokenizer(path, "clip") == ours
    assert tokjax.pad_id(tokjax.load_tokenizer(path, pad_token="<|startoftext|>")) == 518
    plain = path.parent / "plain.txt"
    plain.write_text(LINES)
    assert tokjax.load_tokenizer(plain) == ours


@given(hard_texts)
def test_clip_gives_the_ids_of_transformers(clip, text):
    ours, theirs, _ = clip
    if isinstance(text, str) and is_encodable(text) and "<|" not in text:
        ids = tokjax.encode_result(ours, text).ids.tolist()
        assert ids == theirs(text)["input_ids"]
        expected = theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert tokjax.decode(ours, ids, skip_special_tokens=True) == expected


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (gzip.compress(LINES.encode(), mtime=0)[:-12], "not gzip, or cut short"),
        (
            gzip.compress(b"#version: 0.2\nt h\n", mtime=0),
            "begins with '#version: 0.2', and CLIP's merges with",
        ),
        (gzip.compress(LINES.encode() + b"\xff", mtime=0), "not UTF-8"),
        ((LINES + "x yz\n").encode(), "line 8: two tokens made before are expected, not 'x yz'"),
        ((LINES + "t</w> h\n").encode(), "line 8: two tokens made before are expected, not 't</w> h'"),
        ((LINES + "t h\n").encode(), "two merges make the same token"),
        (gzip.compress(bytes((1 << 26) + 1), 1, mtime=0), "has more than 67,108,864 bytes, unpacked"),
    ],
)
def test_invalid_clip_merges(tmp_path, data, message):
    path = tmp_path / "merges.gz"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=message):
        tokjax.load_tokenizer(path, "clip")


def test_what_is_packed_is_not_guessed(tmp_path):
    path = tmp_path / "tokenizer.json.gz"
    for data in (gzip.compress(b"{}"), b"\x1f\x8bnot gzip"):
        path.write_bytes(data)
        with pytest.raises(FormatError, match="holds no tokenizer that is known"):
            tokjax.load_tokenizer(path)


def gpt2_files(directory, with_bytes):
    vocab = {map_bytes_to_unicode(bytes([byte])): i for i, byte in enumerate(with_bytes)}
    merges = [("h", "e"), ("Ġ", "he"), ("Ã", "©")]
    for token in (*map("".join, merges), "<|endoftext|>"):
        vocab[token] = len(vocab)
    (directory / "vocab.json").write_text(json.dumps(vocab))
    (directory / "merges.txt").write_text("".join(f"{left} {right}\n" for left, right in merges))
    return vocab, merges


@pytest.fixture(scope="module")
def partial(tmp_path_factory):
    directory = tmp_path_factory.mktemp("partial")
    vocab, merges = gpt2_files(directory, [*range(32, 127), 0xC3, 0xA9])
    return tokjax.load_tokenizer(directory), transformers.GPT2Tokenizer(vocab=vocab, merges=merges)


@given(hard_texts)
def test_a_part_of_the_bytes(partial, text):
    ours, theirs = partial
    assert ours.reason == "its vocabulary does not hold every single byte"
    if isinstance(text, str) and is_encodable(text) and "<|" not in text:
        assert tokjax.encode(ours, text).tolist() == theirs(text)["input_ids"]


def test_a_part_of_the_bytes_by_example(partial, tmp_path):
    ours, _ = partial
    assert tokjax.encode_result(ours, "he hé\n日").tokens == ("he", " ", "h", "é")
    assert tokjax.eos_id(ours) == tokjax.get_vocabulary(ours).special["<|endoftext|>"]
    gpt2_files(tmp_path, range(256))
    assert isinstance(tokjax.load_tokenizer(tmp_path), tokjax.models.ByteLevelBPE)
    gpt2_files(tmp_path, range(255))
    other = tokjax.load_tokenizer(tmp_path, pattern="qwen2")
    assert tokjax.encode_result(other, " he e\u0301 12").tokens == (" he", " ", "é", " ", "1", "2")
    spaced = tokjax.load_tokenizer(tmp_path, add_prefix_space=True)
    assert tokjax.encode_result(spaced, "he").tokens == (" he",)
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="pattern='qwen2' needs a vocabulary of every single"
    ):
        tokjax.load_tokenizer(tmp_path, pattern="qwen2", add_prefix_space=True)
