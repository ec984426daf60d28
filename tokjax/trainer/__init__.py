"""Trainers: from text to a vocabulary, and to packed arrays made with it."""

from tokjax.trainer.bpe import TrainedBPE, TrainingStats, train_bpe
from tokjax.trainer.pack import TrainedAndPacked, train_and_pack

__all__ = ["TrainedAndPacked", "TrainedBPE", "TrainingStats", "train_and_pack", "train_bpe"]
