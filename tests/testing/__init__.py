"""Tests of `tokjax.testing`."""
