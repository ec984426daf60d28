"""Trainers: build a vocabulary from text, and packed arrays that are encoded with it."""

from tokjax.trainer.bpe.train_bpe import TrainedBPE, train_bpe
from tokjax.trainer.bundles import BundleSource, TrainingBundle, load_training_bundle, save_training_bundle
from tokjax.trainer.counting import count_pretokens
from tokjax.trainer.pack import TrainedAndPacked, train_and_pack
from tokjax.trainer.pretoken_counts import PretokenCounts, load_pretoken_counts, save_pretoken_counts
from tokjax.trainer.results import Trained, TrainingStats
from tokjax.trainer.sentencepiece.train_sentencepiece import TrainedSentencePiece, train_sentencepiece
from tokjax.trainer.word_level import TrainedWordLevel, train_word_level
from tokjax.trainer.wordpiece import TrainedWordPiece, train_wordpiece

__all__ = [
    "BundleSource",
    "PretokenCounts",
    "Trained",
    "TrainedAndPacked",
    "TrainedBPE",
    "TrainedSentencePiece",
    "TrainedWordLevel",
    "TrainedWordPiece",
    "TrainingBundle",
    "TrainingStats",
    "count_pretokens",
    "load_pretoken_counts",
    "load_training_bundle",
    "save_pretoken_counts",
    "save_training_bundle",
    "train_and_pack",
    "train_bpe",
    "train_sentencepiece",
    "train_word_level",
    "train_wordpiece",
]
