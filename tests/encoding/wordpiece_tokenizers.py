"""Shared helpers: one WordPiece vocabulary as a tokenizer of tokjax and of Hugging Face's `tokenizers`."""

from functools import lru_cache

from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

import tokjax

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = [*SPECIAL, *"abcdéx!", "##a", "##b", "##c", "##dd", "to", "be", "or", "not", "question"]
TEMPLATES = {
    "bert": ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"),
    "roberta": ("[CLS] $A [SEP]", "[CLS] $A [SEP] [SEP] $B [SEP]"),
    "at the end": ("$A [SEP] [CLS]:2", "$A $B:1 [SEP]:1 [CLS]:2"),
    "second first": ("[MASK]:3 $A:1", "$B:2 [SEP] $A"),
    "nothing": ("$A", "$A $B:1"),
}
words = st.sampled_from(["to", "be", "or", "not", "abc", "add", "é!", "question", "zzz", "Not", "x"])
texts = st.lists(words, max_size=12).map(" ".join) | st.sampled_from(["", " ", "a" * 30])


@lru_cache
def make_tokenizers(template="bert"):
    """Returns a WordPiece tokenizer of tokjax, and the same one of Hugging Face's `tokenizers`."""
    single, pair = TEMPLATES[template]
    ids = {token: i for i, token in enumerate(VOCABULARY)}
    reference = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    reference.normalizer = normalizers.BertNormalizer()
    reference.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    reference.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(name, ids[name]) for name in SPECIAL]
    )
    return tokjax.with_template(tokjax.wordpiece(VOCABULARY), single, pair), reference


def assert_equal_results(result, encoding):
    """Checks that a result has the ids and masks of an `Encoding` of Hugging Face's `tokenizers`."""
    assert result.ids.tolist() == encoding.ids
    assert result.token_type_ids.tolist() == encoding.type_ids
    assert result.sequence_ids.tolist() == [-1 if i is None else i for i in encoding.sequence_ids]
    assert result.word_ids.tolist() == [-1 if i is None else i for i in encoding.word_ids]
    inserted = result.sequence_ids == -1
    unknown = result.ids == SPECIAL.index("[UNK]")
    assert result.special_tokens_mask.tolist() == (inserted | unknown).astype(int).tolist()
    assert (result.offsets[inserted] == 0).all()
    assert result.attention_mask.tolist() == encoding.attention_mask


def get_reference_spans(text, encoding, sequence):
    """Returns the spans of one text of a pair by Hugging Face's `tokenizers`, as byte spans."""
    tokens = [i for i, sequence_id in enumerate(encoding.sequence_ids) if sequence_id == sequence]
    return (
        tokjax.offsets.char_to_byte_spans(text, [encoding.offsets[i] for i in tokens]).tolist()
        if tokens
        else []
    )


def get_input_spans(tokenizer, text, result, sequence):
    """Returns the byte spans of one text of a pair in the input, before normalization."""
    offsets = result.offsets[result.sequence_ids == sequence]
    return tokjax.map_offsets_to_input(tokenizer, text, offsets).tolist()
