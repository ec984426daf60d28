"""Datasets of given ids, without special tokens that the field adds."""

import tokjax


def write_id_dataset(documents, path, tokenizer, **options):
    """Writes documents of ids as a packed dataset, and opens it.

    Args:
        documents: ids of each document.
        path: directory of the dataset.
        tokenizer: tokenizer of the ids.
        **options: options of `PackedTokenField`. By default, no EOS token is added.
    """
    field = tokjax.PackedTokenField(tokenizer, **{"add_eos_between_docs": False} | options)
    tokjax.write_dataset([{"ids": ids} for ids in documents], field, path)
    return tokjax.open_dataset(path)
