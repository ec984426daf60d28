"""A tokenizer type of one's own: two registered functions, and the rest of tokjax takes it.

    pip install '.[examples]' && python examples/custom_tokenizer.py

This one takes names in source code apart where their authors did (`read_http`, `readHttp`), and what is rare
byte by byte. Held-out code shows what is won and what it costs, beside a byte-level BPE of the same size.
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
BYTES = tokjax.byte_level_bpe({bytes([i]): i for i in range(256)}, special_tokens=EOS, eos_token="<eos>")
PART = re.compile(rb" ?[A-Z]?[a-z]+| ?[A-Z]+(?![a-z])|\s+| ?[!-/:-@[-^`{-~\x80-\xfe]+|.", re.DOTALL)
INNER_WORD = re.compile(rb"(?:(?<=\w_)|(?<=[a-z])(?=[A-Z]))(?:[A-Z]+(?![a-z])|[A-Z]?[a-z]+)")


class NameParts(NamedTuple):
    """Parts of names, runs of signs and of white space, where the vocabulary has them, and else bytes."""

    vocabulary: tokjax.Vocabulary


@tokjax.get_vocabulary.register
def _(tokenizer: NameParts) -> tokjax.Vocabulary:
    return tokenizer.vocabulary


@tokjax.encode_texts.register
def _(tokenizer: NameParts, texts, **options) -> tokjax.TokenizationBatch:
    single, ordinary = tokjax.encode_texts(BYTES, texts, **options), tokenizer.vocabulary.ordinary
    shown = [row.ids.clip(max=255).astype(np.uint8).tobytes() for row in single]  # 255 for special tokens
    parts = [part for text in shown for part in PART.findall(text)]
    tokens = [token for part in parts for token in ([part] if part in ordinary else map(bytes, zip(part)))]
    lengths = np.array([*map(len, tokens)], np.int64)
    first = np.cumsum(lengths) - lengths
    ids = np.where(lengths > 1, [ordinary[token] for token in tokens], single.ids[first])
    columns = [None if column is None else column[first] for column in single.ragged[2:]]
    if single.offsets is not None:
        columns[0][:, 1] = single.offsets[first + lengths - 1, 1]
    ragged = tokjax.Ragged(ids.astype(np.int32), np.searchsorted(first, single.row_splits), *columns)
    described = tokjax.ResultMetadata("name_parts"), tokenizer.vocabulary.get_token_strings
    return tokjax.TokenizationBatch(ragged, *described, has_attention_mask=single.has_attention_mask)


def name_parts(texts, vocab_size):
    """The tokenizer of the parts that are most frequent in texts."""
    counts = Counter(part for text in texts for part in PART.findall(text.encode()) if len(part) > 1)
    best = {part: 257 + i for i, (part, _) in enumerate(counts.most_common(max(vocab_size - 257, 0)))}
    return NameParts(tokjax.make_vocabulary(BYTES.vocabulary.ordinary | best, EOS, {"eos": "<eos>"}))


def measure_tokenizer(tokenizer, texts):
    """Bytes a token, and the share of the words inside of names that are one token each."""
    batch = tokjax.encode_batch_result(tokenizer, texts, add_special_tokens=False, disallowed_special=())
    words = [{match.span() for match in INNER_WORD.finditer(text.encode())} for text in texts]
    tokens = ({*map(tuple, (result.offsets - 1).tolist())} for result in batch)
    full = sum(map(len, map(set.intersection, words, tokens)))
    return sum(len(text.encode()) for text in texts) / len(batch.ids), full / max(sum(map(len, words)), 1)


def main(
    corpus: list[Path] = typer.Option([], help="a text file, or several: the option again for each"),
    directory: Path = Path("runs/custom_tokenizer"),
    megabytes: float = typer.Option(4, help="how much text to count"),
    vocab_size: int = 4096,
):
    texts, held_out = read_corpus(corpus, megabytes)
    tokenizer = name_parts(texts, vocab_size)
    check_tokenizer(tokenizer)
    bpe = train_bpe(texts, vocab_size=vocab_size, pattern="cl100k", progress=False).tokenizer
    field = tokjax.PackedTokenField(tokenizer, chunk_tokens=64, disallowed_special=())
    tokjax.write_dataset(texts, field, directory, overwrite=True, progress=True)
    dataset = tokjax.open_dataset(directory, tokenizer)  # (no file can hold a type of one's own)
    batch = tokjax.PackedTokenLoader(dataset, batch_size=4).batch_at(0)
    print(f"it passes {len(CHECKS)} checks; a batch of {dataset}:\n{tokjax.show_batch(batch, tokenizer)}")
    for name, made in (("parts of names", tokenizer), ("byte-level BPE", bpe)):
        nbytes, share = measure_tokenizer(made, held_out)
        print(
            f"{name}, held out: {nbytes:.2f} bytes a token, {share:.1%} of words inside names are one token"
        )


if __name__ == "__main__":
    try:
        typer.run(main)
    except (tokjax.TokjaxError, OSError) as error:
        sys.exit(f"error: {error}")
