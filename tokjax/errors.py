"""The exception tree. Every error that tokjax raises on purpose is a `TokjaxError`.

Each class also derives from the built-in exception that a caller would expect, so `except ValueError`
keeps working for those who do not import from here.
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
    "TokjaxError",
    "TooManyTracesError",
    "TrainingError",
    "UnknownTokenError",
    "UnsupportedTokenizerError",
]


class Hint(NamedTuple):
    """What to do about an error.

    Attributes:
        python: a call or an argument, for callers of the library.
        shell: a command or an option, for users of the `tokjax` command; empty where there is none.
    """

    python: str
    shell: str


class TokjaxError(Exception):
    """Root of all errors raised by tokjax.

    Args:
        message: the cause and the value.
        hint: what to do. `str(error)` ends with it, and the `tokjax` command shows `hint.shell` instead.

    Attributes:
        message: the error without its hint.
        hint: what to do; `None` where the message says all.
    """

    message: str
    hint: Hint | None

    def __init__(self, message: object = "", *, hint: Hint | None = None) -> None:
        """Joins message and hint."""
        self.message, self.hint = str(message), hint
        super().__init__(f"{message}; {hint.python}" if hint else self.message)


def make_overwrite_hint(purpose: str, otherwise: str = "") -> Hint:
    """Returns the hint to pass `overwrite=True`.

    Args:
        purpose: what for, as in `"replace it"`.
        otherwise: another way, as in `", or delete it"`.
    """
    return Hint(f"to {purpose}, pass overwrite=True{otherwise}", f"to {purpose}, pass --overwrite{otherwise}")


class InvalidArgumentError(TokjaxError, ValueError):
    """An argument has a value that the function can't work with."""


class OffsetsContractError(TokjaxError, ValueError):
    """Spans break the offset contract (1-based, half-open, inside the text)."""


class UnknownTokenError(TokjaxError, LookupError):
    """A token or an id that the vocabulary does not hold."""


class DisallowedSpecialTokenError(TokjaxError, ValueError):
    """The text holds a special token that the caller did not allow."""


class MissingSpecialTokenError(TokjaxError, ValueError):
    """The operation needs a special token that the tokenizer does not declare."""


class UnsupportedTokenizerError(TokjaxError, TypeError):
    """The generic function has no implementation for this tokenizer's type."""


class TokenizerFormatError(TokjaxError, ValueError):
    """A tokenizer file is damaged, altered, of an unknown version or of another format."""


class SourceError(TokjaxError, ValueError):
    """A file of a corpus is damaged, or does not hold what its name says."""


class MissingExtraError(TokjaxError, ImportError):
    """What was asked for needs an optional package that is not installed."""


class TooManyTracesError(TokjaxError, RuntimeError):
    """A step was traced more often than it may be: it compiles again and again."""


class TrainingError(TokjaxError, RuntimeError):
    """A vocabulary could not be trained."""


class DatasetError(TokjaxError):
    """Root of the errors about dataset directories."""


class DatasetIncompleteError(DatasetError, FileNotFoundError):
    """The directory holds no finished dataset, for instance because its writer was killed."""


class DatasetExistsError(DatasetError, FileExistsError):
    """The target of a write exists already, or another process is writing it."""


class DatasetCorruptError(DatasetError, ValueError):
    """A file of the dataset is missing, truncated or altered."""


class DatasetMismatchError(DatasetError, ValueError):
    """The dataset was made with another tokenizer, type or version than the one asked for."""


class DatasetIndexError(DatasetError, IndexError):
    """The dataset has no document of that number."""


class BundleError(TokjaxError, ValueError):
    """A training bundle is damaged, altered or of an unknown version."""


class BundleExistsError(BundleError, FileExistsError):
    """The place of a new training bundle is taken, or another process is writing it."""
