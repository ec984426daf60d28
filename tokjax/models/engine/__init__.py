"""Ordinary text to ids, a chunk at a time: words found, looked up, and merged where they are new."""
