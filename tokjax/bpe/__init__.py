"""Array engine for byte-pair encoding: pre-token cache, hash tables, merge bounds, batched merging."""
