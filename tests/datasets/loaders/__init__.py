"""Tests of `tokjax.datasets.loaders`."""
