"""A broker that cannot start leaves a directory that the next start takes for cleanly closed."""

from __future__ import annotations

from pathlib import Path

import pytest

from firearrow.store.errors import StoreError
from tests.broker.running import bodies, broker, client
from tests.support.waiting import run


def test_wrong_file_sizes_and_damaged_tables(tmp_path: Path) -> None:
    topics = tmp_path / "config" / "topics.json"

    async def send_one() -> None:
        async with broker(tmp_path) as running, client(running) as c:
            assert (await c.send("Orders", b"x")).code == 0

    async def start() -> None:
        async with broker(tmp_path):
            pass

    async def start_with_other_size() -> None:
        async with broker(tmp_path, store={"mapped_file_size_consume_queue": 800}):
            pass

    async def read() -> list[bytes]:
        async with broker(tmp_path) as running, client(running) as c:
            return bodies(await c.pull("Orders", 0))

    run(send_one())
    for wrong in (start_with_other_size, start_with_other_size):
        with pytest.raises(StoreError, match="mappedFileSizeConsumeQueue"):
            run(wrong())
        assert not (tmp_path / "abort").exists()
    kept = topics.read_bytes()
    for path in (topics, topics.with_suffix(".json.bak")):
        path.write_bytes(b"{ no table")
    for _ in range(2):
        with pytest.raises(StoreError, match=r"topics\.json"):
            run(start())
        assert not (tmp_path / "abort").exists()
    topics.write_bytes(kept)
    assert run(read()) == [b"x"]
