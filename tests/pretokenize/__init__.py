"""Tests of `tokjax.pretokenize`."""
