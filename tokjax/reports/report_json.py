"""A report as plain JSON values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tokjax.reports.numbers import OF_TEXT, OF_USE, OF_VOCABULARY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokjax.reports.curves import SizeCurve
    from tokjax.reports.numbers import Number
    from tokjax.reports.records import TextSize, TokenUse, VocabularyReport


def report_to_json(report: VocabularyReport, curves: Sequence[SizeCurve] = ()) -> dict[str, Any]:
    """A report as plain JSON values, under the names of the records' attributes; `nan` is `null`.

    Args:
        report: what `vocabulary_report` gave.
        curves: what `size_curves` gave for the same tokenizers and texts, if they are wanted too.

    Returns:
        `"texts"`: kind to `TextSize`. `"vocabularies"`: tokenizer to what holds for any text, its
        `longest` tokens among it. `"uses"`: kind to tokenizer to the numbers of a `TokenUse`, with its
        `most_frequent` tokens. `"overall"`: the same of all kinds together, without the kind. `"curves"`: the
        attributes of each `SizeCurve`. Counts of single ids are left out.

    >>> from tokjax.models.byte_bpe import byte_level_bpe
    >>> from tokjax.reports.measuring import vocabulary_report
    >>> tokenizer = byte_level_bpe({bytes([i]): i for i in range(256)})
    >>> described = report_to_json(vocabulary_report(tokenizer, {"en": ["low"]}, progress=False))
    >>> described["uses"]["en"]["tokenizer"]["tokens"], described["texts"]["en"]["words"]
    (3, 1)
    """
    overall = {name: report.use(name) for name in report.tokenizers}
    by_kind = {kind: {name: report.use(name, kind) for name in overall} for kind in report.kinds}
    return {
        "tokenizers": list(report.tokenizers),
        "kinds": list(report.kinds),
        "texts": {kind: _numbers(next(iter(uses.values())).text, OF_TEXT) for kind, uses in by_kind.items()},
        "vocabularies": {name: _vocabulary(use) for name, use in overall.items()},
        "uses": {kind: {name: _use(use) for name, use in uses.items()} for kind, uses in by_kind.items()},
        "overall": {name: _use(use) for name, use in overall.items()},
        "curves": [_curve(curve) for curve in curves],
    }


def _vocabulary(use: TokenUse) -> dict[str, Any]:
    return _numbers(use, OF_VOCABULARY) | {
        "vocabulary_lengths": use.vocabulary_lengths.tolist(),
        "longest": [token._asdict() for token in use.longest()],
    }


def _use(use: TokenUse) -> dict[str, Any]:
    return _numbers(use, OF_USE) | {
        "used_lengths": use.used_lengths.tolist(),
        "most_frequent": [token._asdict() for token in use.most_frequent()],
    }


def _curve(curve: SizeCurve) -> dict[str, Any]:
    return {
        "tokenizer": curve.tokenizer,
        "kind": curve.kind,
        "nbytes": curve.nbytes,
        "sizes": list(curve.sizes),
        "tokens": list(curve.tokens),
        "bytes_per_token": list(map(_plain, curve.bytes_per_token)),
    }


def _numbers(record: TextSize | TokenUse, numbers: Sequence[Number]) -> dict[str, Any]:
    return {number.name: _plain(number.of(record)) for number in numbers}


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else value
