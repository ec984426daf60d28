"""Tests of `tokjax.packing`."""
