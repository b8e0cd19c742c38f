"""Transactions on a broker that is killed, and the ledger of their expected outcomes.

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
    pause_s: float = 0.0  # pause of a producer after each message
    fates: dict[str, int] = field(default_factory=dict)  # of every sent message
    delayed: set[str] = field(default_factory=set)  # delivered a second after the commit
    acknowledged: set[str] = field(default_factory=set)
    asked: int = 0

    def new_message(self) -> tuple[str, int]:
        key = f"t{len(self.fates)}"
        self.fates[key] = self.rng.choice([COMMIT, COMMIT, ROLLBACK])
        return key, self.fates[key]


class Producer:
    """One connection of the producer group, which answers the given share of transaction checks."""

    def __init__(self, ledger: ExpectationLedger, share: float) -> None:
        self.ledger = ledger
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
                await asyncio.sleep(self.ledger.pause_s)

    async def _one_transaction(self) -> None:
        rng = self.ledger.rng
        key, fate = self.ledger.new_message()
        names = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": key, "fate": str(fate)}
        if rng.random() < self.ledger.delayed_share:
            self.ledger.delayed.add(key)
            names["DELAY"] = "1"
        ext = {
            "a": GROUP, "b": TOPIC, "c": "TBW102", "d": str(QUEUES), "e": str(rng.randrange(QUEUES)), "f": "4",
            "g": str(time.time_ns() // 1_000_000), "h": "0", "i": properties.encode(names).decode(), "j": "0", "k": "false",
        }  # fmt: skip
        body = key.encode() + b" " + b"x" * rng.randrange(1000)
        answer = await self.channel.request(RequestCode.SEND_MESSAGE_V2, ext, body, timeout_ms=10_000)
        if answer.code == ResponseCode.SYSTEM_BUSY:  # a broker on a busy machine may reject a send temporarily
            await asyncio.sleep(0.05)
            return
        assert answer.code == 0, answer
        self.ledger.acknowledged.add(key)
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
        self.ledger.asked += 1
        if self.ledger.rng.random() < self.share:
            key = decode(request.body).body.split(b" ")[0].decode()
            place = {name: str(request.ext[name]) for name in ("tranStateTableOffset", "commitLogOffset")}
            self._decide(key, self.ledger.fates[key], place, check=True)


async def until_nothing_is_open(channel: Channel) -> None:
    half = {"topic": "RMQ_SYS_TRANS_HALF_TOPIC", "queueId": "0"}
    deadline = time.monotonic() + 60
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


def verify(ledger: ExpectationLedger, delivered: Counter[str]) -> None:
    """Check that committed messages were delivered once; delayed ones may be repeated by a crash."""
    for key, count in delivered.items():
        assert ledger.fates[key] == COMMIT, f"{key} was rolled back, and is delivered"
        assert count == 1 or key in ledger.delayed, f"{key} is delivered {count} times"
    lost = [key for key in ledger.acknowledged if ledger.fates[key] == COMMIT and key not in delivered]
    assert lost == [], f"{len(lost)} committed messages were not delivered"
