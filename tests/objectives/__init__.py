"""Tests of `tokjax.objectives`."""
