"""Tests of `tokjax.bpe`."""
