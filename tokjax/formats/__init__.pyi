from .exporting import (
    export_tokenizer as export_tokenizer,
)
from .file_formats import (
    DetectedTokenizer as DetectedTokenizer,
    detect_tokenizer_files as detect_tokenizer_files,
    detect_tokenizer_format as detect_tokenizer_format,
)
from .huggingface.library import (
    HuggingFaceTokenizer as HuggingFaceTokenizer,
)
from .huggingface.tokenizer_json import (
    from_huggingface as from_huggingface,
)
from .loading import (
    LoadOptions as LoadOptions,
    load_chat_template as load_chat_template,
    load_tokenizer as load_tokenizer,
    prefetch_tokenizer as prefetch_tokenizer,
)
from .tiktoken_files import (
    ENCODINGS as ENCODINGS,
    Encoding as Encoding,
    from_tiktoken as from_tiktoken,
)
from .tokjax_json import (
    save_tokenizer as save_tokenizer,
)
from .vocabulary_files import (
    from_sentencepiece as from_sentencepiece,
)
