"""Tests of `tokjax.core`."""
