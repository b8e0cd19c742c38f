"""A running `firearrow up` for the client commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.process import ANY_PORTS, Start, read_json
from tests.support.waiting import wait_until


@pytest.fixture
def name_server(start: Start, tmp_path: Path) -> str:
    ready = tmp_path / "ready.json"
    start("up", "--data", str(tmp_path / "data"), *ANY_PORTS, "--ready-file", str(ready), "--set", "flushDiskType=ASYNC_FLUSH")
    wait_until(ready.exists, "the ready file")
    return str(read_json(ready)["namesrv"])
