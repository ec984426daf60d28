"""Tests of continued training, against a naive trainer that starts from encoded pre-tokens."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.oracles.naive_bpe import split_pretokens, train_naively
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.rejections import rejects
from tests.support.text_strategies import hard_texts
from tests.support.training import limit_segments
from tokjax.trainer import (
    continue_bpe,
    count_pretokens,
    load_training_bundle,
    save_training_bundle,
    train_bpe,
)
from tokjax.trainer.bpe import train_bpe as module

SUPERBPE = r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]{2,}[\r\n/]*| +(?!\S)"


def train(source, vocab_size, **options):
    return train_bpe(source, vocab_size=vocab_size, progress=False, **options)


def continue_training(tokenizer, source, num_tokens, **options):
    vocab_size = tokjax.vocab_size(tokenizer) + num_tokens
    return continue_bpe(tokenizer, source, vocab_size=vocab_size, progress=False, **options)


def train_naive_merges(tokenizer, texts, num_tokens, pattern="gpt2", **options):
    special = tokenizer.vocabulary.split_token_names
    pretokens = [pretoken for text in texts for pretoken in split_pretokens(text, special, pattern)]
    return train_naively(pretokens, num_tokens, initial=tokenizer, **options)


def make_tokenizer(texts, num_tokens, kind):
    """Makes a tokenizer with the merges of some texts.

    Args:
        texts: texts to train on.
        num_tokens: number of merges.
        kind: one of these:
            `"trained"`: as `train_bpe` returns it;
            `"merges"`: with a list of merges, a special token before the bytes, and bytes in another order;
            `"ignore_merges"`: also with a free id, and a token that no merge makes.
    """
    trained = train(texts, 256 + num_tokens)
    if kind == "trained":
        return trained.tokenizer
    order = [bytes([byte]) for byte in np.random.default_rng(0).permutation(256).tolist()]
    tokens = dict.fromkeys([*order, *map(b"".join, trained.merges)])
    ids = {token: id_ for id_, token in enumerate(tokens, 1)}
    if kind == "ignore_merges":
        ids.setdefault(b"abab", len(ids) + 2)
    return tokjax.byte_level_bpe(
        ids,
        merges=tuple(dict.fromkeys(trained.merges)),
        ignore_merges=kind == "ignore_merges",
        special_tokens={"<s>": 0},
        bos_token="<s>",
    )


kinds = st.sampled_from(["trained", "merges", "ignore_merges"])


@get_max_examples(100)
@given(
    st.lists(st.text("ab", max_size=12), max_size=5),
    st.lists(st.text("ab", max_size=12), max_size=8),
    st.integers(0, 9),
    st.integers(0, 20),
    kinds,
    st.integers(1, 3),
    st.sampled_from([0, 2, 16]),
)
def test_tiny_alphabets_equal_naive_training(
    old_texts, texts, num_old, num_tokens, kind, min_frequency, symbols_per_pair
):
    tokenizer = make_tokenizer(old_texts, num_old, kind)
    options = {"min_frequency": min_frequency}
    with pytest.MonkeyPatch.context() as patch:
        limit_segments(patch, symbols_per_pair)
        trained, _ = continue_training(tokenizer, texts, num_tokens, **options)
    assert list(trained.merges) == train_naive_merges(tokenizer, texts, num_tokens, **options)


@given(
    st.lists(hard_texts, max_size=4),
    st.lists(hard_texts, max_size=4),
    st.integers(0, 30),
    st.integers(0, 30),
    kinds,
    st.sampled_from([None, "cl100k", SUPERBPE]),
)
def test_hard_texts_equal_naive_training(old_texts, texts, num_old, num_tokens, kind, pattern):
    tokenizer = make_tokenizer(old_texts, num_old, kind)
    trained, _ = continue_training(tokenizer, texts, num_tokens, pattern=pattern)
    counts = count_pretokens(
        texts,
        special_tokens=list(tokenizer.vocabulary.special),
        pattern=pattern or "gpt2",
        progress=False,
    )
    # `split_pretokens` drops text that the expression of SuperBPE does not match.
    pretokens = [pretoken for pretoken, count in counts.items() for _ in range(count)]
    assert list(trained.merges) == train_naively(pretokens, num_tokens, initial=tokenizer)


def test_corpus_equals_naive_training(corpus, monkeypatch):
    monkeypatch.setattr(module, "_PRETOKENS_PER_BATCH", 7)
    tokenizer = train(corpus[:2], 280, special_tokens=["<|endoftext|>"]).tokenizer
    texts = ["<|endoftext|>".join(corpus * 2)]
    trained, _ = continue_training(tokenizer, texts, 150)
    expected = train_naive_merges(tokenizer, texts, 150)
    assert list(trained.merges) == expected
    assert trained.tokenizer.vocabulary.special == {"<|endoftext|>": 256}


def test_same_corpus_equals_longer_training(corpus):
    """Training to a size, and then on, gives the merges of one training."""
    first = train(corpus, 300)
    trained, old_ids = continue_training(first.tokenizer, corpus, 80)
    whole = train(corpus, 380)
    assert first.merges + trained.merges == whole.merges
    assert trained.tokenizer == whole.tokenizer
    assert trained.stats.bytes_per_token == whole.stats.bytes_per_token
    assert old_ids.tolist() == [*range(300), *[-1] * 80]
    assert old_ids.dtype == np.int32


@pytest.mark.parametrize("kind", ["trained", "merges", "ignore_merges"])
def test_old_tokens_keep_their_ids(corpus, kind):
    tokenizer = make_tokenizer(corpus[:3], 40, kind)
    trained, old_ids = continue_training(tokenizer, corpus, 60)
    old, new = tokenizer.vocabulary, trained.tokenizer.vocabulary
    assert old.ordinary.items() <= new.ordinary.items()
    assert (old.special, old.roles, old.template) == (new.special, new.roles, new.template)
    assert new.size == old.size + 60 == len(old_ids)
    new_tokens = [token for token, id_ in new.ordinary.items() if id_ >= old.size]
    made = dict.fromkeys(left + right for left, right in trained.merges)
    assert new_tokens == [token for token in made if token not in old.ordinary]
    assert dataclasses.replace(trained.tokenizer, vocabulary=old, merges=tokenizer.merges) == tokenizer
    num_tokens = sum(len(tokjax.encode(trained.tokenizer, text, add_special_tokens=False)) for text in corpus)
    assert trained.stats.bytes_per_token == trained.stats.bytes / num_tokens
    text = "".join(corpus)
    ids = tokjax.encode(trained.tokenizer, text)
    assert len(ids) < len(tokjax.encode(tokenizer, text))
    assert tokjax.decode(trained.tokenizer, ids, skip_special_tokens=True) == text


def test_result_is_saved_as_any_tokenizer(corpus, tmp_path):
    tokenizer = make_tokenizer(corpus[:3], 40, "merges")
    trained, _ = continue_training(tokenizer, corpus, 60)
    save_training_bundle(trained, tmp_path / "bundle")
    assert load_training_bundle(tmp_path / "bundle").trained == trained
    assert trained.options["initial"] == tokjax.fingerprint(tokenizer)
    tokjax.formats.export_tokenizer(trained.tokenizer, tmp_path / "tokenizer.json", format="huggingface")
    loaded = tokjax.load_tokenizer(tmp_path / "tokenizer.json")
    text = "".join(corpus)
    assert tokjax.encode(loaded, text).tolist() == tokjax.encode(trained.tokenizer, text).tolist()


def test_second_stage_of_superbpe(tmp_path):
    """Tokens of several words are made after the transition, and the files load as SuperBPE's do."""
    texts = [
        "by the way, of the end of the day",
        "by the way of the 1234567 ways",
        "of the end !!! by the way",
    ]
    first = train(texts * 5, 280).tokenizer
    trained, _ = continue_training(first, texts * 5, 20, pattern=SUPERBPE)
    assert b"by the way" in trained.vocab.values()
    assert all(b" " not in token[1:] for token in first.vocabulary.ordinary)
    assert trained.tokenizer.pattern == SUPERBPE
    tokjax.formats.export_tokenizer(trained.tokenizer, tmp_path / "tokenizer.json", format="huggingface")
    loaded = tokjax.load_tokenizer(tmp_path / "tokenizer.json")
    assert type(loaded) is tokjax.models.ByteLevelBPE
    reference = tokjax.formats.from_huggingface
    library = pytest.importorskip("tokenizers").Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in texts:
        ids = tokjax.encode(trained.tokenizer, text).tolist()
        assert tokjax.encode(loaded, text).tolist() == library.encode(text).ids == ids
    assert reference(library) == loaded


