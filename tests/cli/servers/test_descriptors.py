"""A broker process whose file descriptors clients try to use up."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.raw_client import Link, make_topic, patiently, send_ext
from tests.support.waiting import PATIENCE_S

LIMIT = 300


@pytest.mark.slow
def test_idle_connections_leave_descriptors_for_the_log_and_for_clients(tmp_path: Path) -> None:
    script = f"ulimit -n {LIMIT}; exec {sys.executable} -m firearrow.cli broker --ready-file - --log-level error"
    settings = ("listenPort=0", "mappedFileSizeCommitLog=1048576", "brokerIP1=127.0.0.1", f"storePathRootDir={tmp_path}/store")
    command = script + "".join(f" --set {one}" for one in settings)
    with subprocess.Popen(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            address = json.loads(process.stdout.readline())["brokers"][0]
            asyncio.run(asyncio.wait_for(_fill_segments_among_idle_connections(address), PATIENCE_S))
        finally:
            process.kill()
    assert len(list((tmp_path / "store" / "commitlog").iterdir())) >= 10


async def _fill_segments_among_idle_connections(address: str) -> None:
    first = await Link.connect(address)
    await make_topic(first, "T", 1)
    host, port = address.rsplit(":", 1)
    idle = [socket.create_connection((host, int(port))) for _ in range(2 * LIMIT)]
    late = await asyncio.wait_for(Link.connect(address), 60)
    for _ in range(10):
        for link in (first, late):
            await patiently(link, 310, send_ext("T", 0, "", batched=False), bytes(600_000))
    for one in idle:
        one.close()
    first.close()
    late.close()
