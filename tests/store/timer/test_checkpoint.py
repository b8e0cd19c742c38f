"""Timer checkpoint: Apache's fields and ours."""

from __future__ import annotations

import pytest

from firearrow.store.atomic_file import PAGE_SIZE
from firearrow.store.timer.checkpoint import TimerCheckpoint, load_timer_checkpoint, save_timer_checkpoint
from tests.store.archives import manifest, unpack
from tests.store.simdisk import SimulatedDisk


@pytest.mark.parametrize("case", ["a-clean", "b-crash"])
def test_apache_page_is_decoded_and_encoded(tmp_path_factory: pytest.TempPathFactory, case: str) -> None:
    page = (unpack(case, tmp_path_factory.mktemp("store")) / "config" / "timercheck").read_bytes()
    told = manifest(case)["timer"]["check"]
    check = TimerCheckpoint.decode(page)
    names = (
        "lastReadTimeMs", "lastTimerLogFlushPos", "lastTimerQueueOffset", "masterTimerQueueOffset",
        "stateVersion", "timestamp", "counter",
    )  # fmt: skip
    fields = (
        check.read_time_ms, check.log_position, check.queue_offset, check.master_queue_offset,
        check.state_version, check.timestamp_ms, check.counter,
    )  # fmt: skip
    assert fields == tuple(told[name] for name in names)
    assert not check.is_ours
    assert check.encode()[:256] == page[:256]
    assert len(check.encode()) == len(page) == PAGE_SIZE


def test_our_fields_are_invalid_after_apache_wrote_the_page() -> None:
    ours = TimerCheckpoint(1, 2, 3, 4, 5, 6, 7, 1000, True)
    assert TimerCheckpoint.decode(ours.encode()) == ours
    page = bytearray(ours.encode())
    page[0:8] = (99).to_bytes(8, "big")
    theirs = TimerCheckpoint.decode(bytes(page))
    assert (theirs.read_time_ms, theirs.is_ours, theirs.clean) == (99, False, False)


def test_saved_checkpoint_is_durable() -> None:
    disk = SimulatedDisk()
    assert load_timer_checkpoint(disk, "/timercheck") is None
    save_timer_checkpoint(disk, "/timercheck", TimerCheckpoint(5, precision_ms=100))
    assert load_timer_checkpoint(disk, "/timercheck") == TimerCheckpoint(5, precision_ms=100)


@pytest.mark.parametrize("data", [b"", b"\xff", bytes(4096)])
def test_short_or_empty_page_has_zero_fields(data: bytes) -> None:
    check = TimerCheckpoint.decode(data)
    assert not check.is_ours
    assert not check.clean


def test_encoded_fields_are_apaches_only() -> None:
    fields = TimerCheckpoint(1, 2, 3, 4, 5, 6, 7, 1000, True).encode_fields()
    assert fields == b"".join(number.to_bytes(8, "big") for number in range(1, 8))
