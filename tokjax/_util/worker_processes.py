"""Worker processes: started by the first call that is large enough, and kept for later calls.

Threads contend for the GIL between NumPy calls. Processes do not, but they have to be started and to be given
the object that does the work, such as the engine of a tokenizer. So large inputs are shared between a thread
of this process, which starts at once, and workers, which join when they are ready:

    this process     item 0   item 1   item 2   item 4   item 6   item 8
    worker           (starts, gets the object)   item 3   item 5   item 7

A worker is another Python interpreter that runs `main`. It does not run the calling program again. It gets a
copy of the object: arrays are shared until a process changes them, and caches exchange their new entries
(`cache_exchange`). Items and results pass through shared memory. Workers end with the process that started
them, or after a minute without work.

The use of a worker can end before its thread is ready, if the other threads have done all work by then. The
worker becomes available to the next call when it is ready, and is ended if it is still busy with an item:

    call     borrow ───────────────────── end                            borrow ───
    thread          prepare ───────────────────────── ready: available

Workers need Linux. Elsewhere, threads do the work.
"""

from __future__ import annotations

import atexit
import logging
import mmap
import os
import pickle
import signal
import subprocess
import sys
import threading
import weakref
from contextlib import contextmanager, suppress
from itertools import accumulate
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tokjax._util.cache_exchange import EntryQueue, collect_queues
from tokjax._util.executors import PickledError, pickle_error, restore_error
from tokjax._util.locks import ThreadLock
from tokjax._util.threads import Runner, WorkerDiedError, failed_starts, resolve_num_threads

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
_IDLE_SECONDS = 60.0
_Objects: TypeAlias = "dict[int, tuple[Any, list[EntryQueue]]]"
"""The copies of a worker by token, each with a queue of each of its caches, of entries that it computed."""
_ALIGNMENT = 64
_MIN_NBYTES = 1 << 20


class CannotSendError(RuntimeError):
    """Raised if the arguments or the result of a call can't be pickled, or not be unpickled."""


@contextmanager
def borrow_workers(
    target: Any, token: int, method: str, count: int, size: int | None, *, has_state: bool
) -> Iterator[list[RemoteRunner]]:
    """Gives runners with workers that nobody else uses until the end of the block.

    Args:
        target: the object, as in `map_in_parallel`.
        token: token of the object.
        method: name of the method that the runners call.
        count: maximum number of runners. There are fewer if other threads use workers.
        size: size of all items.
        has_state: whether calls change the copy of a worker. Their results have to be picklable.

    Yields:
        The runners. Those processes that do not run yet are started when they are prepared.
    """
    snapshot = _Snapshot(target)
    with _lock.current:
        free = [worker for worker in _workers if not worker.is_borrowed]
        available = max(count, resolve_num_threads(None) - 1) - (len(_workers) - len(free))
        count = max(min(count, available), 0)
        new = [_Worker() for _ in range(count - len(free))]
        _workers.extend(new)
        workers = [*sorted(free, key=lambda worker: not worker.is_alive), *new][:count]
        for worker in workers:
            worker.is_borrowed = True
    runners = [RemoteRunner(worker, target, token, method, snapshot) for worker in workers]
    for number, runner in enumerate(runners, 1):
        runner.has_state = has_state
        runner.min_items = 0 if size is not None else number * _ITEMS_PER_PROCESS
    try:
        yield runners
    finally:
        for runner in runners:
            runner.end()


