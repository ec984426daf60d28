"""Tests of `tokjax.encoding`."""
