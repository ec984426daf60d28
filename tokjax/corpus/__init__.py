"""Reading of text: files, formats, documents, chunks, annotated text."""