class _Snapshot:
    """A pickled object in shared memory, written when the first worker needs it."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._written: tuple[SharedBuffer, list[int], list[EntryQueue]] | None = None

    def get(self) -> tuple[SharedBuffer, list[int], list[EntryQueue]]:
        """Returns the memory, the sizes of the object in it, and a queue for each cache of the object.

        The queues have the entries that are not in the memory.
        """
        with self._lock:
            if self._written is None:
                buffer = SharedBuffer()
                with collect_queues() as queues:
                    self._written = buffer, buffer.write(self._target), queues
            return self._written


class RemoteRunner(Runner):
    """Calls a method of a copy of an object in a worker, or of the object if the worker can't do it.

    Attributes:
        has_state: whether calls change the copy. Then a worker that ends after a call is an error,
            `WorkerDiedError`.
    """

    has_state = False

    def __init__(self, worker: _Worker, target: Any, token: int, method: str, snapshot: _Snapshot) -> None:
        super().__init__(getattr(target, method))
        self._worker, self._token, self._method, self._snapshot = worker, token, method, snapshot
        self._state = "idle"
        self._is_prepared = self._has_changed = self._has_ended = False

    def prepare(self) -> None:
        """Starts the worker and makes the copy, unless the worker has both."""
        try:
            with self._use("preparing"):
                self._worker.install(self._token, self._snapshot)
            self._is_prepared = True
        except Exception as error:  # also of an object that can't be pickled
            _log.debug("a thread is used instead of a worker process: %r", error)

    def call(self, item: Any) -> Any:
        """Returns the result of an item."""
        if self._is_prepared:
            try:
                with self._use("calling"):
                    result = self._worker.call(self._token, self._method, item)
            except CannotSendError as error:
                _log.debug("an item is not sent to a worker process: %s", error)
            except WorkerDiedError as error:
                if (self.has_state and self._has_changed) or self._has_ended:
                    raise
                self._is_prepared = False
                _log.warning("%s; this process does its work", error)
            else:
                self._has_changed = True
                return result
        return super().call(item)

    def gather(self, collect: str, add: Callable[[Any], object]) -> None:
        """Adds what the calls of a method have collected in the copy, and deletes the copy.

        Args:
            collect: name of the method that returns it.
            add: function that adds it in this process.
        """
        if self._is_prepared:
            with self._use("calling"):
                add(self._worker.call(self._token, collect))
                self._worker.drop(self._token)

    def end(self) -> None:
        """Ends the use of the worker. One that is busy with a call is ended."""
        with _lock.current:
            self._has_ended = True
            if self._state == "idle":
                self._worker.rest()
            elif self._state == "calling":
                self._worker.interrupt()

    @contextmanager
    def _use(self, state: str) -> Iterator[None]:
        with _lock.current:
            if self._has_ended:
                raise WorkerDiedError("the call that used this worker has ended")
            self._state = state
        try:
            yield
        finally:
            self._leave()

    def _leave(self) -> None:
        with _lock.current:
            self._state = "idle"
            if self._has_ended:
                self._worker.rest()


class _Worker:
    """A worker process, which is started when it is needed, also again.

    Attributes:
        is_borrowed: whether a runner uses it.
    """

    def __init__(self) -> None:
        self.is_borrowed = False
        self._installed: dict[int, list[EntryQueue]] = {}
        """The objects that the process has, by token, the one that was used last at the end, each with the
        queues of entries that are new to it."""
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._buffer: SharedBuffer

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def install(self, token: int, snapshot: _Snapshot) -> None:
        """Starts the process and copies an object, unless this was done."""
        is_new = not self.is_alive
        try:
            if is_new:
                self.kill()
                self._start()
            if token in self._installed:
                self._installed[token] = self._installed.pop(token)
                return
            while len(self._installed) >= _MAX_OBJECTS:
                self.drop(next(iter(self._installed)))
            buffer, sizes, queues = snapshot.get()
            copied = [queue.copy() for queue in queues]  # before the installation, which takes time
            self._request("install", token, sizes, fd=buffer.fd)
            self._installed[token] = copied
        except BaseException as error:
            self.kill()
            if is_new and isinstance(error, (OSError, WorkerDiedError)):
                failed_starts.append(error)
            raise

    def call(self, token: int, method: str, *arguments: Any) -> Any:
        """Calls a method of a copy, and returns its result.

        Raises:
            CannotSendError: the arguments or the result can't be pickled.
            WorkerDiedError: the process ended.
        """
        queues = self._installed.get(token, [])
        with _report_pickling():
            sizes = self._buffer.write((arguments, [queue.take() for queue in queues]))
        sizes = self._request("call", token, method, sizes)
        with _report_pickling():
            result, entries = self._buffer.read(sizes)
        for queue, batches in zip(queues, entries, strict=True):
            queue.deliver(batches)
        return result

    def drop(self, token: int) -> None:
        """Deletes a copy. Otherwise the process keeps it for later calls."""
        del self._installed[token]
        self._request("drop", token)

    def rest(self) -> None:
        """Makes the worker available to others. The process ends if it is not used for a minute."""
        self.is_borrowed = False
        if self._connection is not None:
            try:
                self._connection.send(None)
            except OSError:
                self.kill()

    def interrupt(self) -> None:
        """Ends the process while another thread waits for its answer."""
        if self._process is not None:
            self._process.kill()

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
        self._installed.clear()
        connection, self._connection = self._connection, None  # (another thread may close it, too)
        if connection is not None:
            connection.close()

    def _start(self) -> None:
        self._buffer = SharedBuffer()
        self._connection, remote = Pipe()
        fds = [remote.fileno(), self._buffer.fd]
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
            WorkerDiedError: the worker ended.
            Exception: the error that the request raised in the worker.
        """
        connection = self._connection
        try:
            if connection is None:
                raise EOFError
            connection.send(request)
            if fd is not None:
                send_handle(connection, fd, 0)  # (only Windows needs the number of the process)
            answer = connection.recv()
        except BaseException as error:
            self.kill()  # also after Ctrl-C: the next request would get the answer of this one
            if not isinstance(error, (OSError, EOFError)):
                raise
            raise WorkerDiedError("a worker process of tokjax ended (killed, or out of memory?)") from error
        if isinstance(answer, PickledError):
            raise restore_error(answer)
        return answer


@contextmanager
def _report_pickling() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise CannotSendError(repr(error)) from error


