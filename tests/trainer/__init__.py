"""Tests of `tokjax.trainer`."""
