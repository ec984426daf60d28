"""Tests of `tokjax.models`."""
