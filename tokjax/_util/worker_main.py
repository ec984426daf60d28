"""Main program of a worker process. See `worker_processes`.

A request is `("install", token, sizes)`, with the descriptor of the memory that has the object;
`("call", token, method, sizes)`, with the arguments in the shared buffer; or `("drop", token)`. An answer is
the sizes of the result in the shared buffer, `None`, or a `WorkerError`. `("rest",)` has no answer: nobody
uses the worker any more, and it ends after a minute without requests.

The arguments and the result each come with the new entries of the caches of the object (`cache_exchange`).
"""

from __future__ import annotations

import pickle
import select
import signal
import socket
from contextlib import suppress
from typing import Any, NamedTuple

from tokjax._util.cache_exchange import EntryQueue, collect_queues
from tokjax._util.executors import PickledError, pickle_error
from tokjax._util.shared_buffers import SharedBuffer

_IDLE_SECONDS = 60.0
_LENGTH_BYTES = 8


class _Installed(NamedTuple):
    """Copy of an object.

    Attributes:
        target: the copy.
        queues: queue of each of its caches, with the entries that are new to the other process.
    """

    target: Any
    queues: list[EntryQueue]


class WorkerError(NamedTuple):
    """Answer to a request that raised an error.

    Attributes:
        error: the error.
        step: what raised it: `"arguments"`, which can't be unpickled, `"method"`, or `"result"`, which can't
            be pickled.
    """

    error: PickledError
    step: str


def main(socket_fd: int, buffer_fd: int) -> None:
    """Answers requests until the other side closes the connection, or has no use for this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    buffer, objects = SharedBuffer(buffer_fd), dict[int, _Installed]()
    seconds = None
    with socket.socket(fileno=socket_fd) as connection, suppress(OSError, EOFError):
        while select.select([connection], [], [], seconds)[0]:
            request, fd = receive(connection)
            is_resting = request == ("rest",)
            seconds = _IDLE_SECONDS if is_resting else None
            if not is_resting:
                send(connection, _answer(request, fd, buffer, objects))


def _answer(request: Any, fd: int | None, buffer: SharedBuffer, objects: dict[int, _Installed]) -> Any:
    step = "arguments"
    try:
        match request:
            case "install", token, sizes:
                with collect_queues() as queues:
                    objects[token] = _Installed(SharedBuffer(fd).map_value(sizes), queues)
            case "drop", token:
                del objects[token]
            case "call", token, method, sizes:
                target, queues = objects[token]
                arguments, entries = buffer.read(sizes)
                step = "method"
                for queue, batches in zip(queues, entries, strict=True):
                    queue.deliver(batches)
                result = getattr(target, method)(*arguments)
                step = "result"
                return buffer.write((result, [queue.take() for queue in queues]))
    except Exception as error:
        return WorkerError(pickle_error(error), step)
    return None


def send(connection: socket.socket, message: Any, fd: int | None = None) -> None:
    """Sends a small value, and a file descriptor if there is one."""
    data = pickle.dumps(message)
    header = len(data).to_bytes(_LENGTH_BYTES, "little")
    if fd is None:
        connection.sendall(header + data)
    else:
        socket.send_fds(connection, [header], [fd])
        connection.sendall(data)


def receive(connection: socket.socket) -> tuple[Any, int | None]:
    """Receives a value, and a file descriptor or `None`.

    Raises:
        EOFError: the connection was closed.
    """
    header, fds, _, _ = socket.recv_fds(connection, _LENGTH_BYTES, 1)
    header += _receive_exactly(connection, _LENGTH_BYTES - len(header)) if header else b""
    if not header:
        raise EOFError
    data = _receive_exactly(connection, int.from_bytes(header, "little"))
    return pickle.loads(data), fds[0] if fds else None


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)
