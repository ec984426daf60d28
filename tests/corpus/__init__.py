"""Tests of `tokjax.corpus`."""
