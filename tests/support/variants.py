"""Parameters of tests that the default run has in part, and the thorough run as a whole."""

import pytest


def mark_slow_except(names, default):
    """Returns the names as parameters. Those that are not in `default` are marked as slow."""
    assert all(name in names for name in default)
    return [name if name in default else pytest.param(name, marks=pytest.mark.slow) for name in names]
