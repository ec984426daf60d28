"""Background thread that opens the shards of the next batches of a loader, so that batches need not wait.

The order of a loader is known, so the shards of any step are. With `fetch_ahead=2`, while the loader is at
step 0, and shards a to d are not open:

    step             0      1      2      3      4
    its shards       a      a b    b      c      d
    fetched          a      b             c          (b and c are ahead; d is fetched after step 1)

While all shards are open, the thread does not find those of each step, which takes as long as finding the
rows of a batch. If the loader goes back to an earlier step, another thread starts from there.

A shard is opened as the loader would open it: downloaded, compared with its checksum, and mapped. If that
fails, the thread waits until the loader has passed the step. The loader opens the shard itself, and either
succeeds, or raises the error instead of the batch that can't be loaded.

The thread polls instead of waiting for events, whose locks a forked process could inherit locked.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_WAIT_SECONDS = 0.02
_CLOSE_SECONDS = 1.0
"""Maximum time that `close` waits for a download."""
_MAX_STEPS = 4096
"""Maximum number of steps that are looked at ahead of the loader."""


class ShardFetcher:
    """Opens the shards of the next steps, on a thread that starts with the first step.

    Args:
        copy_loader: function that returns a copy of the loader, for a new thread. Its `_find_closed_files`
            yields, for each shard of a step that is not open, functions that open the files of the shard.
            Its `_are_all_open` returns whether all shards of all steps are open.
        stop: first step that is not loaded; `None` without end.
        num_shards: maximum number of shards that are opened before the loader needs them.
    """

    def __init__(self, copy_loader: Callable[[], Any], stop: int | None, num_shards: int) -> None:
        self._copy_loader, self._stop, self._num_shards = copy_loader, stop, num_shards
        self._thread: _FetchThread | None = None
        self._process: int | None = None  # the one that started the thread

    def reach(self, step: int) -> None:
        """Reports the step that the loader loads now.

        The thread starts at the first step, and whenever the loader has gone back to an earlier step.
        """
        if self._thread is None or step < self._thread.step:
            self.stop()
            self._process = os.getpid()
            self._thread = _FetchThread(self._copy_loader(), step, self._stop, self._num_shards)
            self._thread.start()
        self._thread.step = step

    def stop(self) -> None:
        """Stops the thread after the download in progress, without waiting for it."""
        if self._thread is not None:
            self._thread.is_closed = True

    def close(self) -> None:
        """Stops the thread, and waits for it, but at most a second for a download in progress."""
        self.stop()
        if self._thread is not None and self._process == os.getpid():  # a forked process has no thread
            self._thread.join(_CLOSE_SECONDS)


class _FetchThread(threading.Thread):
    """Thread that opens shards until the steps end or it is closed.

    Attributes:
        step: step that the loader loads.
        is_closed: whether the thread should end.
    """

    def __init__(self, loader: Any, step: int, stop: int | None, num_shards: int) -> None:
        super().__init__(name="tokjax-fetch", daemon=True)
        self.step, self.is_closed = step, False
        self._loader, self._end, self._num_shards = loader, stop, num_shards
        self._ahead: deque[int] = deque()  # steps of the shards that were opened, and are not reached yet

    def run(self) -> None:
        """Opens the shards of one step after the other."""
        step = self.step
        while (self._end is None or step < self._end) and self._wait(partial(self._is_due, step)):
            step = max(step, self.step)
            try:
                self._open_shards(step)
            except Exception:
                self._wait(lambda: self.step > step)  # noqa: B023 (called at once)
            step += 1

    def _open_shards(self, step: int) -> None:
        for files in self._loader._find_closed_files(step):
            if not self._wait(self._has_capacity) or self.step > step:  # the loader has opened the others
                return
            for open_file in files:
                open_file()
            self._ahead.append(step)

    def _wait(self, condition: Callable[[], bool]) -> bool:
        """Waits until a condition holds; returns `False` if the thread should end."""
        while not self.is_closed:
            if condition():
                return True
            time.sleep(_WAIT_SECONDS)
        return False

    def _has_capacity(self) -> bool:
        while self._ahead and self._ahead[0] <= self.step:
            self._ahead.popleft()
        return len(self._ahead) < self._num_shards

    def _is_due(self, step: int) -> bool:
        return self.step >= step - _MAX_STEPS and not self._loader._are_all_open()
