"""Simulation of a kill: from one change of the file system on, no further change is made."""

import gc
import os
from contextlib import suppress

import pytest

CHANGES = ("fsync", "mkdir", "open", "rename", "replace", "rmdir", "unlink")


class KilledError(BaseException):
    """Raised instead of each change after the kill."""


def run_until_killed(function, kill_point):
    """Calls `function` until it has made `kill_point` changes. Returns whether that point was reached.

    Nothing changes after that, not even by `finally` blocks, so the files stay as a kill leaves them. Locks
    are released, because the operating system does that.
    """
    num_changes, lock_descriptors = 0, []

    def make_hook(name, system_call):
        def hook(*args, **options):
            nonlocal num_changes
            if name != "open" or args[1] & os.O_CREAT:
                if num_changes == kill_point:
                    raise KilledError(name)
                num_changes += 1
            if name == "fsync":
                return None
            result = system_call(*args, **options)
            if name == "open" and os.fspath(args[0]).endswith(".lock"):
                lock_descriptors.append(result)
            return result

        return hook

    with pytest.MonkeyPatch.context() as patch:
        for name in CHANGES:
            patch.setattr(os, name, make_hook(name, getattr(os, name)))
        try:
            function()
        except KilledError:
            for descriptor in lock_descriptors:
                with suppress(OSError):
                    os.close(descriptor)
            return True
    return False


def count_kill_points(function, prepare):
    """Kills `function` at each point in turn, after `prepare()`, and yields the point after each kill."""
    gc.collect()  # finalizers of earlier objects, which may delete files, run before the first kill
    kill_point = 0
    while True:
        prepare()
        if not run_until_killed(function, kill_point):
            break
        yield kill_point
        kill_point += 1
    assert kill_point > 5
