from __future__ import annotations

import asyncio
from pathlib import Path

from firearrow.admin.aio import Admin
from firearrow.admin.doctor import local_process
from firearrow.testing.cluster import AsyncCluster


def test_process_of_this_machine_is_found() -> None:
    async def story() -> None:
        async with AsyncCluster(sockets=True, clock=None) as cluster, Admin(cluster.name_server) as admin:
            host, _, port = (await admin.list_brokers())[0].address.rpartition(":")
            process = local_process.listening(host, int(port))
            assert process is not None
            assert Path(f"/proc/{process.pid}").samefile("/proc/self")
            assert process.open_files > 3
            assert process.resident > 1 << 20
            assert local_process.listening("192.0.2.1", int(port)) is None
            assert local_process.listening(host, 1) is None

    asyncio.run(story())
