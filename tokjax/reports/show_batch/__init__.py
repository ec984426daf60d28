"""A batch shown as text, in color, or as HTML."""
