"""Whether worker processes can be started, and the error of those that ended.

This is apart from `worker_processes`, which takes longer to import.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

failed_starts: list[BaseException] = []
"""Errors of workers that ended before their first answer. After one of them, threads do the work."""


class WorkerDiedError(RuntimeError):
    """Raised if a worker can't be started, or ended before it answered."""


def can_start_workers() -> bool:
    """Returns whether workers can be started: on Linux, by an interpreter that is not part of a program."""
    is_python = "python" in Path(sys.executable or "").name.lower() and not hasattr(sys, "frozen")
    return is_python and hasattr(os, "memfd_create") and not failed_starts
