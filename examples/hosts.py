"""Processes on this machine in the place of hosts, and the log that the first of them writes."""

import json
import multiprocessing
import signal
import socket
import sys


def run_hosts(train, count, *arguments):
    """Calls `train(*arguments, address, count, host)` in a process for each host.

    SIGINT and SIGTERM are passed on to all of them as SIGTERM.
    """
    with socket.create_server(("localhost", 0)) as server:  # finds a free port
        address = f"localhost:{server.getsockname()[1]}"
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=train, args=(*arguments, address, count, i)) for i in range(count)]

    def stop(*_):
        for process in processes:
            process.terminate()

    for process in processes:
        process.start()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    for process in processes:
        process.join()
    if any(process.exitcode not in (0, -signal.SIGTERM) for process in processes):
        sys.exit(f"error: the hosts ended with exit codes {[process.exitcode for process in processes]}")


def open_log(path, num_lines):
    """Opens a file of lines to append to it, and removes the lines after the first `num_lines`."""
    lines = path.read_text("utf-8").splitlines(keepends=True)[:num_lines] if path.exists() else []
    path.write_text("".join(lines), "utf-8")
    return path.open("a", encoding="utf-8")


def read_log(path):
    """Returns the JSON objects of the lines of a file; none if it does not exist."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
