"""Suites, in the order in which they run.

Each is a module of this package with `PACKAGES`, whose versions are recorded, and `measure(bench)`.
"""

SUITES = {
    "encode": "encoding to ids, and to ids with offsets and masks, compared with four libraries",
    "texts": "training and encoding of many different texts: the median and the worst ratio",
    "short": "latency of encoding one text, from a character to a megabyte",
    "first": "large vocabularies: loading, the first call, and one short text per call",
    "tokenizers": "tokens per second and latency, compared with Hugging Face, tiktoken and SentencePiece",
    "kinds": "every type of tokenizer, compared with the library whose files it reads",
    "growth": "worst-case inputs of doubling sizes",
    "curves": "time by size of text, size of vocabulary, number of documents and threads",
    "train": "training of BPE vocabularies, compared with five other trainers",
    "ladder": "three merge algorithms on the same pre-token counts",
    "storage": "storage strategies: size on disk and loading time",
    "loading": "batches from a large dataset, compared with nanoGPT's loop, torch and Grain",
    "batching": "batching, compared with transformers, TRL, Grain, seqio, Python loops and memcpy",
    "device": "functions under jit, as a share of memory bandwidth; encode_jit; overlap of loading",
}
