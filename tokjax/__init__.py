"""tokjax: text into arrays for JAX training loops, every token tied to the bytes it came from.

`import tokjax` is cheap: a name loads its module when it is first used, and neither JAX nor `regex` nor
SentencePiece before a name that needs them. Trainers are in `tokjax.trainer`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokjax.batching.collate import (
        PaddedBatch as PaddedBatch,
    )
    from tokjax.batching.collate import (
        batch_pad_sequences as batch_pad_sequences,
    )
    from tokjax.batching.collate import (
        collate_padded_batch as collate_padded_batch,
    )
    from tokjax.batching.collate import (
        pad_ragged as pad_ragged,
    )
    from tokjax.batching.collate import (
        pad_sequence as pad_sequence,
    )
    from tokjax.batching.labels import (
        CausalLMBatch as CausalLMBatch,
    )
    from tokjax.batching.labels import (
        causal_lm_labels as causal_lm_labels,
    )
    from tokjax.batching.labels import (
        to_one_based as to_one_based,
    )
    from tokjax.batching.labels import (
        to_zero_based as to_zero_based,
    )
    from tokjax.batching.masks import (
        create_attention_mask as create_attention_mask,
    )
    from tokjax.batching.masks import (
        create_causal_mask as create_causal_mask,
    )
    from tokjax.batching.masks import (
        find_document_boundaries as find_document_boundaries,
    )
    from tokjax.batching.packing import (
        PackedBlocks as PackedBlocks,
    )
    from tokjax.batching.packing import (
        PackingPlan as PackingPlan,
    )
    from tokjax.batching.packing import (
        apply_packing as apply_packing,
    )
    from tokjax.batching.packing import (
        pack_blocks as pack_blocks,
    )
    from tokjax.batching.packing import (
        plan_packing as plan_packing,
    )
    from tokjax.errors import (
        DatasetCorruptError as DatasetCorruptError,
    )
    from tokjax.errors import (
        DatasetError as DatasetError,
    )
    from tokjax.errors import (
        DatasetExistsError as DatasetExistsError,
    )
    from tokjax.errors import (
        DatasetIncompleteError as DatasetIncompleteError,
    )
    from tokjax.errors import (
        DatasetMismatchError as DatasetMismatchError,
    )
    from tokjax.errors import (
        DisallowedSpecialTokenError as DisallowedSpecialTokenError,
    )
    from tokjax.errors import (
        InvalidArgumentError as InvalidArgumentError,
    )
    from tokjax.errors import (
        MissingSpecialTokenError as MissingSpecialTokenError,
    )
    from tokjax.errors import (
        OffsetsContractError as OffsetsContractError,
    )
    from tokjax.errors import (
        TokenizerFormatError as TokenizerFormatError,
    )
    from tokjax.errors import (
        TokjaxError as TokjaxError,
    )
    from tokjax.errors import (
        TrainingError as TrainingError,
    )
    from tokjax.errors import (
        UnknownTokenError as UnknownTokenError,
    )
    from tokjax.errors import (
        UnsupportedTokenizerError as UnsupportedTokenizerError,
    )
    from tokjax.formats.tokjax_json import (
        load_tokenizer as load_tokenizer,
    )
    from tokjax.formats.tokjax_json import (
        save_tokenizer as save_tokenizer,
    )
    from tokjax.loading.packed import (
        PackedTokenLoader as PackedTokenLoader,
    )
    from tokjax.models.byte_bpe import (
        ByteLevelBPE as ByteLevelBPE,
    )
    from tokjax.models.byte_bpe import (
        byte_level_bpe as byte_level_bpe,
    )
    from tokjax.offsets import (
        assert_offsets_contract as assert_offsets_contract,
    )
    from tokjax.offsets import (
        byte_to_char_spans as byte_to_char_spans,
    )
    from tokjax.offsets import (
        char_to_byte_spans as char_to_byte_spans,
    )
    from tokjax.offsets import (
        has_nonempty_span as has_nonempty_span,
    )
    from tokjax.offsets import (
        has_span as has_span,
    )
    from tokjax.offsets import (
        is_valid_string_boundary as is_valid_string_boundary,
    )
    from tokjax.offsets import (
        offsets_are_nonoverlapping as offsets_are_nonoverlapping,
    )
    from tokjax.offsets import (
        offsets_coordinate_system as offsets_coordinate_system,
    )
    from tokjax.offsets import (
        offsets_index_base as offsets_index_base,
    )
    from tokjax.offsets import (
        offsets_sentinel as offsets_sentinel,
    )
    from tokjax.offsets import (
        offsets_span_style as offsets_span_style,
    )
    from tokjax.offsets import (
        span_bytes as span_bytes,
    )
    from tokjax.offsets import (
        span_nbytes as span_nbytes,
    )
    from tokjax.offsets import (
        try_span_substring as try_span_substring,
    )
    from tokjax.offsets import (
        validate_offsets_contract as validate_offsets_contract,
    )
    from tokjax.protocol import (
        bos_id as bos_id,
    )
    from tokjax.protocol import (
        decode as decode,
    )
    from tokjax.protocol import (
        decode_bytes as decode_bytes,
    )
    from tokjax.protocol import (
        encode as encode,
    )
    from tokjax.protocol import (
        encode_batch_result as encode_batch_result,
    )
    from tokjax.protocol import (
        encode_result as encode_result,
    )
    from tokjax.protocol import (
        eos_id as eos_id,
    )
    from tokjax.protocol import (
        fingerprint as fingerprint,
    )
    from tokjax.protocol import (
        id_to_bytes as id_to_bytes,
    )
    from tokjax.protocol import (
        id_to_token as id_to_token,
    )
    from tokjax.protocol import (
        normalize as normalize,
    )
    from tokjax.protocol import (
        pad_id as pad_id,
    )
    from tokjax.protocol import (
        special_tokens as special_tokens,
    )
    from tokjax.protocol import (
        token_to_id as token_to_id,
    )
    from tokjax.protocol import (
        tokenization_view as tokenization_view,
    )
    from tokjax.protocol import (
        tokenize as tokenize,
    )
    from tokjax.protocol import (
        unk_id as unk_id,
    )
    from tokjax.protocol import (
        vocab_size as vocab_size,
    )
    from tokjax.protocol import (
        vocabulary_of as vocabulary_of,
    )
    from tokjax.quick import (
        QuickBatch as QuickBatch,
    )
    from tokjax.quick import (
        QuickBundle as QuickBundle,
    )
    from tokjax.quick import (
        QuickTokens as QuickTokens,
    )
    from tokjax.quick import (
        quick_causal_lm_batch as quick_causal_lm_batch,
    )
    from tokjax.quick import (
        quick_encode_batch as quick_encode_batch,
    )
    from tokjax.quick import (
        quick_tokenize as quick_tokenize,
    )
    from tokjax.quick import (
        quick_train_bundle as quick_train_bundle,
    )
    from tokjax.ragged import (
        Ragged as Ragged,
    )
    from tokjax.ragged import (
        make_ragged as make_ragged,
    )
    from tokjax.ragged import (
        ragged_from_rows as ragged_from_rows,
    )
    from tokjax.records import (
        ResultMetadata as ResultMetadata,
    )
    from tokjax.records import (
        TokenizationBatch as TokenizationBatch,
    )
    from tokjax.records import (
        TokenizationResult as TokenizationResult,
    )
    from tokjax.store.fields import (
        PackedTokenField as PackedTokenField,
    )
    from tokjax.store.reader import (
        PackedDataset as PackedDataset,
    )
    from tokjax.store.reader import (
        open_dataset as open_dataset,
    )
    from tokjax.store.writer import (
        WrittenDataset as WrittenDataset,
    )
    from tokjax.store.writer import (
        write_dataset as write_dataset,
    )
    from tokjax.text.chunks import (
        find_chunk_boundaries as find_chunk_boundaries,
    )
    from tokjax.text.patterns import (
        PATTERNS as PATTERNS,
    )
    from tokjax.text.sources import (
        read_documents as read_documents,
    )
    from tokjax.utf8 import (
        to_utf8 as to_utf8,
    )
    from tokjax.vocabulary import (
        Vocabulary as Vocabulary,
    )
    from tokjax.vocabulary import (
        make_vocabulary as make_vocabulary,
    )

__version__ = "0.1.0"

_EXPORTS = {
    "batching.collate": (
        "PaddedBatch",
        "batch_pad_sequences",
        "collate_padded_batch",
        "pad_ragged",
        "pad_sequence",
    ),
    "batching.labels": (
        "CausalLMBatch",
        "causal_lm_labels",
        "to_one_based",
        "to_zero_based",
    ),
    "batching.masks": (
        "create_attention_mask",
        "create_causal_mask",
        "find_document_boundaries",
    ),
    "batching.packing": (
        "PackedBlocks",
        "PackingPlan",
        "apply_packing",
        "pack_blocks",
        "plan_packing",
    ),
    "errors": (
        "DatasetCorruptError",
        "DatasetError",
        "DatasetExistsError",
        "DatasetIncompleteError",
        "DatasetMismatchError",
        "DisallowedSpecialTokenError",
        "InvalidArgumentError",
        "MissingSpecialTokenError",
        "OffsetsContractError",
        "TokenizerFormatError",
        "TokjaxError",
        "TrainingError",
        "UnknownTokenError",
        "UnsupportedTokenizerError",
    ),
    "formats.tokjax_json": (
        "load_tokenizer",
        "save_tokenizer",
    ),
    "loading.packed": ("PackedTokenLoader",),
    "models.byte_bpe": (
        "ByteLevelBPE",
        "byte_level_bpe",
    ),
    "offsets": (
        "assert_offsets_contract",
        "byte_to_char_spans",
        "char_to_byte_spans",
        "has_nonempty_span",
        "has_span",
        "is_valid_string_boundary",
        "offsets_are_nonoverlapping",
        "offsets_coordinate_system",
        "offsets_index_base",
        "offsets_sentinel",
        "offsets_span_style",
        "span_bytes",
        "span_nbytes",
        "try_span_substring",
        "validate_offsets_contract",
    ),
    "protocol": (
        "bos_id",
        "decode",
        "decode_bytes",
        "encode",
        "encode_batch_result",
        "encode_result",
        "eos_id",
        "fingerprint",
        "id_to_bytes",
        "id_to_token",
        "normalize",
        "pad_id",
        "special_tokens",
        "token_to_id",
        "tokenization_view",
        "tokenize",
        "unk_id",
        "vocab_size",
        "vocabulary_of",
    ),
    "quick": (
        "QuickBatch",
        "QuickBundle",
        "QuickTokens",
        "quick_causal_lm_batch",
        "quick_encode_batch",
        "quick_tokenize",
        "quick_train_bundle",
    ),
    "ragged": (
        "Ragged",
        "make_ragged",
        "ragged_from_rows",
    ),
    "records": (
        "ResultMetadata",
        "TokenizationBatch",
        "TokenizationResult",
    ),
    "store.fields": ("PackedTokenField",),
    "store.reader": (
        "PackedDataset",
        "open_dataset",
    ),
    "store.writer": (
        "WrittenDataset",
        "write_dataset",
    ),
    "text.chunks": ("find_chunk_boundaries",),
    "text.patterns": ("PATTERNS",),
    "text.sources": ("read_documents",),
    "utf8": ("to_utf8",),
    "vocabulary": (
        "Vocabulary",
        "make_vocabulary",
    ),
}
_SUBPACKAGES = ("trainer",)
_MODULE_OF = {name: module for module, names in _EXPORTS.items() for name in names}
__all__ = sorted([*_MODULE_OF, *_SUBPACKAGES])  # noqa: PLE0605 (type checkers read the imports above)


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"tokjax.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'tokjax' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"tokjax.{_MODULE_OF[name]}"), name)
    globals()[name] = value  # the next use does not come here
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
