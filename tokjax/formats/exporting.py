"""Export of tokenizers to the file formats of other libraries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokjax._util.atomic_files import check_path
from tokjax._util.urls import reject_urls
from tokjax.errors import InvalidArgumentError, UnsupportedTokenizerError
from tokjax.formats.file_formats import FORMATS
from tokjax.formats.writers import Target

if TYPE_CHECKING:
    import os

    from tokjax.formats.file_formats import Format

_WRITABLE = [name for name, row in FORMATS.items() if row.write is not None]


def export_tokenizer(tokenizer: Any, path: str | os.PathLike[str], format: Format) -> tuple[Path, ...]:  # noqa: A002
    """Writes a tokenizer in the format of another library, which then produces the same ids.

    | format | tokenizers | files |
    |---|---|---|
    | `"huggingface"` | BPE, WordPiece, word level, and those that run on `tokenizers` | `tokenizer.json` |
    | `"tiktoken"` | byte-level BPE that merges by rank; without the pattern | `ranks.tiktoken` |
    | `"gpt2"` | byte-level BPE with GPT-2's split pattern | `vocab.json` and `merges.txt` |
    | `"wordpiece"` | WordPiece | `vocab.txt` |
    | `"sentencepiece"` | SentencePiece | `tokenizer.model` |
    | `"tokjax"` | all built-in tokenizers | `tokenizer.tokjax.json`, as written by `save_tokenizer` |

    A path that ends with the suffix of the file in the table is that of the file. Any other path, and that of
    an existing directory, is a directory: it is created if necessary, and the file gets the name in the
    table. For the formats of the Hugging Face libraries, a `tokenizer_config.json` with the roles of the
    special tokens is written to the directory. Only a `tokenizer.json` contains the template, that is, the
    special tokens that are inserted around texts. Each file is replaced atomically.

    A SentencePiece model with a normalizer that replaces characters has the same ids in a `tokenizer.json`
    except where a combining mark follows a character that is replaced: the `tokenizers` library may drop it.

    Args:
        tokenizer: a tokjax tokenizer.
        path: path of the file or of a directory.
        format: one of the formats above.

    Returns:
        The paths of the files that contain the tokenizer.

    Raises:
        InvalidArgumentError: the format is unknown, or `path` is a URL, or a file with another suffix.
        UnsupportedTokenizerError: the format can't represent the tokenizer or one of its options.
    """
    target = resolve_target(path, format)
    kind, write = FORMATS[format].kind, FORMATS[format].write
    if kind is not None and not isinstance(tokenizer, kind):
        raise UnsupportedTokenizerError(
            f"format={format!r} is for a {kind.__name__}, not a {type(tokenizer).__name__}"
        )
    assert write is not None  # checked by `resolve_target`
    return write(tokenizer, target)


def resolve_target(path: str | os.PathLike[str], format_: Format) -> Target:
    """Returns the file to write: `path` itself if it has the suffix of the format, or a file in it.

    Raises:
        InvalidArgumentError: as in `export_tokenizer`.
    """
    if format_ not in _WRITABLE:
        raise InvalidArgumentError(f"format must be {', '.join(map(repr, _WRITABLE))}, not {format_!r}")
    reject_urls(path)
    path, name = check_path(path), FORMATS[format_].first_name
    parent_file = next((each for each in path.parents if each.is_file()), None)
    is_single = FORMATS[format_].num_files == 1
    if path.suffix == Path(name).suffix and is_single and not path.is_dir() and not parent_file:
        return Target(path, False)
    if path.is_file() or parent_file:
        file = f"a path that ends with {Path(name).suffix!r}, or " if is_single else ""
        raise InvalidArgumentError(
            f"{parent_file or path} is a file; to write the format {format_!r}, pass {file}a "
            f"directory, in which {name} is written"
        )
    return Target(path / name, True)
