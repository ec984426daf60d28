"""Tests of `tokjax.datasets`."""
