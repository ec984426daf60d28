"""Custom tokenizer type: two registered functions are enough for all of tokjax to accept it.

    pip install '.[examples]' && python examples/custom_tokenizer.py

The tokenizer splits names in source code into their parts (`read_http` and `readHttp` into two words each),
and rare parts into bytes. The program checks the type with `check_tokenizer`, writes a dataset with it, and
compares it on held-out code with a byte-level BPE of the same vocabulary size.
"""

import re
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import typer
from corpus import read_corpus

import tokjax
from tokjax.testing import CHECKS, check_tokenizer
from tokjax.trainer import train_bpe

EOS = {"<eos>": 256}
BYTE_TOKENIZER = tokjax.byte_level_bpe(
    {bytes([i]): i for i in range(256)}, special_tokens=EOS, eos_token="<eos>"
)
# A word, a run of capitals, of whitespace, or of punctuation and non-ASCII bytes; otherwise one byte.
PART = re.compile(rb" ?[A-Z]?[a-z]+| ?[A-Z]+(?![a-z])|\s+| ?[!-/:-@[-^`{-~\x80-\xfe]+|.", re.DOTALL)
INNER_WORD = re.compile(rb"(?:(?<=\w_)|(?<=[a-z])(?=[A-Z]))(?:[A-Z]+(?![a-z])|[A-Z]?[a-z]+)")


class NameParts(NamedTuple):
    """Tokenizer whose tokens are parts of names, runs of punctuation and of whitespace, and single bytes.

    Attributes:
        vocabulary: the 256 bytes, the most frequent parts, and the EOS token.
    """

    vocabulary: tokjax.Vocabulary


@tokjax.get_vocabulary.register
def _(tokenizer: NameParts) -> tokjax.Vocabulary:
    return tokenizer.vocabulary


@tokjax.encode_texts.register
def _(tokenizer: NameParts, texts, **options) -> tokjax.TokenizationBatch:
    # A byte-level tokenizer handles special tokens, offsets and masks. Then its tokens are merged into parts:
    #     r e a d _ h t t p <eos>
    #     read    _ http    <eos>      first = [0, 4, 5, 9], lengths = [4, 1, 4, 1]
    by_byte, ordinary = tokjax.encode_texts(BYTE_TOKENIZER, texts, **options), tokenizer.vocabulary.ordinary
    # Special tokens become byte 255, which UTF-8 never contains and no part of several bytes includes.
    rows = [row.ids.clip(max=255).astype(np.uint8).tobytes() for row in by_byte]
    parts = [part for row in rows for part in PART.findall(row)]
    tokens = [token for part in parts for token in ([part] if part in ordinary else map(bytes, zip(part)))]
    lengths = np.array([*map(len, tokens)], np.int64)
    first = np.cumsum(lengths) - lengths
    ids = np.where(lengths > 1, [ordinary[token] for token in tokens], by_byte.ids[first])
    columns = [None if column is None else column[first] for column in by_byte.ragged[2:]]
    if by_byte.offsets is not None:  # a token starts with its first byte and stops with its last
        columns[0][:, 1] = by_byte.offsets[first + lengths - 1, 1]
    ragged = tokjax.Ragged(ids.astype(np.int32), np.searchsorted(first, by_byte.row_splits), *columns)
    metadata, get_strings = tokjax.ResultMetadata("name_parts"), tokenizer.vocabulary.get_token_strings
    return tokjax.TokenizationBatch(
        ragged, metadata, get_strings, has_attention_mask=by_byte.has_attention_mask
    )


def train_name_parts(texts, vocab_size):
    """Returns a tokenizer with the most frequent parts of the texts."""
    counts = Counter(part for text in texts for part in PART.findall(text.encode()) if len(part) > 1)
    frequent = {part: 257 + i for i, (part, _) in enumerate(counts.most_common(max(vocab_size - 257, 0)))}
    return NameParts(
        tokjax.make_vocabulary(BYTE_TOKENIZER.vocabulary.ordinary | frequent, EOS, {"eos": "<eos>"})
    )


def measure_tokenizer(tokenizer, texts):
    """Returns the bytes per token, and the share of the words inside names that are a single token."""
    batch = tokjax.encode_batch_result(tokenizer, texts, add_special_tokens=False, disallowed_special=())
    words = [{match.span() for match in INNER_WORD.finditer(text.encode())} for text in texts]
    tokens = ({*map(tuple, (result.offsets - 1).tolist())} for result in batch)  # 0-based, as in `words`
    num_single = sum(map(len, map(set.intersection, words, tokens)))
    nbytes = sum(len(text.encode()) for text in texts)
    return nbytes / len(batch.ids), num_single / max(sum(map(len, words)), 1)


def main(
    corpus: list[Path] = typer.Option([], help="text file; repeat the option for several files"),
    directory: Path = Path("runs/custom_tokenizer"),
    megabytes: float = typer.Option(4, help="amount of text to train on, in MB"),
    vocab_size: int = 4096,
):
    texts, held_out = read_corpus(corpus, megabytes)
    tokenizer = train_name_parts(texts, vocab_size)
    check_tokenizer(tokenizer)  # raises an error unless the type fulfils the protocol
    bpe = train_bpe(texts, vocab_size=vocab_size, pattern="cl100k", progress=False).tokenizer
    field = tokjax.PackedTokenField(tokenizer, chunk_tokens=64, disallowed_special=())
    tokjax.write_dataset(texts, field, directory, overwrite=True)
    dataset = tokjax.open_dataset(directory, tokenizer)  # a custom type is passed, not loaded
    batch = tokjax.PackedTokenLoader(dataset, batch_size=4).batch_at(0)
    print(f"passed {len(CHECKS)} checks; a batch of {dataset}:\n{tokjax.show_batch(batch, tokenizer)}")
    for name, one in (("name parts", tokenizer), ("byte-level BPE", bpe)):
        nbytes, share = measure_tokenizer(one, held_out)
        print(f"{name}, held out: {nbytes:.2f} bytes per token, {share:.1%} of words in names are one token")


if __name__ == "__main__":
    try:
        typer.run(main)
    except (tokjax.TokjaxError, OSError) as error:
        sys.exit(f"error: {error}")