def test_counts_and_added_tokens(corpus):
    base = train(corpus[:2], 280, special_tokens=["<|x|>"]).tokenizer
    tokenizer, _ = tokjax.extend_vocabulary(base, ["<think>"])
    texts = ["<think>".join(corpus), "<|x|>".join(corpus)]
    counts = count_pretokens(texts, special_tokens=["<think>", "<|x|>"], progress=False)
    from_counts, _ = continue_training(tokenizer, counts, 40)
    from_texts, _ = continue_training(tokenizer, texts, 40)
    assert from_counts.tokenizer == from_texts.tokenizer
    assert not any(b"<th" in token for token in map(b"".join, from_texts.merges))
    with rejects(
        r"not split at '<\|x\|>', a special or added token .* special_tokens=\['<\|x\|>', '<think>'\]"
    ):
        continue_training(tokenizer, count_pretokens(texts, special_tokens=["<think>"], progress=False), 40)
    with rejects("counted with pattern='gpt2', and the new tokenizer has 'o200k'"):
        continue_training(tokenizer, counts, 40, pattern="o200k")


def test_published_ranks_can_be_continued(gpt2_ranks, corpus):
    tokenizer = tokjax.byte_level_bpe(gpt2_ranks, special_tokens={"<|endoftext|>": 50256})
    texts = ["der Tokenizer lernt deutsche Wörter, und noch mehr deutsche Wörter"] * 3
    trained, old_ids = continue_training(tokenizer, texts, 8)
    assert list(trained.merges) == train_naive_merges(tokenizer, texts, 8)
    assert min(id_ for id_ in trained.vocab if id_ not in tokenizer.vocabulary.bytes_by_id) == 50257
    assert len(old_ids) == 50265


