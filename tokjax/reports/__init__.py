"""Reports on vocabularies and datasets, and batches shown as text."""

from tokjax.reports.curves import SizeCurve, size_curves
from tokjax.reports.dataset_report import (
    DatasetReport,
    dataset_report,
    dataset_report_to_json,
    save_dataset_report_html,
)
from tokjax.reports.html_report import report_to_json, save_report_html
from tokjax.reports.metrics import TextSize, TokenUse, VocabularyReport
from tokjax.reports.show_batch.show import show_batch
from tokjax.reports.tables import report_tables
from tokjax.reports.vocabulary_report import vocabulary_report

__all__ = [
    "DatasetReport",
    "SizeCurve",
    "TextSize",
    "TokenUse",
    "VocabularyReport",
    "dataset_report",
    "dataset_report_to_json",
    "report_tables",
    "report_to_json",
    "save_dataset_report_html",
    "save_report_html",
    "show_batch",
    "size_curves",
    "vocabulary_report",
]
