"""Tests of `tokjax.reports.show_batch`."""
