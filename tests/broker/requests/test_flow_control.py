"""Flow control: when sends are rejected, and with which remark."""

from __future__ import annotations

import time
from pathlib import Path

from firearrow.broker.requests.flow_control import FlowControl
from firearrow.broker.send.ack_policy import DISK_STALL, Stall
from firearrow.broker.settings import BrokerSettings
from firearrow.wire.codes import ResponseCode
from tests.broker.running import broker, client
from tests.support.waiting import run


def disk() -> Stall:
    return DISK_STALL


def flow(**changes: object) -> FlowControl:
    settings = BrokerSettings()
    for name, value in changes.items():
        setattr(settings, name, value)
    return FlowControl(settings)


def test_idle_broker_accepts_sends() -> None:
    assert flow().refusal(1_000, 0, None, disk) is None


def test_sends_after_a_long_iteration_are_rejected() -> None:
    control = flow()
    control.iteration_took(1_000, 1_200)
    assert control.refusal(1_201, 0, None, disk) is None  # 200 ms is the limit, not over it
    control.iteration_took(2_000, 2_201)
    refusal = control.refusal(2_201, 0, None, disk)
    assert refusal is not None
    assert refusal.startswith("[TIMEOUT_CLEAN_QUEUE]")
    assert "201ms" in refusal
    assert "waitTimeMillsInSendQueue is 200" in refusal


def test_sends_after_a_pause_are_accepted() -> None:
    control = flow()
    control.iteration_took(1_000, 3_000)
    assert control.refusal(3_500, 0, None, disk) is None


def test_one_short_iteration_ends_the_rejection() -> None:
    control = flow()
    control.iteration_took(1_000, 3_000)
    control.iteration_took(3_000, 3_001)
    assert control.refusal(3_002, 0, None, disk) is None


def test_broker_fast_failure_enable_false_accepts_sends_after_a_long_iteration() -> None:
    control = flow(broker_fast_failure_enable=False)
    control.iteration_took(1_000, 3_000)
    assert control.refusal(3_001, 0, None, disk) is None


def test_stalled_messages_reject_sends() -> None:
    assert flow().refusal(2_000, 0, 1_000, disk) is None
    refusal = flow().refusal(2_001, 0, 1_000, disk)
    assert refusal is not None
    assert refusal.startswith("[PC_SYNCHRONIZED]")
    assert "1001 ms" in refusal
    assert "the disk has not taken writes" in refusal
    assert "osPageCacheBusyTimeOutMills is 1000" in refusal


def test_policy_may_let_messages_wait() -> None:
    assert flow().refusal(9_000, 0, 1_000, lambda: None) is None


def test_too_many_unanswered_sends_of_a_connection_are_rejected() -> None:
    control = flow(send_thread_pool_queue_capacity=100)
    assert control.refusal(0, 100, None, disk) is None
    refusal = control.refusal(0, 101, None, disk)
    assert refusal is not None
    assert refusal.startswith("[OVERLOAD]")
    assert "101 sends" in refusal
    assert "sendThreadPoolQueueCapacity is 100" in refusal


def test_sends_that_are_repeated_after_the_rejection_are_accepted(tmp_path: Path) -> None:
    """A long iteration rejects the sends that waited in the socket, not those sent in reaction to the rejection."""

    async def scenario() -> None:
        async with broker(tmp_path) as running, client(running) as one:
            await one.send("Orders", b"before")
            now_ms = time.time_ns() // 1_000_000
            running.flow.iteration_took(now_ms - 300, now_ms + 60_000)  # "at once" lasts as long as the test
            waited = await one.send("Orders", b"waited")
            again = await one.send("Orders", b"again")
        assert (waited.code, again.code) == (ResponseCode.SYSTEM_BUSY, ResponseCode.SUCCESS)

    run(scenario())
