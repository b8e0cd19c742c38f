"""Transactions that a broker is killed under, and the book of how each must end.

Every message is bound to be committed or rolled back from the moment it is sent. Its producer says so at once, later, twice, or
only when it is asked. Some of them are delayed once they are committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from dataclasses import dataclass, field

from firearrow.net.channel import Channel
from firearrow.wire import fastjson, properties
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command
from firearrow.wire.record import decode, decode_all

TOPIC, QUEUES, GROUP = "CrashTransactions", 2, "crash-producers"
COMMIT, ROLLBACK = 8, 12


@dataclass
class ExpectationLedger:
    rng: random.Random
    delayed_share: float = 0.0
    pause_s: float = 0.0  # of a producer after each message
    fates: dict[str, int] = field(default_factory=dict)  # of every message that was sent
    delayed: set[str] = field(default_factory=set)  # to be delivered a second after they are committed
    acknowledged: set[str] = field(default_factory=set)
    asked: int = 0

    def new_message(self) -> tuple[str, int]:
        key = f"t{len(self.fates)}"
        self.fates[key] = self.rng.choice([COMMIT, COMMIT, ROLLBACK])
        return key, self.fates[key]


class Producer:
    """One connection of the producer group; `share` of the questions it is asked are answered."""

    def __init__(self, book: ExpectationLedger, share: float) -> None:
        self.book = book
        self.share = share
        self.late: set[asyncio.Task[None]] = set()

    async def connect(self, address: str) -> None:
        self.channel = await Channel.connect(address, on_request=self._asked)
        heartbeat = {"clientID": f"client-{id(self)}", "producerDataSet": [{"groupName": GROUP}], "consumerDataSet": []}
        await self.channel.request(RequestCode.HEART_BEAT, {}, fastjson.dumps(heartbeat))

    async def work(self) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                await self._one_transaction()
                await asyncio.sleep(self.book.pause_s)

    async def _one_transaction(self) -> None:
        rng = self.book.rng
        key, fate = self.book.new_message()
        names = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": key, "fate": str(fate)}
        if rng.random() < self.book.delayed_share:
            self.book.delayed.add(key)
            names["DELAY"] = "1"
        ext = {
            "a": GROUP, "b": TOPIC, "c": "TBW102", "d": str(QUEUES), "e": str(rng.randrange(QUEUES)), "f": "4",
            "g": str(time.time_ns() // 1_000_000), "h": "0", "i": properties.encode(names).decode(), "j": "0", "k": "false",
        }  # fmt: skip
        body = key.encode() + b" " + b"x" * rng.randrange(1000)
        answer = await self.channel.request(RequestCode.SEND_MESSAGE_V2, ext, body, timeout_ms=10_000)
        if answer.code == ResponseCode.SYSTEM_BUSY:  # a broker on a busy machine may refuse a send for a moment
            await asyncio.sleep(0.05)
            return
        assert answer.code == 0, answer
        self.book.acknowledged.add(key)
        place = {"tranStateTableOffset": answer.ext["queueOffset"], "commitLogOffset": str(int(answer.ext["msgId"][16:], 16))}
        how = rng.random()
        if how < 0.6:
            self._decide(key, fate, place)
        elif how < 0.7:
            self._decide(key, fate, place)
            self._decide(key, fate, place)
        elif how < 0.9:
            task = asyncio.create_task(self._decide_later(key, fate, place, rng.uniform(0.1, 1.0)))
            self.late.add(task)
            task.add_done_callback(self.late.discard)

    async def _decide_later(self, key: str, fate: int, place: dict[str, str], delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        with contextlib.suppress(ConnectionError):
            self._decide(key, fate, place)

    def _decide(self, key: str, fate: int, place: dict[str, str], *, check: bool = False) -> None:
        ext = {"producerGroup": GROUP, "commitOrRollback": str(fate), "fromTransactionCheck": str(check).lower(), "msgId": key}
        self.channel.oneway(RequestCode.END_TRANSACTION, ext | place)

    def _asked(self, channel: Channel, request: Command) -> None:
        if request.code != RequestCode.CHECK_TRANSACTION_STATE:
            return
        self.book.asked += 1
        if self.book.rng.random() < self.share:
            key = decode(request.body).body.split(b" ")[0].decode()
            place = {name: str(request.ext[name]) for name in ("tranStateTableOffset", "commitLogOffset")}
            self._decide(key, self.book.fates[key], place, check=True)


async def until_nothing_is_open(channel: Channel) -> None:
    half = {"topic": "RMQ_SYS_TRANS_HALF_TOPIC", "queueId": "0"}
    deadline = time.monotonic() + 30
    while True:
        saved = await channel.request(RequestCode.QUERY_CONSUMER_OFFSET, half | {"consumerGroup": "CID_RMQ_SYS_TRANS"})
        end = await channel.request(RequestCode.GET_MAX_OFFSET, half)
        if saved.code == 0 and saved.ext["offset"] == end.ext["offset"]:
            return
        assert time.monotonic() < deadline, f"half messages are still open: {saved.ext} of {end.ext}"
        await asyncio.sleep(0.1)


async def delivered_messages(channel: Channel) -> Counter[str]:
    found: Counter[str] = Counter()
    for queue_id in range(QUEUES):
        offset, end = 0, 1
        while offset < end:
            ext = {
                "consumerGroup": "reader", "topic": TOPIC, "queueId": str(queue_id), "queueOffset": str(offset),
                "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*",
                "subVersion": "0",
            }  # fmt: skip
            answer = await channel.request(RequestCode.PULL_MESSAGE, ext)
            assert answer.code == 0, answer
            found.update(record.body.split(b" ")[0].decode() for record in decode_all(answer.body))
            offset, end = int(answer.ext["nextBeginOffset"]), int(answer.ext["maxOffset"])
    return found


def verify(book: ExpectationLedger, delivered: Counter[str]) -> None:
    """Once for each that was committed; those that were delayed at least once: a crash may repeat a delivery."""
    for key, count in delivered.items():
        assert book.fates[key] == COMMIT, f"{key} was rolled back, and is delivered"
        assert count == 1 or key in book.delayed, f"{key} is delivered {count} times"
    lost = [key for key in book.acknowledged if book.fates[key] == COMMIT and key not in delivered]
    assert lost == [], f"{len(lost)} committed messages were not delivered"
