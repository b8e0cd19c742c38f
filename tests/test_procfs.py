"""Resource usage from /proc."""

from __future__ import annotations

import os
import time

from firearrow import procfs


def test_usage_of_this_process_is_plausible() -> None:
    usage = procfs.read_usage()
    assert usage is not None
    assert usage.open_files > 2
    assert 1 << 20 < usage.resident_bytes < usage.virtual_bytes
    assert 0 < usage.start_time_s <= time.time()
    other = procfs.read_usage(os.getpid())
    assert other is not None
    assert other.files_limit == usage.files_limit


def test_missing_process_and_unknown_memory_name_give_none() -> None:
    assert procfs.read_usage(1 << 30) is None
    assert procfs.read_memory("NoSuchName") is None
    assert (procfs.read_memory("MemTotal") or 0) > 1 << 20
