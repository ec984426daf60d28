"""Entry point of `python -m benchmarks`: runs suites, downloads texts, renders records."""

from benchmarks.cli import app

if __name__ == "__main__":
    app()
