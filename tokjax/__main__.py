"""`python -m tokjax` is the `tokjax` command."""

from tokjax.cli import main

if __name__ == "__main__":
    main()
