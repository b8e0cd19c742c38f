"""Clients that come and go leave nothing behind: memory, threads, descriptors and objects stay as they are.

FIREARROW_LEAK_CYCLES says how many cycles there are: 200 in an ordinary run; an hour's worth, at one a second, is 3600.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance import servers

CYCLES = int(os.environ.get("FIREARROW_LEAK_CYCLES", "200"))
ROOT = Path(__file__).parents[2]
# An allocator's own ups and downs; at 3600 cycles that is little more than half a kilobyte for each.
MEMORY_KB = 2048


@pytest.mark.slow
@pytest.mark.timeout(120 + 2 * CYCLES)
def test_memory_threads_and_descriptors_stay_flat(tmp_path: Path) -> None:
    cluster = servers.start_firearrow(tmp_path, {"flushDiskType": "ASYNC_FLUSH"})
    try:
        command = [sys.executable, "-m", "tests.client.leak_cycles", cluster.namesrv, str(CYCLES)]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True, timeout=100 + 2 * CYCLES)
    finally:
        cluster.kill()
    assert ended.returncode == 0, ended.stderr[-4000:]
    samples = [json.loads(line) for line in ended.stdout.splitlines()]
    for one in samples:
        print({name: value for name, value in one.items() if name != "objects"}, sum(one["objects"].values()))
    assert samples[-1]["cycle"] == CYCLES
    # Until then caches fill, and the interpreter's pools take their size.
    settled = samples[len(samples) // 2]
    last = samples[-1]
    assert last["objects"] == settled["objects"]
    assert last["threads"] == settled["threads"]
    assert last["descriptors"] == settled["descriptors"]
    assert last["rss_kb"] - settled["rss_kb"] < MEMORY_KB, [one["rss_kb"] for one in samples]
