"""Tests of `tokjax.datasets.conversion`."""
