"""Commands: `tokjax train`, `pack`, `inspect`, `stats` and `report`."""

from __future__ import annotations


def main() -> None:
    """Run the command that the shell asked for."""
    from tokjax.cli.commands import run  # noqa: PLC0415 (typer and rich are slow to import)

    run()
