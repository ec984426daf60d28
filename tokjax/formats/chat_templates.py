"""Loading of chat templates from a model's directory or repository.

A model has one default template, and may have others by name. They are read from files, or from a field of
`tokenizer_config.json`, which older models use:

    model/
      chat_template.jinja                    load_chat_template("model")
      additional_chat_templates/
        rag.jinja                            load_chat_template("model", "rag")
      tokenizer_config.json                  "chat_template": a string (the default), or a list of objects
                                             {"name": "rag", "template": ...}; read where no file exists

`encoding.chat` applies templates to conversations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokjax._util.atomic_files import check_path
from tokjax.errors import TokenizerFormatError
from tokjax.formats.names import EncodingName, parse_name
from tokjax.formats.remote_files import open_files
from tokjax.formats.tokenizer_files import (
    CHAT_TEMPLATE_FILE,
    CHAT_TEMPLATES_DIRECTORY,
    CONFIG_FILE,
    read_bytes,
    read_companion_config,
)

if TYPE_CHECKING:
    import os
    from pathlib import Path


_DEFAULT = "default"
"""Name of the default template."""


def load_chat_template(path: str | os.PathLike[str], name: str = _DEFAULT) -> str:
    """Loads the Jinja chat template of a model, for `encode_chat`.

    The default template is read from `chat_template.jinja`, other templates from
    `additional_chat_templates/NAME.jinja`. If that file does not exist, the template is read from the field
    `chat_template` of `tokenizer_config.json`.

    Args:
        path: path of the model's directory, or its URL or the name of its repository, as for
            `load_tokenizer`.
        name: name of the template, for models with several.

    Raises:
        FileNotFoundError: the directory does not exist.
        TokenizerFormatError: the directory has no template of that name.
        TokenizerNotFoundError: the files of the repository are not available, as for `load_tokenizer`.
    """
    parsed = parse_name(path)
    if isinstance(parsed, EncodingName):
        raise TokenizerFormatError(f"{path!r} is an encoding of tiktoken, which has no chat template")
    with open_files(parsed or path) as found:
        return _read_chat_template(check_path(found), name)


def _read_chat_template(directory: Path, name: str) -> str:
    """Reads the chat template of a name from a directory."""
    if not directory.is_dir():
        raise FileNotFoundError(f"{directory}: no such directory")
    template_path = (
        directory / CHAT_TEMPLATE_FILE
        if name == _DEFAULT
        else directory / CHAT_TEMPLATES_DIRECTORY / f"{name}.jinja"
    )
    if template_path.is_file():
        return read_bytes(template_path).decode("utf-8", "replace")
    config_value = read_companion_config(directory).config.get("chat_template")
    templates = (
        {_DEFAULT: config_value} if isinstance(config_value, str) else _parse_named_templates(config_value)
    )
    if not isinstance(templates.get(name), str):
        raise TokenizerFormatError(
            f"{directory}: has no chat template {name!r}: the file {template_path.name} does not exist, and "
            f"{CONFIG_FILE} has {sorted(templates) or 'none'}"
        )
    return templates[name]


def _parse_named_templates(config_value: object) -> dict[str, str]:
    """Returns name to template for a list of objects with the fields `name` and `template`."""
    entries = config_value if isinstance(config_value, list) else []
    return {
        str(entry["name"]): entry["template"]
        for entry in entries
        if isinstance(entry, dict) and {"name", "template"} <= set(entry)
    }
