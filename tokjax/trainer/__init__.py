"""Trainers: from text to a vocabulary, and to packed arrays made with it."""

from tokjax.trainer.bpe import TrainedBPE, TrainingStats, train_bpe
from tokjax.trainer.counting import count_pretokens
from tokjax.trainer.pack import TrainedAndPacked, train_and_pack
from tokjax.trainer.pretokens import PretokenCounts, load_pretoken_counts, save_pretoken_counts

__all__ = [
    "PretokenCounts",
    "TrainedAndPacked",
    "TrainedBPE",
    "TrainingStats",
    "count_pretokens",
    "load_pretoken_counts",
    "save_pretoken_counts",
    "train_and_pack",
    "train_bpe",
]
