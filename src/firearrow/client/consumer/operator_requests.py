"""Requests of operators to a push consumer: its running info (307), and consuming one message directly (309)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from firearrow.client.consumer.listener import Outcome, RetryLater, failure
from firearrow.client.consumer.process_queue import ProcessQueue
from firearrow.client.message import MessageQueue, ReceivedMessage
from firearrow.wire.bodies.client import ConsumeMessageDirectlyResult, QueueBody
from firearrow.wire.codes import VERSION_DESC

MEBIBYTE = 1024 * 1024


async def consume_once(
    call: Callable[[list[ReceivedMessage]], Any], message: ReceivedMessage, *, coroutine: bool, orderly: bool
) -> ConsumeMessageDirectlyResult:
    """Pass a message to the listener and report the outcome, without committing or redelivery."""
    began = time.monotonic()
    outcome: Outcome = None
    if coroutine:
        try:
            await call([message])
        except Exception as error:  # noqa: BLE001 (reported to the operator)
            outcome = failure(error, [message])
    else:
        outcome = await _call_in_thread(call, message)
    spent_ms = int((time.monotonic() - began) * 1000)
    if outcome is None:
        return ConsumeMessageDirectlyResult(orderly, True, "CR_SUCCESS", None, spent_ms)
    result = "CR_LATER" if isinstance(outcome.error, RetryLater) else "CR_THROW_EXCEPTION"
    return ConsumeMessageDirectlyResult(orderly, True, result, f"{type(outcome.error).__name__}: {outcome.error}", spent_ms)


async def _call_in_thread(call: Callable[[list[ReceivedMessage]], Any], message: ReceivedMessage) -> Outcome:
    """Use a separate thread: the workers may all be busy, which the operator may be investigating."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Outcome] = loop.create_future()

    def set_outcome(outcome: Outcome) -> None:
        if not done.done():
            done.set_result(outcome)

    def run() -> None:
        outcome: Outcome = None
        try:
            call([message])
        except BaseException as error:  # noqa: BLE001 (reported to the operator)
            outcome = failure(error, [message])
        loop.call_soon_threadsafe(set_outcome, outcome)

    threading.Thread(target=run, name="firearrow-consume-directly", daemon=True).start()
    return await done


def info_properties(*, name_servers: Iterable[str], orderly: bool, concurrency: int, started_ms: int) -> dict[str, str]:
    return {
        "PROP_CLIENT_VERSION": VERSION_DESC,
        "PROP_CONSUMEORDERLY": "true" if orderly else "false",
        "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
        "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
        "PROP_NAMESERVER_ADDR": ";".join(name_servers),
        "PROP_THREADPOOL_CORE_SIZE": str(concurrency),
    }


def queue_infos(
    queues: Mapping[MessageQueue, ProcessQueue], consumed: Callable[[MessageQueue], int | None]
) -> dict[QueueBody, dict[str, Any]]:
    return {
        QueueBody(queue.topic, queue.broker_name, queue.queue_id): _queue_info(held, consumed(queue))
        for queue, held in sorted(queues.items())
    }


def _queue_info(held: ProcessQueue, consumed: int | None) -> dict[str, Any]:
    oldest = held.oldest()
    return {
        "cachedMsgCount": len(held),
        "cachedMsgMaxOffset": held.newest_offset(),
        "cachedMsgMinOffset": 0 if oldest is None else oldest.queue_offset,
        "cachedMsgSizeInMiB": held.held_bytes // MEBIBYTE,
        "commitOffset": -1 if consumed is None else consumed,
        "droped": held.dropped,  # Apache's spelling
        "lastConsumeTimestamp": held.last_consume_ms,
        "lastLockTimestamp": held.last_lock_ms,
        "lastPullTimestamp": held.last_pull_ms,
        "locked": held.locked,
        "transactionMsgCount": 0,
        "transactionMsgMaxOffset": 0,
        "transactionMsgMinOffset": 0,
        "tryUnlockTimes": 0,
    }