def test_other_tokenizers_are_rejected():
    for tokenizer, name in ((tokjax.byte_level(), "ByteTokenizer"), ("gpt2", "str")):
        with pytest.raises(
            tokjax.errors.UnsupportedTokenizerError,
            match=f"byte-level BPE tokenizer, not a {name}; train a new",
        ):
            continue_bpe(tokenizer, ["text"], vocab_size=300)


def test_tokenizers_that_add_a_space_need_counts():
    tokenizer = tokjax.byte_level_bpe({bytes([i]): i for i in range(256)}, add_prefix_space=True)
    message = r"add_prefix_space=True, .* count_pretokens\(\(text if text\[:1\] == ' '"
    with rejects(message):
        continue_training(tokenizer, ["text"], 3)
    counts = count_pretokens([" text"], pattern=tokenizer.pattern, progress=False)
    trained, _ = continue_training(tokenizer, counts, 1)
    assert len(trained.merges) == 1


@pytest.mark.parametrize("normalizer", ["nfc", None])
@pytest.mark.parametrize("pattern", ["qwen2", "gpt2"])
def test_texts_are_normalized_as_the_tokenizer_does(pattern, normalizer):
    ranks = {bytes([i]): i for i in range(256)}
    tokenizer = tokjax.byte_level_bpe(ranks, pattern=pattern, normalizer=normalizer)
    trained, _ = continue_training(tokenizer, ["e\u0301 e\u0301"], 1)
    expected = (b"\xc3", b"\xa9") if normalizer else (b"\xcc", b"\x81")
    assert trained.merges == (expected,)


def test_invalid_sizes_are_rejected(corpus):
    tokenizer = train(corpus, 300).tokenizer
    with rejects("vocab_size is 299; the 300 ids of the tokenizer need at least 300"):
        continue_training(tokenizer, corpus, -1)
    trained, _ = continue_training(tokenizer, ["ab"], 0)
    assert trained.tokenizer == tokenizer
