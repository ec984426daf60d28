"""The `tokjax` command. Its subcommands are in `commands`, `datasets` and `train`."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line in `sys.argv`; exits with code 130 if interrupted."""
    try:
        from tokjax.cli.commands import run  # noqa: PLC0415 (typer and rich are slow to import)

        run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
