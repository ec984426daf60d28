from .dataset_statistics import (
    DatasetReport as DatasetReport,
    dataset_report as dataset_report,
)
from .metrics import (
    TextSize as TextSize,
    TokenUse as TokenUse,
    VocabularyReport as VocabularyReport,
    compute_entropy as compute_entropy,
    compute_huffman_length as compute_huffman_length,
    compute_renyi_efficiency as compute_renyi_efficiency,
)
from .mixture import (
    MixtureEstimate as MixtureEstimate,
    estimate_mixture as estimate_mixture,
)
from .report_table import (
    ReportTable as ReportTable,
)
from .vocabulary_statistics import (
    report_tables as report_tables,
    report_to_json as report_to_json,
    vocabulary_report as vocabulary_report,
)
