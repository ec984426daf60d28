"""What a vocabulary is like: its numbers on texts, as a record, as tables, as JSON and as a page."""
