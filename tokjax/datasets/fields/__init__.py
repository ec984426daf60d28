"""Fields: which arrays a dataset stores for each document."""
