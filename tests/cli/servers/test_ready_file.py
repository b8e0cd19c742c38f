from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from firearrow.cli.servers.ready_file import ServerReady, announce

READY = ServerReady(
    "127.0.0.1:9876", [("broker-a", "10.0.0.1:10911"), ("broker-b", "10.0.0.1:10921")], "/data", "ASYNC_FLUSH (may lose)"
)


def test_line_and_file_have_the_same_content(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ready.json"
    announce(READY, str(path))
    assert capsys.readouterr().out == (
        "firearrow ready  namesrv 127.0.0.1:9876  broker-a 10.0.0.1:10911  broker-b 10.0.0.1:10921"
        "  data /data  flush ASYNC_FLUSH (may lose)\n"
    )
    assert json.loads(path.read_text()) == {
        "namesrv": "127.0.0.1:9876",
        "brokers": ["10.0.0.1:10911", "10.0.0.1:10921"],
        "names": ["broker-a", "broker-b"],
        "data": "/data",
        "flush": "ASYNC_FLUSH",
        "pid": os.getpid(),
    }
    assert list(tmp_path.iterdir()) == [path]


def test_dash_is_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    announce(ServerReady(namesrv="a:1"), "-")
    assert json.loads(capsys.readouterr().out)["namesrv"] == "a:1"
