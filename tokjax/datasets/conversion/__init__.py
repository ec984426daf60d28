"""Conversion of token files between tokjax datasets and other programs."""
