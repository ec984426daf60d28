"""Tests of `tokjax.batching`."""
