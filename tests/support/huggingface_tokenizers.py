"""Small tokenizers of the `tokenizers` library: some become built-in types, others run on the library."""

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


class DefinitionStub:
    """Stand-in for a library tokenizer that returns a definition unchanged.

    A real tokenizer of the library would serialize the definition again and change it.

    Args:
        definition: contents of a `tokenizer.json`, as JSON text or as a `dict`.
    """

    encode_batch = None

    def __init__(self, definition):
        self.definition = definition if isinstance(definition, str) else json.dumps(definition)

    def to_str(self):
        return self.definition


def make_trainer(trainer, special=(*SPECIAL, "<unk>"), **options):
    if trainer is trainers.BpeTrainer:
        options = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()} | options
    return trainer(vocab_size=600, special_tokens=list(special), show_progress=False, **options)


def make_byte_level(pre_tokenizer, post_processor=None, normalizer=None, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(CORPUS * 3, make_trainer(trainers.BpeTrainer))
    if post_processor:
        tokenizer.post_processor = post_processor
    if normalizer:
        tokenizer.normalizer = normalizer
    return tokenizer


DEEPSEEK_LLM = (
    "[\r\n]",
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿ]+",
    r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    r"\s+$",
    "[一-龥ࠀ-一가-퟿]+",
)
BLOOM = " ?[^(\\s|[.,!?…。，、।۔،])]+"


def make_split(*expressions):
    return pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(expression), "isolated") for expression in expressions),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def make_roberta():
    tokenizer = make_byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0), trim_offsets=True)
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    return tokenizer


def make_llama_3():
    tokenizer = make_byte_level(make_split(PATTERNS["llama3"]))
    single, pair = "<s> $A", "<s> $A <s>:1 $B:1"
    template = processors.TemplateProcessing(single=single, pair=pair, special_tokens=[("<s>", 0)])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def make_bert(**steps):
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer(**steps)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(CORPUS, make_trainer(trainers.WordPieceTrainer))
    tokenizer.post_processor = processors.BertProcessing(("</s>", 1), ("<s>", 0))
    return tokenizer


def make_word_bpe(suffix="</w>", *, whitespace=False, **normalizer):
    """Makes a tokenizer like OpenAI's GPT or HerBERT: merges of the characters of words."""
    options = {"end_of_word_suffix": suffix} if suffix else {}
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", **options))
    if normalizer:
        tokenizer.normalizer = normalizers.BertNormalizer(**normalizer)
    splitters = pre_tokenizers.BertPreTokenizer(), pre_tokenizers.WhitespaceSplit()
    tokenizer.pre_tokenizer = splitters[whitespace]
    tokenizer.decoder = decoders.BPEDecoder(suffix=suffix) if suffix else decoders.Fuse()
    tokenizer.train_from_iterator(
        CORPUS[:4], make_trainer(trainers.BpeTrainer, initial_alphabet=[], **options)
    )
    return tokenizer


def make_herbert():
    tokenizer = make_word_bpe(lowercase=False, strip_accents=False)
    tokenizer.post_processor = processors.BertProcessing(("</s>", 1), ("<s>", 0))
    return tokenizer


def make_word_model():
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.train_from_iterator(CORPUS, make_trainer(trainers.WordLevelTrainer))
    return tokenizer


def make_unigram(*, split=True):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=split)
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(CORPUS, make_trainer(trainers.UnigramTrainer, unk_token="<unk>"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B:1 </s>:1", special_tokens=[("</s>", 1)]
    )
    return tokenizer


def make_byte_fallback(normalizer=None, pre_tokenizer=None, strip=True):
    """Makes a tokenizer like those of Llama 2, Mistral and Gemma: `▁` for spaces, and byte fallback."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if strip else steps)
    special = [*SPECIAL, "<unk>", *(f"<0x{i:02X}>" for i in range(256))]
    tokenizer.train_from_iterator(
        CORPUS[:2], make_trainer(trainers.BpeTrainer, special, initial_alphabet=["▁"])
    )
    parts = json.loads(tokenizer.to_str())
    parts["added_tokens"] = parts["added_tokens"][:5]  # the byte tokens are not special
    return Tokenizer.from_str(json.dumps(parts))


SPACE_TO_METASPACE = normalizers.Replace(" ", "▁")


def make_metaspace(prepend_scheme, **options):
    return make_byte_fallback(
        pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme=prepend_scheme, **options)
    )


# Tokenizers that become built-in types.
NATIVE_TOKENIZERS = {
    "GPT-2": lambda: make_byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "with a space": lambda: make_byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "trimmed": lambda: make_byte_level(pre_tokenizers.ByteLevel(), processors.ByteLevel(trim_offsets=True)),
    "RoBERTa": make_roberta,
    "Llama 3": make_llama_3,
    "Qwen 2": lambda: make_byte_level(make_split(PATTERNS["qwen2"]), normalizer=normalizers.NFC()),
    "GPT-4o": lambda: make_byte_level(make_split(PATTERNS["o200k"]), ignore_merges=True),
    "StarCoder": lambda: make_byte_level(
        pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    ),
    "DeepSeek V3": lambda: make_byte_level(make_split(*PATTERNS["deepseek_v3"])),
    "DeepSeek LLM": lambda: make_byte_level(make_split(*DEEPSEEK_LLM)),
    "Kimi K2": lambda: make_byte_level(make_split(PATTERNS["kimi_k2"])),
    "BLOOM": lambda: make_byte_level(make_split(BLOOM)),
    "Qwen 3.5": lambda: make_byte_level(make_split(PATTERNS["qwen3_5"]), normalizer=normalizers.NFC()),
    "BERT": make_bert,
    "BERT, cased": lambda: make_bert(lowercase=False),
    "words": make_word_model,
    "OpenAI GPT": lambda: make_word_bpe(lowercase=True),
    "HerBERT": make_herbert,
    "word BPE at whitespace": lambda: make_word_bpe(whitespace=True),
    "word BPE without a mark": lambda: make_word_bpe(None),
    "Llama 2": lambda: make_byte_fallback(
        normalizers.Sequence([normalizers.Prepend("▁"), SPACE_TO_METASPACE])
    ),
    "Mistral": lambda: make_metaspace("first", split=False),
    "Gemma": lambda: make_byte_fallback(
        SPACE_TO_METASPACE, pre_tokenizers.Split(" ", "merged_with_previous"), strip=False
    ),
    "split": lambda: make_metaspace("always", split=True),
    "split only": lambda: make_metaspace("never", split=True),
    "unigram": make_unigram,
}
# Tokenizers that run on the library.
LIBRARY_TOKENIZERS = {
    "punctuation": lambda: make_byte_level(
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Punctuation("merged_with_previous"),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
    ),
    "unsplit unigram": lambda: make_unigram(split=False),
}


@lru_cache
def make_pair(name):
    """Returns the library's tokenizer, loaded from its definition, and the one of tokjax."""
    definition = (NATIVE_TOKENIZERS | LIBRARY_TOKENIZERS)[name]().to_str()
    library_tokenizer = Tokenizer.from_str(definition)
    return library_tokenizer, tokjax.formats.from_huggingface(library_tokenizer)
