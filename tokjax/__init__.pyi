from . import (
    align as align,
    corpus as corpus,
    datasets as datasets,
    device as device,
    errors as errors,
    formats as formats,
    masks as masks,
    models as models,
    objectives as objectives,
    offsets as offsets,
    packing as packing,
    pipelines as pipelines,
    quick as quick,
    reports as reports,
    testing as testing,
    trainer as trainer,
)
from ._util.limits import (
    limits as limits,
)
from .batching.collate import (
    PaddedBatch as PaddedBatch,
    batch_to_dict as batch_to_dict,
    collate_padded_batch as collate_padded_batch,
    pad_ragged as pad_ragged,
)
from .batching.labels import (
    CausalLMBatch as CausalLMBatch,
    causal_lm_labels as causal_lm_labels,
    compute_positions as compute_positions,
    label_weights as label_weights,
    multi_token_labels as multi_token_labels,
)
from .batching.length_buckets import (
    LengthBuckets as LengthBuckets,
)
from .core.decode_stream import (
    DecodeState as DecodeState,
    decode_step as decode_step,
    decode_stream as decode_stream,
    find_decode_context as find_decode_context,
)
from .core.protocol import (
    PreTokens as PreTokens,
    bos_id as bos_id,
    cls_id as cls_id,
    decode as decode,
    decode_batch as decode_batch,
    decode_bytes as decode_bytes,
    encode as encode,
    encode_texts as encode_texts,
    eos_id as eos_id,
    fingerprint as fingerprint,
    get_vocabulary as get_vocabulary,
    id_to_bytes as id_to_bytes,
    id_to_token as id_to_token,
    map_offsets_to_input as map_offsets_to_input,
    mask_id as mask_id,
    normalize as normalize,
    pad_id as pad_id,
    pre_tokenize as pre_tokenize,
    sep_id as sep_id,
    special_tokens as special_tokens,
    token_byte_lengths as token_byte_lengths,
    token_to_id as token_to_id,
    tokenization_view as tokenization_view,
    unk_id as unk_id,
    vocab_size as vocab_size,
)
from .core.ragged import (
    Ragged as Ragged,
    make_ragged as make_ragged,
    ragged_from_rows as ragged_from_rows,
)
from .core.records import (
    ResultMetadata as ResultMetadata,
    TokenizationBatch as TokenizationBatch,
    TokenizationResult as TokenizationResult,
    Windows as Windows,
)
from .core.template import (
    Template as Template,
    make_template as make_template,
)
from .core.vocabulary import (
    Vocabulary as Vocabulary,
    make_vocabulary as make_vocabulary,
)
from .datasets.dataset_types import (
    open_dataset as open_dataset,
)
from .datasets.fields.text_fields import (
    PackedTokenField as PackedTokenField,
    RawTextField as RawTextField,
    TokenizedTextField as TokenizedTextField,
)
from .datasets.loaders.packed import (
    PackedTokenLoader as PackedTokenLoader,
)
from .datasets.loaders.planned import (
    PlannedLoader as PlannedLoader,
)
from .datasets.writer import (
    write_dataset as write_dataset,
)
from .encoding.bulk import (
    count_tokens as count_tokens,
    encode_files as encode_files,
    encode_to_array as encode_to_array,
)
from .encoding.chat.encode_chat import (
    EncodedChat as EncodedChat,
    EncodedChats as EncodedChats,
    chat_examples as chat_examples,
    encode_chat as encode_chat,
    encode_chats as encode_chats,
)
from .encoding.encode import (
    encode_batch_result as encode_batch_result,
    encode_result as encode_result,
    encode_windows as encode_windows,
    tokenize as tokenize,
)
from .errors import (
    TokjaxError as TokjaxError,
)
from .formats.loading import (
    load_tokenizer as load_tokenizer,
)
from .formats.tokjax_json import (
    save_tokenizer as save_tokenizer,
)
from .models.byte_bpe import (
    byte_level_bpe as byte_level_bpe,
)
from .models.characters import (
    byte_level as byte_level,
)
from .models.metaspace import (
    metaspace_bpe as metaspace_bpe,
)
from .models.sentencepiece import (
    sentencepiece as sentencepiece,
)
from .models.vocabulary_changes import (
    extend_vocabulary as extend_vocabulary,
    truncate_vocabulary as truncate_vocabulary,
    with_roles as with_roles,
    with_template as with_template,
)
from .models.wordpiece import (
    wordpiece as wordpiece,
)
from .models.words import (
    word_bpe as word_bpe,
)
from .offsets import (
    try_span_substring as try_span_substring,
)
from .packing.apply_plan import (
    pack_blocks as pack_blocks,
)
from .packing.packed_blocks import (
    PackedBlocks as PackedBlocks,
)
from .pretokenize.patterns import (
    PATTERNS as PATTERNS,
)
from .reports.show_batch import (
    show_batch as show_batch,
)

__version__: str
