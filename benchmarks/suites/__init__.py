"""The suites, in the order in which they run. Each is a module here with `PACKAGES` and `measure(bench)`."""

SUITES = {
    "encode": "text to ids, and to ids with offsets and masks, beside four other libraries",
    "short": "what a call for one text costs, from a character to a megabyte",
    "first": "large vocabularies: loading, the first call, and one short text per call",
    "tokenizers": "tokens a second and latency, beside Hugging Face, tiktoken and SentencePiece",
    "kinds": "every kind of tokenizer beside the library whose files it reads",
    "growth": "inputs that are slow for careless tokenizers, at doubling sizes",
    "curves": "time by size of text, size of vocabulary, documents and threads",
    "train": "text to a BPE vocabulary, beside five other trainers",
    "ladder": "three ways to merge the same counted words",
    "storage": "what each way to store texts costs, on disk and when it is loaded",
    "loading": "batches from a large dataset, beside nanoGPT's loop, torch and Grain",
    "batching": "batches beside transformers, TRL, Grain, seqio, loops and copies",
    "device": "batching functions under jit by the memory's bandwidth; loading behind training steps",
}
