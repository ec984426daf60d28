"""Worker processes: started by the first call that is large enough, and kept for later calls.

Threads contend for the GIL between NumPy calls. Processes do not, but they have to be started and to be given
the object that does the work, such as the engine of a tokenizer. So large inputs are shared between a thread
of this process, which starts at once, and workers, which join when they are ready:

    this process     item 0   item 1   item 2   item 4   item 6   item 8
    worker           (starts, gets the object)   item 3   item 5   item 7

A worker is another Python interpreter that runs `worker_main`. It does not run the calling program again. It
gets a copy of the object: arrays are shared until a process changes them, and caches exchange their new
entries (`cache_exchange`). Items and results pass through shared memory. Workers end with the process that
started them, or after a minute without work.

Workers need Linux. Elsewhere, threads do the work.
"""

from __future__ import annotations

import atexit
import logging
import os
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax._util.cache_exchange import EntryQueue, collect_queues
from tokjax._util.executors import restore_error
from tokjax._util.locks import ThreadLock
from tokjax._util.shared_buffers import SharedBuffer
from tokjax._util.threads import Runner, resolve_num_threads
from tokjax._util.worker_main import WorkerError, receive, send
from tokjax._util.worker_starts import WorkerDiedError, can_start_workers, failed_starts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_log = logging.getLogger("tokjax")
_MAX_OBJECTS = 3
"""Number of objects that a worker keeps."""
_SINGLE_THREADED = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Environment of workers. NumPy would start threads, which the library has no use for."""
_ITEMS_PER_PROCESS = 4
"""Number of items from which on the first worker is used, twice as many for the second and so on, if the size
of the input is unknown. Items have one or two megabytes."""
_MAX_WAIT_SECONDS = 5.0
"""Time to wait for the end of a killed process. Without a limit, an interrupt in `subprocess` can block."""


class CannotSendError(RuntimeError):
    """Raised if the arguments or the result of a call can't be pickled, or not be unpickled.

    Attributes:
        was_called: whether the method was called.
    """

    def __init__(self, *, was_called: bool) -> None:
        super().__init__()
        self.was_called = was_called


@contextmanager
def make_copies(target: Any, token: int, count: int) -> Iterator[list[RemoteCopy]]:
    """Gives copies of an object in workers that nobody else uses until the end of the block.

    Args:
        target: the object. It has to be picklable.
        token: token of the object.
        count: maximum number of copies. There are fewer if other threads use workers.

    Yields:
        The copies. Their workers are not started yet.
    """
    snapshot = _Snapshot(target)
    with _borrow_workers(count) as workers:
        yield [RemoteCopy(worker, token, snapshot) for worker in workers]


class _Snapshot:
    """A pickled object in shared memory, written when the first worker needs it."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self._lock = ThreadLock()

    def get(self) -> _WrittenSnapshot:
        with self._lock.current:
            return self._written

    @cached_property
    def _written(self) -> _WrittenSnapshot:
        buffer = SharedBuffer()
        with collect_queues() as queues:
            return _WrittenSnapshot(buffer, buffer.write(self._target), queues)


class _WrittenSnapshot(NamedTuple):
    """A pickled object.

    Attributes:
        buffer: the memory that has the object.
        sizes: sizes for `SharedBuffer.map_value`, in bytes.
        queues: queue of each cache of the object, with the entries that are not in the memory.
    """

    buffer: SharedBuffer
    sizes: list[int]
    queues: list[EntryQueue]


