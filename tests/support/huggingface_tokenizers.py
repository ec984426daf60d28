"""Tokenizers of Hugging Face's library of all kinds, made here: those that are ours to run, and others."""

import json
from functools import lru_cache

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

import tokjax
from tests.conftest import CORPUS
from tokjax.pretokenize.patterns import PATTERNS

SPECIAL = ["<s>", "</s>", "<pad>", "<mask>"]


def train_model(kind, special=(*SPECIAL, "<unk>"), **options):
    if kind is trainers.BpeTrainer:
        options = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()} | options
    return kind(vocab_size=600, special_tokens=list(special), show_progress=False, **options)


def make_byte_level(pre_tokenizer, post_processor=None, normalizer=None, **model):
    made = Tokenizer(models.BPE(**model))
    made.pre_tokenizer = pre_tokenizer
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(CORPUS * 3, train_model(trainers.BpeTrainer))
    if post_processor:
        made.post_processor = post_processor
    if normalizer:
        made.normalizer = normalizer
    return made


def split(name):
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERNS[name]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def make_roberta():
    made = make_byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    made.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0), trim_offsets=True)
    made.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    return made


def make_llama_3():
    made = make_byte_level(split("llama3"))
    single, pair = "<s> $A", "<s> $A <s>:1 $B:1"
    template = processors.TemplateProcessing(single=single, pair=pair, special_tokens=[("<s>", 0)])
    made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return made


def make_bert(**steps):
    made = Tokenizer(models.WordPiece(unk_token="<unk>"))
    made.normalizer = normalizers.BertNormalizer(**steps)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.train_from_iterator(CORPUS, train_model(trainers.WordPieceTrainer))
    made.post_processor = processors.BertProcessing(("</s>", 1), ("<s>", 0))
    return made


def make_word_model():
    made = Tokenizer(models.WordLevel(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.train_from_iterator(CORPUS, train_model(trainers.WordLevelTrainer))
    return made


def make_unigram():
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    made.train_from_iterator(CORPUS, train_model(trainers.UnigramTrainer, unk_token="<unk>"))
    made.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B:1 </s>:1", special_tokens=[("</s>", 1)]
    )
    return made


def make_byte_fallback(normalizer=None, pre_tokenizer=None, strip=True):
    """As Llama 2, Mistral and Gemma: blanks are a part of words, and rare characters become bytes."""
    made = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    if normalizer:
        made.normalizer = normalizer
    if pre_tokenizer:
        made.pre_tokenizer = pre_tokenizer
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    made.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if strip else steps)
    special = [*SPECIAL, "<unk>", *(f"<0x{i:02X}>" for i in range(256))]
    made.train_from_iterator(CORPUS[:2], train_model(trainers.BpeTrainer, special, initial_alphabet=["▁"]))
    parts = json.loads(made.to_str())
    parts["added_tokens"] = parts["added_tokens"][:5]  # (the bytes are no special tokens)
    return Tokenizer.from_str(json.dumps(parts))


SPACE_TO_METASPACE = normalizers.Replace(" ", "▁")


def make_metaspace(prepend_scheme, **options):
    return make_byte_fallback(
        pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme=prepend_scheme, **options)
    )


NATIVE_TOKENIZERS = {
    "GPT-2": lambda: make_byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "with a blank": lambda: make_byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "trimmed": lambda: make_byte_level(pre_tokenizers.ByteLevel(), processors.ByteLevel(trim_offsets=True)),
    "RoBERTa": make_roberta,
    "Llama 3": make_llama_3,
    "Qwen 2": lambda: make_byte_level(split("qwen2"), normalizer=normalizers.NFC()),
    "GPT-4o": lambda: make_byte_level(split("o200k"), ignore_merges=True),
    "BERT": make_bert,
    "BERT, cased": lambda: make_bert(lowercase=False),
    "words": make_word_model,
    "Llama 2": lambda: make_byte_fallback(
        normalizers.Sequence([normalizers.Prepend("▁"), SPACE_TO_METASPACE])
    ),
    "Mistral": lambda: make_metaspace("first", split=False),
    "Gemma": lambda: make_byte_fallback(
        SPACE_TO_METASPACE, pre_tokenizers.Split(" ", "merged_with_previous"), strip=False
    ),
    "split": lambda: make_metaspace("always", split=True),
    "split only": lambda: make_metaspace("never", split=True),
}
LIBRARY_TOKENIZERS = {
    "digits": lambda: make_byte_level(
        pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    ),
    "unigram": make_unigram,
}


@lru_cache
def make_pair(name):
    """The library's tokenizer, as it reads it again, and ours."""
    definition = (NATIVE_TOKENIZERS | LIBRARY_TOKENIZERS)[name]().to_str()
    theirs = Tokenizer.from_str(definition)
    return theirs, tokjax.formats.from_huggingface(theirs)
