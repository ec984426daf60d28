"""Tests of `tokjax.trainer.bpe`."""
