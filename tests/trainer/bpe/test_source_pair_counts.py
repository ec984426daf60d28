"""Tests of the counts of pairs in several sources, against a full recount after each merge."""

from hypothesis import given, strategies as st

from tests.oracles.naive_bpe import iter_pair_counts
from tokjax.core.vocabulary import ID_BITS
from tokjax.reports.mixture import SourcePairCounts
from tokjax.trainer import count_pretokens, train_bpe

texts_of_sources = st.lists(
    st.lists(st.text("abc ", min_size=1, max_size=9), min_size=1, max_size=4), min_size=1, max_size=3
)


@given(texts_of_sources, st.integers(1, 8))
def test_pair_counts_equal_the_oracle(texts, num_merges):
    sources = [count_pretokens(each, progress=False) for each in texts]
    everything = [text for each in texts for text in each]
    merges = train_bpe(everything, vocab_size=256 + num_merges, progress=False).merges
    table = SourcePairCounts(sources)
    symbols = {bytes([i]): i for i in range(256)}
    names = dict(enumerate(symbols))
    steps = iter_pair_counts([dict(counts.items()) for counts in sources], merges)
    for step, expected in enumerate(steps):
        counts = table.get_counts()
        for source, pairs in enumerate(expected):
            actual = {
                (names[key >> ID_BITS], names[key & ((1 << ID_BITS) - 1)]): counts[row, source]
                for key, row in table.rows.items()
                if counts[row, source]
            }
            assert actual == {pair: n for pair, n in pairs.items() if n}
        if step < len(merges):
            left, right = merges[step]
            new = symbols.setdefault(left + right, 256 + step)
            names[new] = left + right
            table.merge(symbols[left] << ID_BITS | symbols[right], new)
