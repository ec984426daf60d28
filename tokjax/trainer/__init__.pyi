from .bpe.train_bpe import (
    continue_bpe as continue_bpe,
    train_bpe as train_bpe,
)
from .bundles import (
    BundleSource as BundleSource,
    TrainingBundle as TrainingBundle,
    load_training_bundle as load_training_bundle,
    save_training_bundle as save_training_bundle,
)
from .counting import (
    count_pretokens as count_pretokens,
)
from .pretoken_counts import (
    PretokenCounts as PretokenCounts,
    load_pretoken_counts as load_pretoken_counts,
    mix_counts as mix_counts,
    save_pretoken_counts as save_pretoken_counts,
)
from .results import (
    Trained as Trained,
    TrainingStats as TrainingStats,
)
from .sentencepiece import (
    train_sentencepiece as train_sentencepiece,
)
from .words import (
    train_word_level as train_word_level,
    train_wordpiece as train_wordpiece,
)
