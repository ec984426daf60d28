from .byte_bpe import (
    ByteLevelBPE as ByteLevelBPE,
    with_dropout as with_dropout,
)
from .characters import (
    ByteTokenizer as ByteTokenizer,
    CharTokenizer as CharTokenizer,
    char_level as char_level,
)
from .metaspace import (
    MetaspaceBPE as MetaspaceBPE,
)
from .sentencepiece import (
    SentencePieceTokenizer as SentencePieceTokenizer,
)
from .sentencepiece_sampling import (
    nbest_encode as nbest_encode,
    sample_encode as sample_encode,
)
from .unigram import (
    Unigram as Unigram,
)
from .wordpiece import (
    CallableTokenizer as CallableTokenizer,
    WordLevelTokenizer as WordLevelTokenizer,
    WordPieceTokenizer as WordPieceTokenizer,
    from_callable as from_callable,
    word_level as word_level,
)
from .words import (
    WordBPE as WordBPE,
)
