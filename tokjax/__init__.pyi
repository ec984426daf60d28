from . import testing as testing
from . import trainer as trainer
from ._util.limits import (
    limits as limits,
)
from .batching.alignment.array_alignment import (
    align_span_arrays as align_span_arrays,
)
from .batching.alignment.character_spans import (
    spans_from_characters as spans_from_characters,
)
from .batching.alignment.character_spans import (
    spans_to_characters as spans_to_characters,
)
from .batching.alignment.labels_to_spans import (
    spans_from_labels as spans_from_labels,
)
from .batching.alignment.offset_trimming import (
    trim_offsets as trim_offsets,
)
from .batching.alignment.span_layers import (
    split_layers as split_layers,
)
from .batching.alignment.spans import (
    SpanColumns as SpanColumns,
)
from .batching.alignment.spans import (
    pad_spans as pad_spans,
)
from .batching.alignment.spans import (
    span_columns as span_columns,
)
from .batching.alignment.spans_to_labels import (
    SpanLabels as SpanLabels,
)
from .batching.alignment.spans_to_labels import (
    align_spans as align_spans,
)
from .batching.alignment.tagset import (
    TagSet as TagSet,
)
from .batching.alignment.window_merging import (
    MergedWindows as MergedWindows,
)
from .batching.alignment.window_merging import (
    merge_windows as merge_windows,
)
from .batching.alignment.word_labels import (
    labels_from_words as labels_from_words,
)
from .batching.alignment.word_labels import (
    word_ids_from_spans as word_ids_from_spans,
)
from .batching.alignment.word_labels import (
    words_from_labels as words_from_labels,
)
from .batching.attention_masks import (
    additive_mask as additive_mask,
)
from .batching.attention_masks import (
    causal_mask as causal_mask,
)
from .batching.attention_masks import (
    create_attention_mask as create_attention_mask,
)
from .batching.attention_masks import (
    create_causal_mask as create_causal_mask,
)
from .batching.attention_masks import (
    find_document_boundaries as find_document_boundaries,
)
from .batching.attention_masks import (
    make_attention_mask as make_attention_mask,
)
from .batching.attention_masks import (
    padding_mask as padding_mask,
)
from .batching.attention_masks import (
    prefix_mask as prefix_mask,
)
from .batching.attention_masks import (
    segment_mask as segment_mask,
)
from .batching.attention_masks import (
    sliding_window_mask as sliding_window_mask,
)
from .batching.attention_masks import (
    unmask_empty_rows as unmask_empty_rows,
)
from .batching.collate import (
    PaddedBatch as PaddedBatch,
)
from .batching.collate import (
    batch_pad_sequences as batch_pad_sequences,
)
from .batching.collate import (
    collate_padded_batch as collate_padded_batch,
)
from .batching.collate import (
    pad_ragged as pad_ragged,
)
from .batching.collate import (
    pad_sequence as pad_sequence,
)
from .batching.labels import (
    CausalLMBatch as CausalLMBatch,
)
from .batching.labels import (
    causal_lm_labels as causal_lm_labels,
)
from .batching.labels import (
    to_one_based as to_one_based,
)
from .batching.labels import (
    to_zero_based as to_zero_based,
)
from .batching.length_buckets import (
    LengthBuckets as LengthBuckets,
)
from .batching.objectives.completion_masks import (
    assistant_loss_mask as assistant_loss_mask,
)
from .batching.objectives.completion_masks import (
    completion_loss_mask as completion_loss_mask,
)
from .batching.objectives.denoising_batches import (
    DenoisingBatch as DenoisingBatch,
)
from .batching.objectives.denoising_mixture import (
    UL2_DENOISERS as UL2_DENOISERS,
)
from .batching.objectives.denoising_mixture import (
    Denoiser as Denoiser,
)
from .batching.objectives.denoising_mixture import (
    denoising_mixture as denoising_mixture,
)
from .batching.objectives.fill_in_the_middle import (
    fill_in_the_middle as fill_in_the_middle,
)
from .batching.objectives.masked_lm import (
    MaskedLMBatch as MaskedLMBatch,
)
from .batching.objectives.masked_lm import (
    masked_lm as masked_lm,
)
from .batching.objectives.prefix_lm import (
    PrefixLMBatch as PrefixLMBatch,
)
from .batching.objectives.prefix_lm import (
    prefix_lm as prefix_lm,
)
from .batching.objectives.random_draws import (
    draw_uniform as draw_uniform,
)
from .batching.objectives.span_corruption import (
    SpanCorruptionLengths as SpanCorruptionLengths,
)
from .batching.objectives.span_corruption import (
    compute_input_and_target_lengths as compute_input_and_target_lengths,
)
from .batching.objectives.span_corruption import (
    span_corruption as span_corruption,
)
from .batching.objectives.span_corruption import (
    span_corruption_lengths as span_corruption_lengths,
)
from .batching.packing.apply import (
    apply_packing as apply_packing,
)
from .batching.packing.apply import (
    pack_blocks as pack_blocks,
)
from .batching.packing.blocks import (
    PackedBlocks as PackedBlocks,
)
from .batching.packing.plans import (
    PackingPlan as PackingPlan,
)
from .batching.packing.plans import (
    plan_packing as plan_packing,
)
from .batching.packing.segments import (
    cu_seqlens as cu_seqlens,
)
from .batching.packing.segments import (
    cudnn_segments as cudnn_segments,
)
from .batching.packing.segments import (
    segment_lengths as segment_lengths,
)
from .batching.trace_limits import (
    limit_traces as limit_traces,
)
from .core.errors import (
    BundleError as BundleError,
)
from .core.errors import (
    BundleExistsError as BundleExistsError,
)
from .core.errors import (
    DatasetCorruptError as DatasetCorruptError,
)
from .core.errors import (
    DatasetError as DatasetError,
)
from .core.errors import (
    DatasetExistsError as DatasetExistsError,
)
from .core.errors import (
    DatasetIncompleteError as DatasetIncompleteError,
)
from .core.errors import (
    DatasetIndexError as DatasetIndexError,
)
from .core.errors import (
    DatasetMismatchError as DatasetMismatchError,
)
from .core.errors import (
    DisallowedSpecialTokenError as DisallowedSpecialTokenError,
)
from .core.errors import (
    InvalidArgumentError as InvalidArgumentError,
)
from .core.errors import (
    MissingExtraError as MissingExtraError,
)
from .core.errors import (
    MissingSpecialTokenError as MissingSpecialTokenError,
)
from .core.errors import (
    OffsetsContractError as OffsetsContractError,
)
from .core.errors import (
    SourceError as SourceError,
)
from .core.errors import (
    TokenizerFormatError as TokenizerFormatError,
)
from .core.errors import (
    TokjaxError as TokjaxError,
)
from .core.errors import (
    TooManyTracesError as TooManyTracesError,
)
from .core.errors import (
    TrainingError as TrainingError,
)
from .core.errors import (
    UnknownTokenError as UnknownTokenError,
)
from .core.errors import (
    UnsupportedTokenizerError as UnsupportedTokenizerError,
)
from .core.offsets import (
    assert_offsets_contract as assert_offsets_contract,
)
from .core.offsets import (
    byte_to_char_spans as byte_to_char_spans,
)
from .core.offsets import (
    char_to_byte_spans as char_to_byte_spans,
)
from .core.offsets import (
    has_nonempty_span as has_nonempty_span,
)
from .core.offsets import (
    has_span as has_span,
)
from .core.offsets import (
    is_valid_string_boundary as is_valid_string_boundary,
)
from .core.offsets import (
    offsets_are_nonoverlapping as offsets_are_nonoverlapping,
)
from .core.offsets import (
    offsets_coordinate_system as offsets_coordinate_system,
)
from .core.offsets import (
    offsets_index_base as offsets_index_base,
)
from .core.offsets import (
    offsets_sentinel as offsets_sentinel,
)
from .core.offsets import (
    offsets_span_style as offsets_span_style,
)
from .core.offsets import (
    span_bytes as span_bytes,
)
from .core.offsets import (
    span_nbytes as span_nbytes,
)
from .core.offsets import (
    try_span_substring as try_span_substring,
)
from .core.offsets import (
    validate_offsets_contract as validate_offsets_contract,
)
from .core.protocol import (
    bos_id as bos_id,
)
from .core.protocol import (
    decode as decode,
)
from .core.protocol import (
    decode_batch as decode_batch,
)
from .core.protocol import (
    decode_bytes as decode_bytes,
)
from .core.protocol import (
    encode as encode,
)
from .core.protocol import (
    eos_id as eos_id,
)
from .core.protocol import (
    fingerprint as fingerprint,
)
from .core.protocol import (
    get_vocabulary as get_vocabulary,
)
from .core.protocol import (
    id_to_bytes as id_to_bytes,
)
from .core.protocol import (
    id_to_token as id_to_token,
)
from .core.protocol import (
    map_offsets_to_input as map_offsets_to_input,
)
from .core.protocol import (
    normalize as normalize,
)
from .core.protocol import (
    pad_id as pad_id,
)
from .core.protocol import (
    special_tokens as special_tokens,
)
from .core.protocol import (
    token_to_id as token_to_id,
)
from .core.protocol import (
    tokenization_view as tokenization_view,
)
from .core.protocol import (
    unk_id as unk_id,
)
from .core.protocol import (
    vocab_size as vocab_size,
)
from .core.ragged import (
    Ragged as Ragged,
)
from .core.ragged import (
    make_ragged as make_ragged,
)
from .core.ragged import (
    ragged_from_rows as ragged_from_rows,
)
from .core.records import (
    ResultMetadata as ResultMetadata,
)
from .core.records import (
    TokenizationBatch as TokenizationBatch,
)
from .core.records import (
    TokenizationResult as TokenizationResult,
)
from .core.utf8 import (
    to_utf8 as to_utf8,
)
from .core.vocabulary import (
    Vocabulary as Vocabulary,
)
from .core.vocabulary import (
    make_vocabulary as make_vocabulary,
)
from .corpus.annotated_json import (
    read_spacy as read_spacy,
)
from .corpus.chunk_boundaries import (
    find_chunk_boundaries as find_chunk_boundaries,
)
from .corpus.conll import (
    AnnotatedText as AnnotatedText,
)
from .corpus.conll import (
    read_conll as read_conll,
)
from .corpus.files import (
    TextFiles as TextFiles,
)
from .corpus.files import (
    text_files as text_files,
)
from .corpus.sources import (
    read_documents as read_documents,
)
from .datasets.conversion import (
    convert_dataset as convert_dataset,
)
from .datasets.conversion import (
    export_dataset as export_dataset,
)
from .datasets.dataset_types import (
    BucketedDataset as BucketedDataset,
)
from .datasets.dataset_types import (
    ChunkSource as ChunkSource,
)
from .datasets.dataset_types import (
    PackedDataset as PackedDataset,
)
from .datasets.dataset_types import (
    RawTextDataset as RawTextDataset,
)
from .datasets.dataset_types import (
    TokenDataset as TokenDataset,
)
from .datasets.fields import (
    BucketedTokenField as BucketedTokenField,
)
from .datasets.fields import (
    Field as Field,
)
from .datasets.fields import (
    PackedTokenField as PackedTokenField,
)
from .datasets.fields import (
    RawTextField as RawTextField,
)
from .datasets.fields import (
    SentencePieceTextField as SentencePieceTextField,
)
from .datasets.fields import (
    TokenField as TokenField,
)
from .datasets.fields import (
    TokenizedTextField as TokenizedTextField,
)
from .datasets.fields import (
    register_field as register_field,
)
from .datasets.loaders.bucketed import (
    BucketedLoader as BucketedLoader,
)
from .datasets.loaders.bucketed import (
    TokenBudgetLoader as TokenBudgetLoader,
)
from .datasets.loaders.packed import (
    PackedTokenLoader as PackedTokenLoader,
)
from .datasets.loaders.packed import (
    TokenChunks as TokenChunks,
)
from .datasets.loaders.prefetch import (
    Prefetched as Prefetched,
)
from .datasets.loaders.prefetch import (
    prefetch_to_device as prefetch_to_device,
)
from .datasets.loaders.sequences import (
    SequenceLoader as SequenceLoader,
)
from .datasets.merging import (
    merge_datasets as merge_datasets,
)
from .datasets.merging import (
    rebuild_dataset as rebuild_dataset,
)
from .datasets.opening import (
    open_dataset as open_dataset,
)
from .datasets.sequence_cache import (
    CacheStats as CacheStats,
)
from .datasets.writer import (
    WrittenDataset as WrittenDataset,
)
from .datasets.writer import (
    write_dataset as write_dataset,
)
from .encoding.bulk import (
    count_tokens as count_tokens,
)
from .encoding.bulk import (
    encode_files as encode_files,
)
from .encoding.bulk import (
    encode_to_array as encode_to_array,
)
from .encoding.encode import (
    encode_batch_result as encode_batch_result,
)
from .encoding.encode import (
    encode_result as encode_result,
)
from .encoding.encode import (
    tokenize as tokenize,
)
from .formats.loading import (
    load_tokenizer as load_tokenizer,
)
from .formats.tokjax_json import (
    save_tokenizer as save_tokenizer,
)
from .models.byte_bpe import (
    ByteLevelBPE as ByteLevelBPE,
)
from .models.byte_bpe import (
    byte_level_bpe as byte_level_bpe,
)
from .models.metaspace_bpe import (
    MetaspaceBPE as MetaspaceBPE,
)
from .models.metaspace_bpe import (
    metaspace_bpe as metaspace_bpe,
)
from .models.sentencepiece import (
    SentencePieceTokenizer as SentencePieceTokenizer,
)
from .models.sentencepiece import (
    sentencepiece as sentencepiece,
)
from .models.sentencepiece_sampling import (
    nbest_encode as nbest_encode,
)
from .models.sentencepiece_sampling import (
    sample_encode as sample_encode,
)
from .models.word_level import (
    WordLevelTokenizer as WordLevelTokenizer,
)
from .models.word_level import (
    word_level as word_level,
)
from .models.wordpiece import (
    WordPieceTokenizer as WordPieceTokenizer,
)
from .models.wordpiece import (
    wordpiece as wordpiece,
)
from .pipelines import (
    Pipeline as Pipeline,
)
from .pipelines import (
    batched as batched,
)
from .pipelines import (
    compose as compose,
)
from .pipelines import (
    grain_map as grain_map,
)
from .pipelines import (
    pipeline as pipeline,
)
from .pretokenize.patterns import (
    PATTERNS as PATTERNS,
)
from .quick import (
    QuickBatch as QuickBatch,
)
from .quick import (
    QuickBundle as QuickBundle,
)
from .quick import (
    QuickCausalLMBatch as QuickCausalLMBatch,
)
from .quick import (
    QuickTokens as QuickTokens,
)
from .quick import (
    quick_causal_lm_batch as quick_causal_lm_batch,
)
from .quick import (
    quick_encode_batch as quick_encode_batch,
)
from .quick import (
    quick_tokenize as quick_tokenize,
)
from .quick import (
    quick_train_bundle as quick_train_bundle,
)
from .reports.curves import (
    SizeCurve as SizeCurve,
)
from .reports.curves import (
    size_curves as size_curves,
)
from .reports.dataset_report import (
    DatasetReport as DatasetReport,
)
from .reports.dataset_report import (
    dataset_report as dataset_report,
)
from .reports.dataset_report import (
    dataset_report_to_json as dataset_report_to_json,
)
from .reports.dataset_report import (
    save_dataset_report_html as save_dataset_report_html,
)
from .reports.measuring import (
    vocabulary_report as vocabulary_report,
)
from .reports.page import (
    report_to_json as report_to_json,
)
from .reports.page import (
    save_report_html as save_report_html,
)
from .reports.records import (
    TextSize as TextSize,
)
from .reports.records import (
    TokenUse as TokenUse,
)
from .reports.records import (
    VocabularyReport as VocabularyReport,
)
from .reports.show_batch.show import (
    show_batch as show_batch,
)
from .reports.tables import (
    report_tables as report_tables,
)

