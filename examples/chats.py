"""Conversations in JSON lines, and their dataset with the loss mask of the answers."""

import json
import re

from corpus import iter_described_functions, read_corpus

import tokjax
from tokjax.trainer import train_bpe

CHATML = """{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def write_chats(path, corpus, megabytes):
    """Writes conversations about the functions of Python source, as JSON lines."""
    functions = iter_described_functions(read_corpus(corpus, megabytes)[0])
    if not functions:
        raise tokjax.errors.InvalidArgumentError(
            "there are no conversations: the corpus has no function with a docstring; pass --chats"
        )
    lines = (
        json.dumps(
            {
                "messages": [
                    {"role": "user", "content": f"What does {name} do?"},
                    {"role": "assistant", "content": answer},
                ]
            }
        )
        for name, answer in functions
    )
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def prepare_dataset(directory, chats, template, vocab_size, length):
    """Trains a tokenizer on the conversations, and writes them with their loss mask.

    A dataset that was written already is only opened. The special tokens of the tokenizer are those that the
    template writes.
    """
    with chats.open(encoding="utf-8") as lines:
        texts = [message["content"] for line in lines for message in json.loads(line)["messages"]]
    special = sorted({*re.findall(r"<\|\w+\|>", template)})
    tokenizer = train_bpe(
        texts, vocab_size=vocab_size, special_tokens=[*special, "<|pad|>"], pad_token="<|pad|>"
    ).tokenizer
    field = tokjax.datasets.ChatField(tokenizer, template, max_tokens=length)
    tokjax.write_dataset(chats, field, directory)
    return tokjax.open_dataset(directory)
