"""Exception hierarchy. Every error that tokjax raises deliberately is a `TokjaxError`.

Each class also derives from the built-in exception that a caller would expect, so `except ValueError` works
without an import of this module.
"""

from typing import NamedTuple

__all__ = [
    "BundleError",
    "BundleExistsError",
    "DatasetCorruptError",
    "DatasetError",
    "DatasetExistsError",
    "DatasetIncompleteError",
    "DatasetIndexError",
    "DatasetMismatchError",
    "DisallowedSpecialTokenError",
    "Hint",
    "InvalidArgumentError",
    "MissingExtraError",
    "MissingSpecialTokenError",
    "OffsetsContractError",
    "SourceError",
    "TokenizerFormatError",
    "TokenizerNotFoundError",
    "TokjaxError",
    "TrainingError",
    "UnknownTokenError",
    "UnsupportedTokenizerError",
]


class Hint(NamedTuple):
    """Advice for fixing the cause of an error.

    Attributes:
        python: advice for callers of the library, with a call or an argument.
        shell: advice for users of the `tokjax` command, with a command or an option; may be empty.
    """

    python: str
    shell: str


class TokjaxError(Exception):
    """Base class of all errors of tokjax.

    Args:
        message: cause of the error, with the invalid value.
        hint: advice. `str(error)` ends with `hint.python`; the `tokjax` command shows `hint.shell` instead.

    Attributes:
        message: error message without the hint.
        hint: advice, or `None`.
    """

    message: str
    hint: Hint | None

    def __init__(self, message: object = "", *, hint: Hint | None = None) -> None:
        """Joins the message and the hint."""
        self.message, self.hint = str(message), hint
        super().__init__(f"{message}; {hint.python}" if hint else self.message)


def make_overwrite_hint(purpose: str, otherwise: str = "") -> Hint:
    """Returns the hint to pass `overwrite=True`, or `--overwrite` in a shell.

    Args:
        purpose: effect of the option, as in `"replace it"`.
        otherwise: alternative to the option, as in `", or delete it"`.
    """
    return Hint(f"to {purpose}, pass overwrite=True{otherwise}", f"to {purpose}, pass --overwrite{otherwise}")


class InvalidArgumentError(TokjaxError, ValueError):
    """An argument has an invalid value."""


class OffsetsContractError(TokjaxError, ValueError):
    """A span violates the offset contract (1-based, half-open, inside the text)."""


class UnknownTokenError(TokjaxError, LookupError):
    """A token or an id is not in the vocabulary."""


class DisallowedSpecialTokenError(TokjaxError, ValueError):
    """The text contains a special token that the caller did not allow."""


class MissingSpecialTokenError(TokjaxError, ValueError):
    """The operation needs a special token that the tokenizer does not declare."""


class UnsupportedTokenizerError(TokjaxError, TypeError):
    """The generic function has no implementation for this tokenizer's type."""


class TokenizerFormatError(TokjaxError, ValueError):
    """A tokenizer file is damaged, altered, of an unknown version or of another format."""


class TokenizerNotFoundError(TokjaxError, FileNotFoundError):
    """No tokenizer of this name is available: it is unknown, gated, or neither cached nor reachable."""


class SourceError(TokjaxError, ValueError):
    """A file of a corpus is damaged, or its contents do not have the format that its name implies."""


class MissingExtraError(TokjaxError, ImportError):
    """A feature needs an optional package that is not installed, or only in an unsupported version."""


class TrainingError(TokjaxError, RuntimeError):
    """A vocabulary could not be trained."""


class DatasetError(TokjaxError):
    """Base class of the errors about dataset directories."""


class DatasetIncompleteError(DatasetError, FileNotFoundError):
    """The directory does not contain a finished dataset, for instance because its writer was killed."""


class DatasetExistsError(DatasetError, FileExistsError):
    """The target directory of a dataset exists already, or another process is writing it."""


class DatasetCorruptError(DatasetError, ValueError):
    """A file of the dataset is missing, truncated or altered."""


class DatasetMismatchError(DatasetError, ValueError):
    """The dataset was made with another tokenizer, type or version than the requested one."""


class DatasetIndexError(DatasetError, IndexError):
    """The index of a document is out of range."""


class BundleError(TokjaxError, ValueError):
    """A training bundle is damaged, altered or of an unknown version."""


class BundleExistsError(BundleError, FileExistsError):
    """The target directory of a training bundle exists already, or another process is writing it."""
