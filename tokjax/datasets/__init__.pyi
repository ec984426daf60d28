from .columns import (
    Column as Column,
)
from .conversion import (
    convert_dataset as convert_dataset,
    export_dataset as export_dataset,
)
from .dataset import (
    TokenColumn as TokenColumn,
)
from .dataset_types import (
    BucketedDataset as BucketedDataset,
    ChunkSource as ChunkSource,
    PackedDataset as PackedDataset,
    RawTextDataset as RawTextDataset,
    TokenDataset as TokenDataset,
    open_dataset as open_dataset,
)
from .fields.base import (
    RowsWithColumns as RowsWithColumns,
    TokenField as TokenField,
)
from .fields.conversation import (
    ChatField as ChatField,
)
from .fields.preference import (
    PreferenceField as PreferenceField,
)
from .fields.registry import (
    Field as Field,
    register_field as register_field,
)
from .fields.text_fields import (
    BucketedTokenField as BucketedTokenField,
    PackedTokenField as PackedTokenField,
    RawTextField as RawTextField,
    SentencePieceTextField as SentencePieceTextField,
    TokenizedTextField as TokenizedTextField,
)
from .loaders.bucketed import (
    BucketedLoader as BucketedLoader,
    TokenBudgetLoader as TokenBudgetLoader,
)
from .loaders.compiled_steps import (
    CompiledStep as CompiledStep,
    compile_ahead as compile_ahead,
)
from .loaders.packed import (
    PackedTokenLoader as PackedTokenLoader,
    TokenChunks as TokenChunks,
)
from .loaders.planned import (
    PlannedLoader as PlannedLoader,
    describe_schedule as describe_schedule,
)
from .loaders.prefetch import (
    Prefetched as Prefetched,
    prefetch_to_device as prefetch_to_device,
)
from .loaders.sequences import (
    SequenceLoader as SequenceLoader,
)
from .merging import (
    merge_datasets as merge_datasets,
)
from .writer import (
    WrittenDataset as WrittenDataset,
    write_dataset as write_dataset,
)
