from .bpe_base import (
    with_dropout as with_dropout,
)
from .byte_bpe import (
    ByteLevelBPE as ByteLevelBPE,
)
from .characters import (
    ByteTokenizer as ByteTokenizer,
    CharTokenizer as CharTokenizer,
    char_level as char_level,
)
from .custom_splitter import (
    CallableTokenizer as CallableTokenizer,
    from_callable as from_callable,
)
from .metaspace_bpe import (
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
from .word_bpe import (
    WordBPE as WordBPE,
)
from .wordpiece import (
    WordLevelTokenizer as WordLevelTokenizer,
    WordPieceTokenizer as WordPieceTokenizer,
    word_level as word_level,
)
