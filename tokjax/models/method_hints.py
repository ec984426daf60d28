"""Hints for users of other libraries: errors that name the function to call instead of a method.

Tokenizers are used through functions. `tokenizer.encode(text)`, as in other libraries, raises an error that
shows `tokjax.encode(tokenizer, text)`.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any, NoReturn

from tokjax.errors import UnsupportedTokenizerError

if TYPE_CHECKING:
    from types import ModuleType

_ENCODE = "tokjax.encode(tokenizer, text) or tokjax.encode_result(tokenizer, text)"
_ENCODE_BATCH = (
    "tokjax.encode_batch_result(tokenizer, texts), or tokjax.encode_to_array(tokenizer, texts) for ids alone"
)
_LOAD = "tokjax.load_tokenizer(path), or tokjax.formats.from_huggingface(tokenizer)"
_ROLES = ("bos", "eos", "pad", "unk", "cls", "sep", "mask")
_METHODS = {
    "encode": _ENCODE,
    "encode_plus": "tokjax.encode_result(tokenizer, text)",
    "encode_ordinary": "tokjax.encode(tokenizer, text, disallowed_special=())",
    "encode_batch": _ENCODE_BATCH,
    "encode_ordinary_batch": _ENCODE_BATCH,
    "batch_encode_plus": _ENCODE_BATCH,
    "tokenize": "tokjax.tokenize(tokenizer, text)",
    "decode": "tokjax.decode(tokenizer, ids)",
    "decode_batch": "tokjax.decode_batch(tokenizer, rows)",
    "batch_decode": "tokjax.decode_batch(tokenizer, rows)",
    "decode_stream": "tokjax.decode_stream(tokenizer, ids)",
    "pre_tokenize_str": "tokjax.pre_tokenize(tokenizer, text)",
    "add_tokens": "tokjax.extend_vocabulary(tokenizer, tokens)",
    "add_special_tokens": "tokjax.extend_vocabulary(tokenizer, tokens, special=True)",
    "apply_chat_template": "tokjax.encode_chat(tokenizer, messages, template)",
    "pad": "tokjax.collate_padded_batch(results, pad_id=ID)",
    "token_to_id": "tokjax.token_to_id(tokenizer, token)",
    "convert_tokens_to_ids": "tokjax.token_to_id(tokenizer, token)",
    "id_to_token": "tokjax.id_to_token(tokenizer, id)",
    "convert_ids_to_tokens": "tokjax.id_to_token(tokenizer, id)",
    "get_vocab": "tokjax.get_vocabulary(tokenizer)",
    "vocab_size": "tokjax.vocab_size(tokenizer)",
    "get_vocab_size": "tokjax.vocab_size(tokenizer)",
    "n_vocab": "tokjax.vocab_size(tokenizer)",
    **{f"{role}_token_id": f"tokjax.{role}_id(tokenizer)" for role in _ROLES},
    "eot_token": "tokjax.eos_id(tokenizer)",
    "save": "tokjax.save_tokenizer(tokenizer, path)",
    "save_pretrained": "tokjax.formats.export_tokenizer(tokenizer, path, 'huggingface')",
    "from_pretrained": _LOAD,
}
_FUNCTIONS = {
    "load_dataset": "tokjax.open_dataset(path)",
    "load_from_disk": "tokjax.open_dataset(path)",
    "load": _LOAD,
    "from_file": _LOAD,
    "AutoTokenizer": _LOAD,
    "Tokenizer": _LOAD,
    "get_encoding": "tokjax.formats.from_tiktoken(tiktoken.get_encoding(name))",
    "train_bpe": "tokjax.trainer.train_bpe(texts, vocab_size=SIZE)",
    "train": "tokjax.trainer.train_bpe(texts, vocab_size=SIZE)",
}


def suggest_function(name: str, package: ModuleType) -> str:
    """Returns a hint for a name that a package lacks: "; use ..." with the name to use, or an empty string.

    Args:
        name: the missing name.
        package: `tokjax`. Its namespaces are searched for the name.
    """
    if advice := _FUNCTIONS.get(name, _METHODS.get(name)):
        return f"; use {advice}"
    for module in pkgutil.iter_modules(package.__path__):
        namespace = f"{package.__name__}.{module.name}"
        if module.name in package.__all__ and name in importlib.import_module(namespace).__all__:
            return f"; use {namespace}.{name}"
    return ""


class MethodHints:
    """Base class of tokenizers. Methods of other libraries raise an error that names the function to use."""

    def __getattr__(self, name: str) -> NoReturn:
        """Raises `AttributeError`; Python calls it for attributes that the tokenizer does not have."""
        advice = f"; tokenizers are used through functions: {_METHODS[name]}" if name in _METHODS else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{advice}")

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        """Raises `UnsupportedTokenizerError`: tokenizers are not callable."""
        raise UnsupportedTokenizerError(
            f"a {type(self).__name__} is not callable: use {_ENCODE} for one text, {_ENCODE_BATCH}"
        )
