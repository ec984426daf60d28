"""Tests of `TagSet`."""

import pickle

import numpy as np

import tokjax
from tests.support.rejections import rejects
from tests.support.token_strategies import LABELS


def test_tags_and_ids():
    expected = {
        "BIO": "O B-PER I-PER B-ORG I-ORG",
        "BILOU": "O B-PER I-PER L-PER U-PER B-ORG I-ORG L-ORG U-ORG",
        "IOBES": "O B-PER I-PER E-PER S-PER B-ORG I-ORG E-ORG S-ORG",
        "IO": "O I-PER I-ORG",
        "IOE2": "O I-PER E-PER I-ORG E-ORG",
    }
    for scheme, tags in expected.items():
        tagset = tokjax.align.TagSet(["PER", "ORG"], scheme)
        assert " ".join(tagset.tags) == tags
        assert len(tagset) == len(tagset.tags)
        assert tagset.get_ids(tagset.tags).tolist() == list(range(len(tagset)))
        assert tagset.get_tags([*range(len(tagset)), -100]) == [*tagset.tags, "_"]
        assert pickle.loads(pickle.dumps(tagset)) == tagset == tokjax.align.TagSet(("PER", "ORG"), scheme)
        assert hash(tagset) == hash(tokjax.align.TagSet(("PER", "ORG"), scheme))
    with rejects("unknown tag 'B-DOG'; the tags are O, I-PER, I-ORG"):
        tokjax.align.TagSet(["PER", "ORG"], "IO").get_id("B-DOG")
    with rejects("7 is not the id of a tag: ids are 0 to 6"):
        tokjax.align.TagSet(LABELS).get_tags([7])
    with rejects("ignore_index is 6, which is the tag 'I-A-B'"):
        tokjax.align.TagSet(LABELS).get_tags([6], ignore_index=6)
    for labels in ({"PER", "ORG"}, frozenset(LABELS)):
        for make in (tokjax.align.TagSet, lambda labels: tokjax.align.span_columns([], labels)):
            with rejects(r"labels is a set, .* sorted\(labels\)"):
                make(labels)
    assert tokjax.align.TagSet(dict.fromkeys(LABELS)).labels == LABELS


def test_tags_of_a_batch():
    ids = np.array([[0, 3, -100], [1, 2, 0]])
    assert tokjax.align.TagSet(LABELS).get_tags(ids) == [["O", "B-ORG", "_"], ["B-PER", "I-PER", "O"]]
    assert tokjax.align.TagSet(LABELS).get_tags(ids[:, :0]) == [[], []]
    assert tokjax.align.TagSet(LABELS).get_tags([]) == []
