"""Tests of `tokjax.reports`."""
