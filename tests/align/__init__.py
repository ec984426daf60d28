"""Tests of `tokjax.align`."""
