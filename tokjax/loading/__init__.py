"""From a dataset on disk to batches, in an order that is a pure function of a seed and a step."""
