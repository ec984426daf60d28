"""Tests of `tokjax.encoding.chat`."""
