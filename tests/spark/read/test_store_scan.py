"""Scans of store directories written by Apache RocketMQ."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from firearrow.spark.errors import SparkOptionError, StoreFileError
from firearrow.spark.options import read_options
from firearrow.store.checkpoint import Checkpoint
from firearrow.wire.record import AT_SYS_FLAG, TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, decode
from tests.spark.plain import row
from tests.store.archives import manifest, unpack

SEGMENT = 1048576


def scan(path: Path, **more: str) -> list[dict[str, Any]]:
    from firearrow.spark.decode.columns import select_columns
    from firearrow.spark.read.store_scan import plan_splits, read_splits

    options = read_options({"path": str(path), **more}, stream=False)
    columns = select_columns(None)
    splits = plan_splits(options)
    return [found for split in splits for batch in read_splits([split], options, columns) for found in batch.to_pylist()]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("a-clean", tmp_path_factory.mktemp("clean"))


def expected(path: Path, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for message in messages:
        offset = message["commitLogOffset"]
        with open(path / "commitlog" / f"{offset // SEGMENT * SEGMENT:020d}", "rb") as file:
            data = os.pread(file.fileno(), message["size"], offset % SEGMENT)
        rows.append(row(decode(data), None))
    return rows


@pytest.mark.parametrize("split", ["1g", "100000", "4999"])
def test_every_record_is_read_once_for_any_split_size(clean: Path, split: str) -> None:
    found = scan(clean, includeSystemTopics="true", maxSplitBytes=split)

    wanted = expected(clean, manifest("a-clean")["messages"])
    assert len(found) == 3037
    assert [one["commitLogOffset"] for one in found] == [one["commitLogOffset"] for one in wanted]
    assert found == wanted


def test_scan_filters_by_topic_pattern_and_time(clean: Path) -> None:
    messages = manifest("a-clean")["messages"]
    middle = messages[len(messages) // 2]["storeTimestamp"]

    one = scan(clean, subscribe="FxA")
    some = scan(clean, subscribePattern="Fx.*", startingTimestamp=str(middle))
    rest = scan(clean, subscribePattern="Fx.*", endingTimestamp=str(middle))

    assert len(one) == sum(message["topic"] == "FxA" for message in messages)
    assert {found["topic"] for found in one} == {"FxA"}
    assert len(some) + len(rest) == sum(message["topic"].startswith("Fx") for message in messages)
    assert some
    assert rest
    assert not {found["topic"] for found in scan(clean)} & {"RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"}


def test_table_ends_at_a_torn_record(tmp_path: Path) -> None:
    path = unpack("c1-torn-tail", tmp_path)
    end = manifest("c1-torn-tail")["apacheRestartedOnACopy"]["commitLogEndAfterRecovery"]

    last = scan(path, includeSystemTopics="true")[-1]

    assert last["commitLogOffset"] + last["storeSize"] == end


def test_first_segment_may_start_at_any_offset(tmp_path: Path) -> None:
    path = unpack("d-retention", tmp_path)
    messages = manifest("d-retention")["messages"]

    found = [one["commitLogOffset"] for one in scan(path, includeSystemTopics="true", maxSplitBytes="100000")]

    assert found == [message["commitLogOffset"] for message in messages]


def test_records_above_the_flushed_offset_are_not_read(clean: Path, tmp_path: Path) -> None:
    path = tmp_path / "store"
    shutil.copytree(clean, path)
    messages = manifest("a-clean")["messages"]
    bound = messages[2000]["commitLogOffset"]
    (path / "checkpoint").write_bytes(Checkpoint(flushed_offset=bound, boot_id=bytes(range(16))).encode())

    assert len(scan(path, includeSystemTopics="true", maxSplitBytes="100000")) == 2000


def test_damage_is_reported_or_skipped(clean: Path, tmp_path: Path) -> None:
    path = tmp_path / "store"
    shutil.copytree(clean, path)
    messages = manifest("a-clean")["messages"]
    at = messages[500]["commitLogOffset"]
    file = path / "commitlog" / f"{0:020d}"
    data = bytearray(file.read_bytes())
    data[at + 4 : at + 8] = b"gone"
    file.write_bytes(data)

    with pytest.raises(StoreFileError, match=rf"{file} is damaged at byte {at} "):
        scan(path, includeSystemTopics="true")
    found = scan(path, includeSystemTopics="true", failOnDataLoss="false")
    assert [one["commitLogOffset"] for one in found] == [
        message["commitLogOffset"] for message in messages if message["n"] != 500
    ]


def test_invalid_store_is_rejected_while_planning(clean: Path, tmp_path: Path) -> None:
    with pytest.raises(SparkOptionError, match="which is not a directory"):
        scan(tmp_path / "nothing")
    with pytest.raises(SparkOptionError, match="which has no commit log"):
        scan(tmp_path)
    with pytest.raises(SparkOptionError, match="the topic 'Nope' is not in the store"):
        scan(clean, subscribe="Nope")

    path = tmp_path / "store"
    shutil.copytree(clean, path)
    first = path / "commitlog" / f"{0:020d}"
    with open(first, "r+b") as file:
        file.write(b"damaged!")
    with pytest.raises(StoreFileError, match=f"{first} does not begin with a record"):
        scan(path)
    os.truncate(first, 1000)
    with pytest.raises(StoreFileError, match=f"{first} has 1000 bytes, other files of this log have {SEGMENT}"):
        scan(path)
    first.unlink()
    (path / "commitlog" / f"{SEGMENT:020d}").rename(first)
    with pytest.raises(StoreFileError, match="the file after"):
        scan(path)


def test_prepared_and_rolled_back_records_are_not_read(clean: Path, tmp_path: Path) -> None:
    path = shutil.copytree(clean, tmp_path / "store")
    messages = [message for message in manifest("a-clean")["messages"] if message["topic"] == "FxA"][:3]
    for message, kind in zip(messages, (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, TRANSACTION_COMMIT), strict=True):
        segment, at = divmod(message["commitLogOffset"], SEGMENT)
        with open(path / "commitlog" / f"{segment * SEGMENT:020d}", "r+b") as file:
            flags = int.from_bytes(os.pread(file.fileno(), 4, at + AT_SYS_FLAG), "big")
            os.pwrite(file.fileno(), (flags | kind).to_bytes(4, "big"), at + AT_SYS_FLAG)

    whole = [one["commitLogOffset"] for one in scan(clean, subscribe="FxA")]
    without = [one["commitLogOffset"] for one in scan(path, subscribe="FxA")]
    with_them = [one["commitLogOffset"] for one in scan(path, subscribe="FxA", includeTransactions="true")]

    assert without == [offset for offset in whole if offset not in [message["commitLogOffset"] for message in messages[:2]]]
    assert with_them == whole
