"""Tests of `tokjax.trainer.sentencepiece`."""
