"""Trainers: from text to a vocabulary, and to packed arrays made with it."""

from tokjax.trainer.bpe import TrainedBPE, train_bpe
from tokjax.trainer.counting import count_pretokens
from tokjax.trainer.pack import TrainedAndPacked, train_and_pack
from tokjax.trainer.pretokens import PretokenCounts, load_pretoken_counts, save_pretoken_counts
from tokjax.trainer.records import Trained, TrainingStats
from tokjax.trainer.sentence_piece import TrainedSentencePiece, train_sentencepiece

__all__ = [
    "PretokenCounts",
    "Trained",
    "TrainedAndPacked",
    "TrainedBPE",
    "TrainedSentencePiece",
    "TrainingStats",
    "count_pretokens",
    "load_pretoken_counts",
    "save_pretoken_counts",
    "train_and_pack",
    "train_bpe",
    "train_sentencepiece",
]
