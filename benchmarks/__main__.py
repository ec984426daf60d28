"""`python -m benchmarks`: run suites, fetch texts, render records."""

from benchmarks.cli import app

if __name__ == "__main__":
    app()
