"""Byte-level BPE tokenizers of few tokens."""

import tokjax

ROLES = {"<s>": "bos_token", "</s>": "eos_token", "<pad>": "pad_token"}


def make_byte_tokenizer(*special, tokens=(), **options):
    """Returns a tokenizer of the bytes, then the tokens, then the special tokens with their roles."""
    ids = {bytes([i]): i for i in range(256)} | {token: 256 + i for i, token in enumerate(tokens)}
    names = {name: len(ids) + i for i, name in enumerate(special)}
    roles = {ROLES[name]: name for name in special if name in ROLES}
    return tokjax.byte_level_bpe(ids, special_tokens=names, **roles | options)
