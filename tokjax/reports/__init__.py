"""Reports on vocabularies and datasets, and batches shown as text."""
