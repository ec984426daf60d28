"""Training of byte-level BPE vocabularies."""
