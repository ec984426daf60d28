"""Calls that are stopped as by a kill: from one change of the file system on, none is made any more."""

import os
from contextlib import suppress

import pytest

CHANGES = ("fsync", "mkdir", "open", "rename", "replace", "rmdir", "unlink")


class KilledError(BaseException):
    """Raised in place of each change after the kill."""


def run_until_killed(work, point):
    """Calls `work` until it has made so many changes; whether it came so far.

    Nothing is changed after that, also not by cleaning up: files stay as a kill would leave them.
    """
    made, locks = 0, []

    def hooked(name, change):
        def call(*args, **options):
            nonlocal made
            if name != "open" or args[1] & os.O_CREAT:
                if made == point:
                    raise KilledError(name)
                made += 1
            if name == "fsync":
                return None
            result = change(*args, **options)
            if name == "open" and os.fspath(args[0]).endswith(".lock"):
                locks.append(result)
            return result

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in CHANGES:
            patch.setattr(os, name, hooked(name, getattr(os, name)))
        try:
            work()
        except KilledError:
            for descriptor in locks:
                with suppress(OSError):
                    os.close(descriptor)
            return True
    return False


def count_kill_points(work, prepare):
    """Kills `work` at each point in turn, after `prepare`; yields after each kill."""
    point = 0
    while True:
        prepare()
        if not run_until_killed(work, point):
            break
        yield point
        point += 1
    assert point > 5
