"""When sends are refused, and that the refusal says what was over which limit."""

from __future__ import annotations

import time
from pathlib import Path

from firearrow.broker.requests.flow_control import Flow
from firearrow.broker.settings import BrokerSettings
from firearrow.wire.codes import ResponseCode
from tests.broker.running import broker, client, run


def flow(**changes: object) -> Flow:
    settings = BrokerSettings()
    for name, value in changes.items():
        setattr(settings, name, value)
    return Flow(settings)


def test_an_idle_broker_refuses_nothing() -> None:
    assert flow().refusal(1_000, 0, None) is None


def test_sends_read_right_after_a_long_round_have_waited_and_are_refused() -> None:
    control = flow()
    control.round_took(1_000, 1_200)
    assert control.refusal(1_201, 0, None) is None  # 200 ms is the limit, not over it
    control.round_took(2_000, 2_201)
    refusal = control.refusal(2_201, 0, None)
    assert refusal is not None
    assert refusal.startswith("[TIMEOUT_CLEAN_QUEUE]")
    assert "201ms" in refusal
    assert "waitTimeMillsInSendQueue is 200" in refusal


def test_after_a_pause_nothing_has_waited() -> None:
    control = flow()
    control.round_took(1_000, 3_000)
    assert control.refusal(3_500, 0, None) is None


def test_one_short_round_ends_it() -> None:
    control = flow()
    control.round_took(1_000, 3_000)
    control.round_took(3_000, 3_001)
    assert control.refusal(3_002, 0, None) is None


def test_fast_failure_can_be_switched_off() -> None:
    control = flow(broker_fast_failure_enable=False)
    control.round_took(1_000, 3_000)
    assert control.refusal(3_001, 0, None) is None


def test_a_disk_that_takes_no_writes_for_a_second_refuses_sends() -> None:
    assert flow().refusal(2_000, 0, 1_000) is None
    refusal = flow().refusal(2_001, 0, 1_000)
    assert refusal is not None
    assert refusal.startswith("[PC_SYNCHRONIZED]")
    assert "1001 ms" in refusal
    assert "osPageCacheBusyTimeOutMills is 1000" in refusal


def test_a_connection_may_not_have_too_many_unanswered_sends() -> None:
    control = flow(send_thread_pool_queue_capacity=100)
    assert control.refusal(0, 100, None) is None
    refusal = control.refusal(0, 101, None)
    assert refusal is not None
    assert refusal.startswith("[OVERLOAD]")
    assert "101 sends" in refusal
    assert "sendThreadPoolQueueCapacity is 100" in refusal


def test_after_a_long_round_only_what_has_waited_is_refused(tmp_path: Path) -> None:
    """Not what a producer sends again when it hears of the refusal, a moment later."""

    async def scenario() -> None:
        async with broker(tmp_path) as running, client(running) as one:
            await one.send("Orders", b"before")
            now_ms = time.time_ns() // 1_000_000
            running._dispatch._flow.round_took(now_ms - 300, now_ms + 60_000)  # so that "at once" lasts as long as the test
            waited = await one.send("Orders", b"waited")
            again = await one.send("Orders", b"again")
        assert (waited.code, again.code) == (ResponseCode.SYSTEM_BUSY, ResponseCode.SUCCESS)

    run(scenario())
