"""Chat templates in the directories of models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokjax.errors import TokenizerFormatError
from tokjax.formats.tokenizer_files import CONFIG_FILE, as_path, read_bytes, read_companion_config

if TYPE_CHECKING:
    import os

_TEMPLATE_FILE = "chat_template.jinja"
_MORE_TEMPLATES = "additional_chat_templates"
_DEFAULT = "default"


def load_chat_template(path: str | os.PathLike[str], name: str = _DEFAULT) -> str:
    """The Jinja template of a model's conversations, for `encode_chat`.

    It is `chat_template.jinja` (others than the default one in `additional_chat_templates/`), or what
    `tokenizer_config.json` says.

    Args:
        path: the model's directory.
        name: which template, where there are several.

    Raises:
        FileNotFoundError: there is no such directory.
        TokenizerFormatError: there is no such template.
    """
    directory = as_path(path)
    if not directory.is_dir():
        raise FileNotFoundError(f"{directory}: there is no such directory")
    template_path = (
        directory / _TEMPLATE_FILE if name == _DEFAULT else directory / _MORE_TEMPLATES / f"{name}.jinja"
    )
    if template_path.is_file():
        return read_bytes(template_path).decode("utf-8", "replace")
    config_value = read_companion_config(directory).config.get("chat_template")
    templates = (
        {_DEFAULT: config_value} if isinstance(config_value, str) else _parse_named_templates(config_value)
    )
    if not isinstance(templates.get(name), str):
        raise TokenizerFormatError(
            f"{directory}: holds no chat template {name!r}: there is no {template_path.name}, and {CONFIG_FILE} has "
            f"{sorted(templates) or 'none'}"
        )
    return templates[name]


def _parse_named_templates(config_value: object) -> dict[str, str]:
    entries = config_value if isinstance(config_value, list) else []
    entries_with_name = [
        entry for entry in entries if isinstance(entry, dict) and {"name", "template"} <= set(entry)
    ]
    return {str(entry["name"]): entry["template"] for entry in entries_with_name}
