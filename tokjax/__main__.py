"""Entry point of `python -m tokjax`, which runs the `tokjax` command."""

from tokjax.cli import main

if __name__ == "__main__":
    main()
