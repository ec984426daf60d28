from . import testing as testing
from . import trainer as trainer
from ._limits import (
    limits as limits,
)
from .batching.alignment.aligning import (
    SpanLabels as SpanLabels,
)
from .batching.alignment.aligning import (
    align_spans as align_spans,
)
from .batching.alignment.arrays import (
    align_span_arrays as align_span_arrays,
)
from .batching.alignment.characters import (
    spans_from_characters as spans_from_characters,
)
from .batching.alignment.characters import (
    spans_to_characters as spans_to_characters,
)
from .batching.alignment.decoding import (
    spans_from_labels as spans_from_labels,
)
from .batching.alignment.layers import (
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
from .batching.alignment.tagset import (
    TagSet as TagSet,
)
from .batching.alignment.trimming import (
    trim_offsets as trim_offsets,
)
from .batching.alignment.windows import (
    MergedWindows as MergedWindows,
)
from .batching.alignment.windows import (
    merge_windows as merge_windows,
)
from .batching.alignment.words import (
    labels_from_words as labels_from_words,
)
from .batching.alignment.words import (
    word_ids_from_spans as word_ids_from_spans,
)
from .batching.alignment.words import (
    words_from_labels as words_from_labels,
)
from .batching.attention import (
    additive_mask as additive_mask,
)
from .batching.attention import (
    causal_mask as causal_mask,
)
from .batching.attention import (
    make_attention_mask as make_attention_mask,
)
from .batching.attention import (
    padding_mask as padding_mask,
)
from .batching.attention import (
    prefix_mask as prefix_mask,
)
from .batching.attention import (
    see_themselves as see_themselves,
)
from .batching.attention import (
    segment_mask as segment_mask,
)
from .batching.attention import (
    sliding_window_mask as sliding_window_mask,
)
from .batching.blocks import (
    PackedBlocks as PackedBlocks,
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
from .batching.ladders import (
    LengthBuckets as LengthBuckets,
)
from .batching.masks import (
    create_attention_mask as create_attention_mask,
)
from .batching.masks import (
    create_causal_mask as create_causal_mask,
)
from .batching.masks import (
    find_document_boundaries as find_document_boundaries,
)
from .batching.objectives.completion import (
    assistant_loss_mask as assistant_loss_mask,
)
from .batching.objectives.completion import (
    completion_loss_mask as completion_loss_mask,
)
from .batching.objectives.corruption import (
    DenoisingBatch as DenoisingBatch,
)
from .batching.objectives.draws import (
    draw_uniform as draw_uniform,
)
from .batching.objectives.masked import (
    MaskedLMBatch as MaskedLMBatch,
)
from .batching.objectives.masked import (
    masked_lm as masked_lm,
)
from .batching.objectives.middle import (
    fill_in_the_middle as fill_in_the_middle,
)
from .batching.objectives.mixture import (
    UL2_DENOISERS as UL2_DENOISERS,
)
from .batching.objectives.mixture import (
    Denoiser as Denoiser,
)
from .batching.objectives.mixture import (
    denoising_mixture as denoising_mixture,
)
from .batching.objectives.prefix import (
    PrefixLMBatch as PrefixLMBatch,
)
from .batching.objectives.prefix import (
    prefix_lm as prefix_lm,
)
from .batching.objectives.spans import (
    SpanCorruptionLengths as SpanCorruptionLengths,
)
from .batching.objectives.spans import (
    compute_input_and_target_lengths as compute_input_and_target_lengths,
)
from .batching.objectives.spans import (
    span_corruption as span_corruption,
)
from .batching.objectives.spans import (
    span_corruption_lengths as span_corruption_lengths,
)
from .batching.packing import (
    apply_packing as apply_packing,
)
from .batching.packing import (
    pack_blocks as pack_blocks,
)
from .batching.plans import (
    PackingPlan as PackingPlan,
)
from .batching.plans import (
    plan_packing as plan_packing,
)
from .batching.segments import (
    cu_seqlens as cu_seqlens,
)
from .batching.segments import (
    cudnn_segments as cudnn_segments,
)
from .batching.segments import (
    segment_lengths as segment_lengths,
)
from .batching.tracing import (
    limit_traces as limit_traces,
)
from .bulk import (
    count_tokens as count_tokens,
)
from .bulk import (
    encode_files as encode_files,
)
from .bulk import (
    encode_to_array as encode_to_array,
)
from .encoding import (
    encode_batch_result as encode_batch_result,
)
from .encoding import (
    encode_result as encode_result,
)
from .encoding import (
    tokenize as tokenize,
)
from .errors import (
    BundleError as BundleError,
)
from .errors import (
    BundleExistsError as BundleExistsError,
)
from .errors import (
    DatasetCorruptError as DatasetCorruptError,
)
from .errors import (
    DatasetError as DatasetError,
)
from .errors import (
    DatasetExistsError as DatasetExistsError,
)
from .errors import (
    DatasetIncompleteError as DatasetIncompleteError,
)
from .errors import (
    DatasetIndexError as DatasetIndexError,
)
from .errors import (
    DatasetMismatchError as DatasetMismatchError,
)
from .errors import (
    DisallowedSpecialTokenError as DisallowedSpecialTokenError,
)
from .errors import (
    InvalidArgumentError as InvalidArgumentError,
)
from .errors import (
    MissingExtraError as MissingExtraError,
)
from .errors import (
    MissingSpecialTokenError as MissingSpecialTokenError,
)
from .errors import (
    OffsetsContractError as OffsetsContractError,
)
from .errors import (
    SourceError as SourceError,
)
from .errors import (
    TokenizerFormatError as TokenizerFormatError,
)
from .errors import (
    TokjaxError as TokjaxError,
)
from .errors import (
    TooManyTracesError as TooManyTracesError,
)
from .errors import (
    TrainingError as TrainingError,
)
from .errors import (
    UnknownTokenError as UnknownTokenError,
)
from .errors import (
    UnsupportedTokenizerError as UnsupportedTokenizerError,
)
from .formats.loading import (
    load_tokenizer as load_tokenizer,
)
from .formats.tokjax_json import (
    save_tokenizer as save_tokenizer,
)
from .loading.buckets import (
    BucketedLoader as BucketedLoader,
)
from .loading.buckets import (
    TokenBudgetLoader as TokenBudgetLoader,
)
from .loading.packed import (
    PackedTokenLoader as PackedTokenLoader,
)
from .loading.packed import (
    TokenChunks as TokenChunks,
)
from .loading.prefetch import (
    Prefetched as Prefetched,
)
from .loading.prefetch import (
    prefetch_to_device as prefetch_to_device,
)
from .loading.sequences import (
    SequenceLoader as SequenceLoader,
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
from .models.sentence_piece import (
    SentencePieceTokenizer as SentencePieceTokenizer,
)
from .models.sentence_piece import (
    sentencepiece as sentencepiece,
)
from .models.sentence_piece_sampling import (
    nbest_encode as nbest_encode,
)
from .models.sentence_piece_sampling import (
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
from .offsets import (
    assert_offsets_contract as assert_offsets_contract,
)
from .offsets import (
    byte_to_char_spans as byte_to_char_spans,
)
from .offsets import (
    char_to_byte_spans as char_to_byte_spans,
)
from .offsets import (
    has_nonempty_span as has_nonempty_span,
)
from .offsets import (
    has_span as has_span,
)
from .offsets import (
    is_valid_string_boundary as is_valid_string_boundary,
)
from .offsets import (
    offsets_are_nonoverlapping as offsets_are_nonoverlapping,
)
from .offsets import (
    offsets_coordinate_system as offsets_coordinate_system,
)
from .offsets import (
    offsets_index_base as offsets_index_base,
)
from .offsets import (
    offsets_sentinel as offsets_sentinel,
)
from .offsets import (
    offsets_span_style as offsets_span_style,
)
from .offsets import (
    span_bytes as span_bytes,
)
from .offsets import (
    span_nbytes as span_nbytes,
)
from .offsets import (
    try_span_substring as try_span_substring,
)
from .offsets import (
    validate_offsets_contract as validate_offsets_contract,
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
from .protocol import (
    bos_id as bos_id,
)
from .protocol import (
    decode as decode,
)
from .protocol import (
    decode_batch as decode_batch,
)
from .protocol import (
    decode_bytes as decode_bytes,
)
from .protocol import (
    encode as encode,
)
from .protocol import (
    eos_id as eos_id,
)
from .protocol import (
    fingerprint as fingerprint,
)
from .protocol import (
    id_to_bytes as id_to_bytes,
)
from .protocol import (
    id_to_token as id_to_token,
)
from .protocol import (
    map_offsets_to_input as map_offsets_to_input,
)
from .protocol import (
    normalize as normalize,
)
from .protocol import (
    pad_id as pad_id,
)
from .protocol import (
    special_tokens as special_tokens,
)
from .protocol import (
    token_to_id as token_to_id,
)
from .protocol import (
    tokenization_view as tokenization_view,
)
from .protocol import (
    unk_id as unk_id,
)
from .protocol import (
    vocab_size as vocab_size,
)
from .protocol import (
    vocabulary_of as vocabulary_of,
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
from .ragged import (
    Ragged as Ragged,
)
from .ragged import (
    make_ragged as make_ragged,
)
from .ragged import (
    ragged_from_rows as ragged_from_rows,
)
from .records import (
    ResultMetadata as ResultMetadata,
)
from .records import (
    TokenizationBatch as TokenizationBatch,
)
from .records import (
    TokenizationResult as TokenizationResult,
)
from .report.as_json import (
    report_to_json as report_to_json,
)
from .report.curves import (
    SizeCurve as SizeCurve,
)
from .report.curves import (
    size_curves as size_curves,
)
from .report.datasets import (
    DatasetReport as DatasetReport,
)
from .report.datasets import (
    dataset_report as dataset_report,
)
from .report.datasets import (
    dataset_report_to_json as dataset_report_to_json,
)
from .report.datasets import (
    save_dataset_report_html as save_dataset_report_html,
)
from .report.measuring import (
    vocabulary_report as vocabulary_report,
)
from .report.page import (
    save_report_html as save_report_html,
)
from .report.records import (
    TextSize as TextSize,
)
from .report.records import (
    TokenUse as TokenUse,
)
from .report.records import (
    VocabularyReport as VocabularyReport,
)
from .report.tables import (
    report_tables as report_tables,
)
from .show.batch import (
    show_batch as show_batch,
)
from .store.cache import (
    CacheStats as CacheStats,
)
from .store.conversion import (
    convert_dataset as convert_dataset,
)
from .store.conversion import (
    export_dataset as export_dataset,
)
from .store.fields import (
    BucketedTokenField as BucketedTokenField,
)
from .store.fields import (
    Field as Field,
)
from .store.fields import (
    PackedTokenField as PackedTokenField,
)
from .store.fields import (
    RawTextField as RawTextField,
)
from .store.fields import (
    SentencePieceTextField as SentencePieceTextField,
)
from .store.fields import (
    TokenizedTextField as TokenizedTextField,
)
from .store.joining import (
    merge_datasets as merge_datasets,
)
from .store.joining import (
    rebuild_dataset as rebuild_dataset,
)
from .store.kinds import (
    BucketedDataset as BucketedDataset,
)
from .store.kinds import (
    ChunkSource as ChunkSource,
)
from .store.kinds import (
    PackedDataset as PackedDataset,
)
from .store.kinds import (
    RawTextDataset as RawTextDataset,
)
from .store.kinds import (
    TokenDataset as TokenDataset,
)
from .store.opening import (
    open_dataset as open_dataset,
)
from .store.token_fields import (
    TokenField as TokenField,
)
from .store.token_fields import (
    register_field as register_field,
)
from .store.writer import (
    WrittenDataset as WrittenDataset,
)
from .store.writer import (
    write_dataset as write_dataset,
)
from .text.annotated_json import (
    read_spacy as read_spacy,
)
from .text.annotations import (
    AnnotatedText as AnnotatedText,
)
from .text.annotations import (
    read_conll as read_conll,
)
from .text.chunks import (
    find_chunk_boundaries as find_chunk_boundaries,
)
from .text.files import (
    TextFiles as TextFiles,
)
from .text.files import (
    text_files as text_files,
)
from .text.patterns import (
    PATTERNS as PATTERNS,
)
from .text.sources import (
    read_documents as read_documents,
)
from .utf8 import (
    to_utf8 as to_utf8,
)
from .vocabulary import (
    Vocabulary as Vocabulary,
)
from .vocabulary import (
    make_vocabulary as make_vocabulary,
)

__version__: str
__all__: list[str]
from .chat.encoding import (
    EncodedChat as EncodedChat,
)
from .chat.encoding import (
    encode_chat as encode_chat,
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
from .formats.huggingface_json import (
    from_huggingface as from_huggingface,
)
from .formats.huggingface_json import (
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
from .lookup import (
    byte_to_token as byte_to_token,
)
from .lookup import (
    char_to_token as char_to_token,
)
from .lookup import (
    token_to_span as token_to_span,
)
from .lookup import (
    token_to_word as token_to_word,
)
from .lookup import (
    word_to_tokens as word_to_tokens,
)
from .models.byte_level import (
    ByteTokenizer as ByteTokenizer,
)
from .models.byte_level import (
    byte_level as byte_level,
)
from .models.calling import (
    CallableTokenizer as CallableTokenizer,
)
from .models.calling import (
    from_callable as from_callable,
)
from .models.char_level import (
    CharTokenizer as CharTokenizer,
)
from .models.char_level import (
    char_level as char_level,
)
from .models.huggingface import (
    HuggingFaceTokenizer as HuggingFaceTokenizer,
)
from .models.templates import (
    with_template as with_template,
)
from .protocol import (
    encode_texts as encode_texts,
)
from .templates import (
    Template as Template,
)
from .templates import (
    make_template as make_template,
)
from .windows import (
    Windows as Windows,
)
from .windows import (
    encode_windows as encode_windows,
)