def _make_command(fds: list[int]) -> list[str]:
    """Returns the command that starts a worker, which imports this tokjax."""
    flags = [
        flag for flag, name in (("-I", "isolated"), ("-E", "ignore_environment")) if getattr(sys.flags, name)
    ]
    package = str(Path(__file__).resolve().parents[2])
    paths = [package, *(str(Path(path).absolute()) for path in sys.path if isinstance(path, str))]
    program = f"import sys; sys.path[:] = {paths!r}; from {__name__} import main; main(*{fds})"
    return [sys.executable, *flags, "-c", program]


_workers: list[_Worker] = []
_lock = ThreadLock()


def _forget_workers() -> None:
    """Closes the connections of a forked child process. They belong to its parent."""
    for worker in _workers:
        worker.forget()
    _workers.clear()


def _end_workers() -> None:
    for worker in _workers:
        worker.kill()


atexit.register(_end_workers)
if hasattr(os, "register_at_fork"):  # Windows cannot fork
    os.register_at_fork(after_in_child=_forget_workers)


def main(connection_fd: int, buffer_fd: int) -> None:
    """Answers requests until the other side closes the connection, or has no use for this process.

    A request is `("install", token, sizes)`, followed by the descriptor of the memory that has the object;
    `("call", token, method, sizes)`, with the arguments in the shared buffer; or `("drop", token)`. An answer
    is the sizes of the result in the shared buffer, `None`, or a `PickledError`. `None` has no answer: nobody
    uses the worker any more, and it ends after a minute without requests.

    The arguments and the result each come with the new entries of the caches of the object.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    buffer = SharedBuffer(buffer_fd)
    objects: _Objects = {}
    seconds = None
    with Connection(connection_fd) as connection, suppress(OSError, EOFError):
        while connection.poll(seconds):
            request = connection.recv()
            seconds = _IDLE_SECONDS if request is None else None
            if request is not None:
                connection.send(_answer(request, connection, buffer, objects))


def _answer(request: Any, connection: Connection, buffer: SharedBuffer, objects: _Objects) -> Any:
    try:
        match request:
            case "install", token, sizes:
                snapshot = SharedBuffer(recv_handle(connection))
                with collect_queues() as queues:
                    objects[token] = snapshot.read(sizes, copy=False), queues
            case "drop", token:
                del objects[token]
            case "call", token, method, sizes:
                target, queues = objects[token]
                with _report_pickling():
                    arguments, entries = buffer.read(sizes)
                for queue, batches in zip(queues, entries, strict=True):
                    queue.deliver(batches)
                result = getattr(target, method)(*arguments)
                with _report_pickling():
                    return buffer.write((result, [queue.take() for queue in queues]))
    except Exception as error:
        return pickle_error(error)
    return None


class SharedBuffer:
    """Anonymous memory in which two processes pass values to each other, through its file descriptor.

    A value is pickled, and the arrays in it are stored after the pickle, each at an aligned position. So
    arrays and long strings are copied once on each side, and pass through no pipe.

    Only one process may write at a time, and no other may read then. The memory grows as needed, and is freed
    when the last process has closed it.

    Args:
        fd: descriptor of existing memory, which the buffer then owns; `None` for new memory.

    Attributes:
        fd: the file descriptor.
    """

    def __init__(self, fd: int | None = None) -> None:
        self.fd = os.memfd_create("tokjax") if fd is None else fd
        weakref.finalize(self, os.close, self.fd).atexit = False  # threads may still use it then
        self._map: mmap.mmap | None = None

    def write(self, value: Any) -> list[int]:
        """Writes a value, in place of the one before. Returns the sizes that `read` needs, in bytes."""
        buffers: list[pickle.PickleBuffer] = []
        pickled = pickle.dumps(value, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append)
        parts = [memoryview(pickled), *(buffer.raw() for buffer in buffers)]
        sizes = [part.nbytes for part in parts]
        starts = _compute_starts(sizes)
        if self._map is None or len(self._map) < starts[-1]:
            nbytes = max(_MIN_NBYTES, 2 * starts[-1])  # pages that are not written take no memory
            os.ftruncate(self.fd, nbytes)
            self._map = mmap.mmap(self.fd, nbytes)
        for start, part in zip(starts, parts, strict=False):
            self._map[start : start + part.nbytes] = part
        return sizes

    def read(self, sizes: list[int], *, copy: bool = True) -> Any:
        """Returns the value that another process wrote.

        Args:
            sizes: sizes of the value.
            copy: whether to copy its arrays. Otherwise they stay in the memory, which nobody may write then.
                A page that is changed becomes private to this process, and the others stay shared.
        """
        starts = _compute_starts(sizes)
        if not copy:
            self._map = mmap.mmap(self.fd, 0, access=mmap.ACCESS_COPY)
        elif self._map is None or len(self._map) < starts[-1]:
            self._map = mmap.mmap(self.fd, 0)
        memory = memoryview(self._map)
        parts = [memory[start : start + size] for start, size in zip(starts, sizes, strict=False)]
        return pickle.loads(parts[0], buffers=map(bytearray, parts[1:]) if copy else parts[1:])


def _compute_starts(sizes: list[int]) -> list[int]:
    """Returns the position of each part, and the end of the last."""
    aligned = (-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes)
    return list(accumulate(aligned, initial=0))
