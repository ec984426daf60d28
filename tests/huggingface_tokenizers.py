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


def trained(kind, special=(*SPECIAL, "<unk>"), **options):
    if kind is trainers.BpeTrainer:
        options = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()} | options
    return kind(vocab_size=600, special_tokens=list(special), show_progress=False, **options)


def byte_level(pre_tokenizer, post_processor=None, normalizer=None, **model):
    made = Tokenizer(models.BPE(**model))
    made.pre_tokenizer = pre_tokenizer
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(CORPUS * 3, trained(trainers.BpeTrainer))
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


def roberta():
    made = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    made.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0), trim_offsets=True)
    made.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    return made


def llama_3():
    made = byte_level(split("llama3"))
    single, pair = "<s> $A", "<s> $A <s>:1 $B:1"
    template = processors.TemplateProcessing(single=single, pair=pair, special_tokens=[("<s>", 0)])
    made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return made


def bert(**steps):
    made = Tokenizer(models.WordPiece(unk_token="<unk>"))
    made.normalizer = normalizers.BertNormalizer(**steps)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.train_from_iterator(CORPUS, trained(trainers.WordPieceTrainer))
    made.post_processor = processors.BertProcessing(("</s>", 1), ("<s>", 0))
    return made


def words():
    made = Tokenizer(models.WordLevel(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.train_from_iterator(CORPUS, trained(trainers.WordLevelTrainer))
    return made


def unigram():
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    made.train_from_iterator(CORPUS, trained(trainers.UnigramTrainer, unk_token="<unk>"))
    made.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B:1 </s>:1", special_tokens=[("</s>", 1)]
    )
    return made


def with_bytes(normalizer=None, pre_tokenizer=None, strip=True):
    """As Llama 2, Mistral and Gemma: blanks are a part of words, and rare characters become bytes."""
    made = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    if normalizer:
        made.normalizer = normalizer
    if pre_tokenizer:
        made.pre_tokenizer = pre_tokenizer
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    made.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if strip else steps)
    special = [*SPECIAL, "<unk>", *(f"<0x{i:02X}>" for i in range(256))]
    made.train_from_iterator(CORPUS[:2], trained(trainers.BpeTrainer, special, initial_alphabet=["▁"]))
    parts = json.loads(made.to_str())
    parts["added_tokens"] = parts["added_tokens"][:5]  # (the bytes are no special tokens)
    return Tokenizer.from_str(json.dumps(parts))


BLANK_TO_MARK = normalizers.Replace(" ", "▁")


def metaspace(prepend_scheme, **options):
    return with_bytes(pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme=prepend_scheme, **options))


OURS = {
    "GPT-2": lambda: byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "with a blank": lambda: byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "trimmed": lambda: byte_level(pre_tokenizers.ByteLevel(), processors.ByteLevel(trim_offsets=True)),
    "RoBERTa": roberta,
    "Llama 3": llama_3,
    "Qwen 2": lambda: byte_level(split("qwen2"), normalizer=normalizers.NFC()),
    "GPT-4o": lambda: byte_level(split("o200k"), ignore_merges=True),
    "BERT": bert,
    "BERT, cased": lambda: bert(lowercase=False),
    "words": words,
    "Llama 2": lambda: with_bytes(normalizers.Sequence([normalizers.Prepend("▁"), BLANK_TO_MARK])),
    "Mistral": lambda: metaspace("first", split=False),
    "Gemma": lambda: with_bytes(
        BLANK_TO_MARK, pre_tokenizers.Split(" ", "merged_with_previous"), strip=False
    ),
    "split": lambda: metaspace("always", split=True),
    "split only": lambda: metaspace("never", split=True),
}
THEIRS = {
    "digits": lambda: byte_level(
        pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    ),
    "unigram": unigram,
}


@lru_cache
def pair_of(name):
    """The library's tokenizer, as it reads it again, and ours."""
    definition = (OURS | THEIRS)[name]().to_str()
    theirs = Tokenizer.from_str(definition)
    return theirs, tokjax.from_huggingface(theirs)
