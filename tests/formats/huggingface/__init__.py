"""Tests of `tokjax.formats.huggingface`."""
