"""The command `tokjax estimate-mixture`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console

import tokjax
from tokjax._util.checks import check_int
from tokjax.cli.options import FILES_HELP, FormatOption, TextColumnOption, TokenizerOption
from tokjax.cli.table_format import make_mixture_table
from tokjax.cli.training_sources import Reading, count_each
from tokjax.models.byte_bpe import get_normalize
from tokjax.reports.mixture import explain_normalizer


def estimate_mixture(
    files: Annotated[
        list[str],
        typer.Argument(
            help=f"{FILES_HELP} Each is one of the candidate sources. Or files that tokjax train "
            "--save-counts wrote.",
            show_default=False,
        ),
    ],
    tokenizer: TokenizerOption,
    max_merges: Annotated[
        int, typer.Option(help="Number of merges to use. More are more precise, and take longer.")
    ] = 1000,
    text_column: TextColumnOption = "text",
    file_format: FormatOption = "auto",
    max_bytes: Annotated[
        int | None, typer.Option(help="Use a random sample of about this many bytes of each source.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show progress.")] = False,
) -> None:
    """Estimate the shares of sources in the training data of a byte-level BPE tokenizer."""
    loaded: Any = tokjax.load_tokenizer(tokenizer)
    if not isinstance(loaded, tokjax.models.ByteLevelBPE):
        raise typer.BadParameter(
            f"{tokenizer} is a {type(loaded).__name__}; the estimate needs the merges of a byte-level BPE"
            f"{explain_normalizer(loaded)}",
            param_hint="--tokenizer",
        )
    check_int("max_merges", max_merges, minimum=1)  # before the files are counted, which takes time
    reading = Reading(
        text_column,
        file_format,
        special_tokens=sorted(loaded.vocabulary.split_token_names),
        pattern=loaded.pattern,
        sample={} if max_bytes is None else {"max_bytes": max_bytes},
        shared={"progress": not quiet},
        normalize=get_normalize(loaded),
    )
    estimate = tokjax.reports.estimate_mixture(
        loaded, count_each(files, reading), max_merges=max_merges, progress=not quiet
    )
    Console().print(make_mixture_table(tokenizer, estimate))
