"""Encoding of conversations with chat templates, with a mask of the assistant's tokens."""
