"""Offsets in a file, in Apache's format."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from firearrow.client.consumer.offset_store import LocalOffsets
from firearrow.client.message import MessageQueue

Q0, Q1 = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)


def store(directory: Path) -> LocalOffsets:
    return LocalOffsets("10.0.0.1@DEFAULT", "g", directory)


def read(offsets: LocalOffsets, queue: MessageQueue) -> int | None:
    return asyncio.run(offsets.read(queue))


def test_offsets_survive(tmp_path: Path) -> None:
    offsets = store(tmp_path)
    assert read(offsets, Q0) is None
    offsets.note(Q0, 5)
    offsets.note(Q1, 8)
    offsets.note(Q0, 3, only_forward=True)
    assert (offsets.noted(Q0), offsets.noted(Q1)) == (5, 8)
    assert read(store(tmp_path), Q0) is None, "noted is not saved"
    asyncio.run(offsets.persist([Q0]))
    assert (read(store(tmp_path), Q0), read(store(tmp_path), Q1)) == (5, None)
    asyncio.run(offsets.persist([Q0, Q1]))
    assert (read(store(tmp_path), Q0), read(store(tmp_path), Q1)) == (5, 8)
    assert offsets.table("T") == {Q0: 5, Q1: 8}
    assert offsets.table("U") == {}


def test_file_has_apaches_path_and_format(tmp_path: Path) -> None:
    offsets = store(tmp_path)
    offsets.note(Q0, 128)
    asyncio.run(offsets.persist([Q0]))
    text = (tmp_path / "10.0.0.1@DEFAULT" / "g" / "offsets.json").read_text()
    assert "".join(text.split()) == '{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:128}}'


@pytest.mark.parametrize(
    "text",
    [
        '{\n\t"offsetTable":{{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":0,\n\t\t\t"topic":"T"\n\t\t}:128\n\t}\n}',
        '{"offsetTable":{{"topic":"T","brokerName":"broker-a","queueId":0}:128}}',
    ],
)
def test_file_of_apaches_client_is_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "10.0.0.1@DEFAULT" / "g" / "offsets.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert read(store(tmp_path), Q0) == 128


def test_backup_replaces_a_damaged_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    offsets = store(tmp_path)
    for offset in (1, 2):
        offsets.note(Q0, offset)
        asyncio.run(offsets.persist([Q0]))
    assert read(store(tmp_path), Q0) == 2
    offsets.path.write_text('{"offsetTable":{{"brok')
    assert read(store(tmp_path), Q0) == 1
    assert "damaged" in caplog.text
    offsets.path.unlink()
    assert read(store(tmp_path), Q0) == 1, "a crash between the two renames"


def test_write_error_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    offsets = store(tmp_path / "elsewhere")
    offsets.path = tmp_path / "file" / "offsets.json"
    offsets.note(Q0, 1)
    asyncio.run(offsets.persist([Q0]))
    assert "saving offsets to" in caplog.text
    assert offsets.noted(Q0) == 1