__version__: str
__all__: list[str]
from .core.protocol import (
    encode_texts as encode_texts,
)
from .core.records import (
    Windows as Windows,
)
from .core.template import (
    Template as Template,
)
from .core.template import (
    make_template as make_template,
)
from .encoding.chat.encode import (
    EncodedChat as EncodedChat,
)
from .encoding.chat.encode import (
    encode_chat as encode_chat,
)
from .encoding.token_lookup import (
    byte_to_token as byte_to_token,
)
from .encoding.token_lookup import (
    char_to_token as char_to_token,
)
from .encoding.token_lookup import (
    token_to_span as token_to_span,
)
from .encoding.token_lookup import (
    token_to_word as token_to_word,
)
from .encoding.token_lookup import (
    word_to_tokens as word_to_tokens,
)
from .encoding.windows import (
    encode_windows as encode_windows,
)
from .formats.adapters import (
    from_sentencepiece as from_sentencepiece,
)
from .formats.adapters import (
    from_tiktoken as from_tiktoken,
)
from .formats.chat_templates import (
    load_chat_template as load_chat_template,
)
from .formats.clip_merges import (
    read_clip as read_clip,
)
from .formats.detection import (
    DetectedTokenizer as DetectedTokenizer,
)
from .formats.detection import (
    detect_tokenizer_files as detect_tokenizer_files,
)
from .formats.detection import (
    detect_tokenizer_format as detect_tokenizer_format,
)
from .formats.exporting import (
    export_tokenizer as export_tokenizer,
)
from .formats.gpt2_files import (
    read_gpt2 as read_gpt2,
)
from .formats.huggingface.adapter import (
    HuggingFaceTokenizer as HuggingFaceTokenizer,
)
from .formats.huggingface.tokenizer_json import (
    from_huggingface as from_huggingface,
)
from .formats.huggingface.tokenizer_json import (
    read_huggingface as read_huggingface,
)
from .formats.loading import (
    read_sentencepiece as read_sentencepiece,
)
from .formats.tiktoken_ranks import (
    read_tiktoken as read_tiktoken,
)
from .formats.tokjax_json import (
    read_tokjax as read_tokjax,
)
from .formats.wordpiece_vocab import (
    read_wordpiece as read_wordpiece,
)
from .models.base import (
    with_template as with_template,
)
from .models.byte_level import (
    ByteTokenizer as ByteTokenizer,
)
from .models.byte_level import (
    byte_level as byte_level,
)
from .models.char_level import (
    CharTokenizer as CharTokenizer,
)
from .models.char_level import (
    char_level as char_level,
)
from .models.custom_splitter import (
    CallableTokenizer as CallableTokenizer,
)
from .models.custom_splitter import (
    from_callable as from_callable,
)
