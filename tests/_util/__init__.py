"""Tests of `tokjax._util`."""
