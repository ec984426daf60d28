"""Chat templates in the directories of models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokjax.core.errors import TokenizerFormatError
from tokjax.formats.reading import CONFIG_FILE, as_path, companions_of, read_bytes

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
    own = directory / _TEMPLATE_FILE if name == _DEFAULT else directory / _MORE_TEMPLATES / f"{name}.jinja"
    if own.is_file():
        return read_bytes(own).decode("utf-8", "replace")
    said = companions_of(directory).config.get("chat_template")
    templates = {_DEFAULT: said} if isinstance(said, str) else _named(said)
    if not isinstance(templates.get(name), str):
        raise TokenizerFormatError(
            f"{directory}: holds no chat template {name!r}: there is no {own.name}, and {CONFIG_FILE} has "
            f"{sorted(templates) or 'none'}"
        )
    return templates[name]


def _named(said: object) -> dict[str, str]:
    entries = said if isinstance(said, list) else []
    named = [entry for entry in entries if isinstance(entry, dict) and {"name", "template"} <= set(entry)]
    return {str(entry["name"]): entry["template"] for entry in named}
