"""Tests of `tokjax.formats`."""
