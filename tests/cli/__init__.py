"""Tests of `tokjax.cli`."""