class RemoteCopy:
    """Copy of an object in a worker."""

    def __init__(self, worker: _Worker, token: int, snapshot: _Snapshot) -> None:
        self._worker, self._token, self._snapshot = worker, token, snapshot
        self._ticket = worker.ticket

    @property
    def is_prepared(self) -> bool:
        """Whether the worker has the copy."""
        return self._token in self._worker.installed

    @property
    def is_in_use(self) -> bool:
        """Whether the worker was not returned yet."""
        return self._worker.ticket is self._ticket

    def prepare(self) -> None:
        """Starts the worker and makes the copy, unless the worker has both.

        Raises:
            WorkerDiedError: the worker can't be started, or ended.
        """
        self._worker.install(self._ticket, self._token, self._snapshot)

    def call(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the copy, which `prepare` has made, and returns its result.

        Raises:
            CannotSendError: the arguments or the result can't be pickled.
            WorkerDiedError: the worker ended.
        """
        return self._worker.call(self._ticket, self._token, method, arguments)

    def drop(self) -> None:
        """Deletes the copy. Otherwise the worker keeps it for later calls."""
        self._worker.drop(self._ticket, self._token)


def make_remote_runners(
    copies: list[RemoteCopy],
    method: str,
    local: Callable[[Any], Any],
    size: int | None,
    *,
    has_state: bool = False,
) -> list[Runner]:
    """Makes runners that each call a method of a copy, or `local` if its worker did not start, or ended.

    Args:
        copies: the copies.
        method: name of the method.
        local: the same method of the object in this process.
        size: size of all items, as in `map_in_parallel`.
        has_state: whether calls change the copy. Then a worker that ends after a call is an error,
            `WorkerDiedError`.
    """
    runners = []
    for number, copy in enumerate(copies, 1):
        remote = _RemoteMethod(copy, method, local, has_state=has_state)
        min_items = 0 if size is not None else number * _ITEMS_PER_PROCESS
        runners.append(Runner(remote.call, remote.prepare, min_items))
    return runners


class _RemoteMethod:
    """Method of a copy. See `make_remote_runners`."""

    def __init__(
        self, copy: RemoteCopy, method: str, local: Callable[[Any], Any], *, has_state: bool
    ) -> None:
        self._copy, self._method, self._local = copy, method, local
        self._has_state = has_state
        self._has_worker = self._has_changed = False

    def prepare(self) -> None:
        try:
            self._copy.prepare()
            self._has_worker = True
        except Exception as error:  # also of an object that can't be pickled
            _log.debug("a thread is used instead of a worker process: %r", error)

    def call(self, item: Any) -> Any:
        if self._has_worker:
            try:
                result = self._copy.call(self._method, item)
            except CannotSendError as error:
                if self._has_state and error.was_called:
                    raise
                _log.debug("an item is not sent to a worker process: %r", error.__cause__)
            except WorkerDiedError as error:
                if (self._has_state and self._has_changed) or not self._copy.is_in_use:
                    raise
                self._has_worker = False
                _log.warning("%s; this process does its work", error)
            else:
                self._has_changed = True
                return result
        return self._local(item)


class _Worker:
    """A worker process, started when it is first needed.

    Attributes:
        ticket: identifies the current use of the worker. Threads of an earlier use, which ended too soon for
            them, have another ticket.
        installed: tokens of the objects that the worker has, the one that was used last at the end, each with
            the queues of entries that are new to it.
        state: `"idle"`, `"preparing"` or `"calling"`.
        is_returned: whether the worker was returned while it was preparing.
    """

    def __init__(self) -> None:
        self.ticket: object = object()
        self.installed: dict[int, list[EntryQueue | None]] = {}
        self.state = "idle"
        self.is_returned = False
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._buffer: SharedBuffer | None = None

    @property
    def is_connected(self) -> bool:
        """Whether the process was started, and was not found to have ended."""
        return self._socket is not None

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def install(self, ticket: object, token: int, snapshot: _Snapshot) -> None:
        with self._use(ticket, "preparing"):
            is_new = self._process is None
            try:
                if is_new:
                    self._start()
                if token in self.installed:
                    self.installed[token] = self.installed.pop(token)
                else:
                    while len(self.installed) >= _MAX_OBJECTS:
                        oldest = next(iter(self.installed))
                        del self.installed[oldest]
                        self._request("drop", oldest)
                    buffer, sizes, queues = snapshot.get()
                    copied = [queue.copy() for queue in queues]  # before the installation, which takes time
                    self._request("install", token, sizes, fd=buffer.fd)
                    self.installed[token] = copied
            except BaseException as error:
                self.kill()
                if is_new and isinstance(error, (OSError, WorkerDiedError)):
                    failed_starts.append(error)
                raise

    def call(self, ticket: object, token: int, method: str, arguments: tuple[Any, ...]) -> Any:
        with self._use(ticket, "calling"):
            assert self._buffer is not None, "install comes first"
            queues = self.installed[token]
            try:
                entries = [[] if queue is None else queue.take() for queue in queues]
                sizes = self._buffer.write((arguments, entries))
            except Exception as error:
                raise CannotSendError(was_called=False) from error
            sizes = self._request("call", token, method, sizes)
            try:
                result, entries = self._buffer.read(sizes)
            except Exception as error:
                raise CannotSendError(was_called=True) from error
        for queue, batches in zip(queues, entries, strict=True):
            if queue is not None:
                queue.deliver(batches)
        return result

    def drop(self, ticket: object, token: int) -> None:
        with self._use(ticket, "calling"):
            del self.installed[token]
            self._request("drop", token)

    def rest(self) -> None:
        """Lets the process end if it is not used for a minute."""
        if self._socket is not None:
            try:
                send(self._socket, ("rest",))
            except OSError:
                self.kill()

    def kill(self) -> None:
        """Ends the process, whatever it does."""
        if self._process is not None:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_MAX_WAIT_SECONDS)
        self._close()

    def forget(self) -> None:
        """Closes the connection of a forked process, without an effect on the worker."""
        if self._process is not None:
            self._process.returncode = 0  # it is not a child of this process
        self._close()

    def _close(self) -> None:
        self.installed.clear()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @contextmanager
    def _use(self, ticket: object, state: str) -> Iterator[None]:
        with _lock.current:
            if ticket is not self.ticket:
                raise WorkerDiedError("the call that used this worker has ended")
            self.state = state
        try:
            yield
        finally:
            with _lock.current:
                self.state = "idle"
                if self.is_returned:
                    _make_available(self)

    def _start(self) -> None:
        self._socket, remote = socket.socketpair()
        self._buffer = SharedBuffer()
        fds = [remote.fileno(), self._buffer._get_fd()]
        with remote:
            self._process = subprocess.Popen(
                _make_command(fds),
                env={**os.environ, **_SINGLE_THREADED},
                stdin=subprocess.DEVNULL,
                pass_fds=fds,
                process_group=0,  # Ctrl-C is for this process
            )

    def _request(self, *request: Any, fd: int | None = None) -> Any:
        """Sends a request and returns the answer.

        Raises:
            CannotSendError: the arguments or the result of a call can't be pickled.
            WorkerDiedError: the worker ended.
            Exception: the error that the request raised in the worker.
        """
        connection = self._socket
        try:
            if connection is None:
                raise EOFError
            send(connection, request, fd)
            answer, _ = receive(connection)
        except (OSError, EOFError) as error:
            self.kill()
            raise WorkerDiedError("a worker process of tokjax ended (killed, or out of memory?)") from error
        if isinstance(answer, WorkerError):
            remote_error = restore_error(answer.error)
            if request[0] == "call" and answer.step != "method":
                raise CannotSendError(was_called=answer.step == "result") from remote_error
            raise remote_error
        return answer


def _make_command(fds: list[int]) -> list[str]:
    """Returns the command that starts a worker, which imports this tokjax."""
    flags = [
        flag for flag, name in (("-I", "isolated"), ("-E", "ignore_environment")) if getattr(sys.flags, name)
    ]
    package = str(Path(__file__).resolve().parents[2])
    paths = [package, *(str(Path(path).absolute()) for path in sys.path if isinstance(path, str))]
    program = f"import sys; sys.path[:] = {paths!r}; from tokjax._util.worker_main import main; main(*{fds})"
    return [sys.executable, *flags, "-c", program]


_idle_workers: list[_Worker] = []
_borrowed_workers: list[_Worker] = []
_lock = ThreadLock()


@contextmanager
def _borrow_workers(count: int) -> Iterator[list[_Worker]]:
    """Gives workers that nobody else uses until the end of the block, idle ones before new ones."""
    with _lock.current:
        available = max(count, resolve_num_threads(None) - 1) - len(_borrowed_workers)
        count = max(min(count, available), 0) if can_start_workers() else 0
        for worker in [worker for worker in _idle_workers if not worker.is_alive]:
            worker.kill()
            _idle_workers.remove(worker)
        workers = [_idle_workers.pop() if _idle_workers else _Worker() for _ in range(count)]
        _borrowed_workers.extend(workers)
    try:
        yield workers
    finally:
        for worker in workers:
            _return(worker)


def _return(worker: _Worker) -> None:
    """Ends the use of a worker. One that is still busy with a call is ended."""
    with _lock.current:
        if worker.state == "preparing":
            worker.is_returned = True  # it becomes available when it is ready
            return
        is_busy = worker.state == "calling"
        _make_available(worker)
    if is_busy:
        worker.kill()


def _make_available(worker: _Worker) -> None:
    worker.ticket = object()
    worker.is_returned = False
    _borrowed_workers.remove(worker)
    if worker.state == "idle" and worker.is_connected:
        worker.rest()
        _idle_workers.append(worker)


def _forget_workers() -> None:
    """Closes the connections of a forked child process. They belong to its parent."""
    for worker in (*_idle_workers, *_borrowed_workers):
        worker.forget()
    _idle_workers.clear()
    _borrowed_workers.clear()


def _end_workers() -> None:
    for worker in (*_idle_workers, *_borrowed_workers):
        worker.ticket = object()
        worker.kill()


atexit.register(_end_workers)
if hasattr(os, "register_at_fork"):  # Windows cannot fork
    os.register_at_fork(after_in_child=_forget_workers)
