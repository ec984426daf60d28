"""Segmentation of many words at once with the scores of a unigram model."""
