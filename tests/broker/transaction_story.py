"""A broker with transactions under a clock that the test turns, and producers that are only names.

story.half(b"x")                      a producer of group P sends half a transaction for Orders; what it was told
story.commit(sent), story.rollback    its decision, as a request that wants an answer
story.at(T0 + 40_000)                 the clock moves there; everything that is due is done
story.asked                           the checks that producers got
story.delivered(), story.messages     what consumers see; what a queue holds
story.reopened(...)                   another broker on what this one has on its disk, as after kill -9
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from firearrow.broker.requests.responses import Refused
from firearrow.broker.send.handler import SendHandler
from firearrow.broker.send.replies import PendingReplies
from firearrow.broker.transaction.service import Transactions
from firearrow.net.connection import Connection
from firearrow.wire import properties
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command, FrameDecoder
from firearrow.wire.names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from firearrow.wire.record import Record, decode, decode_all
from tests.broker.fake_peer import FakeConnection
from tests.broker.kit import T0, Kit, fake

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
TOPIC, QUEUE = "Orders", 2
GROUP = "P"


@dataclass
class Sent:
    """A half message as its producer knows it."""

    queue_offset: int
    log_offset: int
    transaction_id: str
    group: str = GROUP


@dataclass
class Asked:
    producer: FakeConnection
    ext: dict[str, Any]
    record: Record

    def as_sent(self, group: str = GROUP) -> Sent:
        return Sent(int(self.ext["tranStateTableOffset"]), int(self.ext["commitLogOffset"]), self.ext["transactionId"], group)


class TransactionStory:
    def __init__(self, root: Path, *, offsets: dict[str, Any] | None = None, now_ms: int = T0, **settings: Any) -> None:
        self.root = root
        self.settings = settings
        self.kit = Kit(root, **({"message_delay_level": "1s 5s 10s 2h"} | settings))
        self.kit.now = now_ms
        self.store, self.context = self.kit.store, self.kit.context
        self.context.offsets.load(offsets or {})
        self.delay = self.kit.delay
        self.transactions = Transactions(self.context, now_ms)
        self.kit.handlers |= self.transactions.handlers()
        self.kit.topic(TOPIC)
        self.replies = PendingReplies()
        self.sends = SendHandler(self.context, self.transactions, self.replies)
        self.producer = FakeConnection(4567)
        self.numbers = 0

    def close(self) -> None:
        self.kit.close()

    # Producers.

    def connect(self, conn: FakeConnection, group: str = GROUP) -> None:
        self.context.clients.heartbeat_of_producer(cast(Connection, conn), f"client-{conn.peer_port}", group, "JAVA", 513, 1)

    def half(self, body: bytes, *, group: str = GROUP, born_ms: int | None = None, **names: Any) -> Sent:
        """Sends half a transaction; fails if that is refused."""
        answer = self.send(body, group=group, born_ms=born_ms, **names)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert answer.ext["queueId"] == str(QUEUE)
        return Sent(int(answer.ext["queueOffset"]), int(answer.ext["msgId"][16:], 16), answer.ext["transactionId"], group)

    def send(
        self,
        body: bytes,
        *,
        group: str = GROUP,
        born_ms: int | None = None,
        reconsume_times: int = 0,
        sys_flag: int = 4,
        **names: str,
    ) -> Command:
        self.numbers += 1
        known = {"TRAN_MSG": "true", "PGROUP": group, "UNIQ_KEY": f"U{self.kit.now}N{self.numbers}"} | names
        raw = properties.encode({name: value for name, value in known.items() if value}).decode()
        ext = {
            "a": group, "b": TOPIC, "c": "TBW102", "d": "4", "e": str(QUEUE), "f": str(sys_flag),
            "g": str(self.kit.now if born_ms is None else born_ms), "h": "7", "i": raw, "j": str(reconsume_times), "k": "false",
        }  # fmt: skip
        request = Command(RequestCode.SEND_MESSAGE_V2, opaque=77, ext=ext, body=body)
        try:
            self.sends.send(cast(Connection, self.producer), request, self.kit.now)
        except Refused as refused:
            return Command(refused.code, remark=refused.remark)
        self.end_round()
        on_ack, on_write = self.replies.take()
        (answer,) = FrameDecoder().feed((on_ack + on_write)[0].data)
        return answer

    def commit(self, sent: Sent, **more: Any) -> Command:
        return self.end(sent, COMMIT, **more)

    def rollback(self, sent: Sent, **more: Any) -> Command:
        return self.end(sent, ROLLBACK, **more)

    def end(self, sent: Sent, decision: int, **more: Any) -> Command:
        """The broker's answer to a decision."""
        conn = FakeConnection()
        response = self.start_end(sent, decision, conn, **more)
        self.end_round()
        (answer,) = FrameDecoder().feed(response or conn.written[0])
        return answer

    def start_end(self, sent: Sent, decision: int, conn: FakeConnection, *, check: bool = False, **more: Any) -> bytes | None:
        ext = {
            "producerGroup": sent.group, "tranStateTableOffset": str(sent.queue_offset), "commitLogOffset": str(sent.log_offset),
            "commitOrRollback": str(decision), "fromTransactionCheck": str(check).lower(), "msgId": sent.transaction_id,
            "transactionId": sent.transaction_id,
        }  # fmt: skip
        return self.kit.start_raw(RequestCode.END_TRANSACTION, ext | more, b"", conn=conn)

    @property
    def asked(self) -> list[Asked]:
        return [
            Asked(fake(cast(Connection, conn)), dict(ext), decode(body))
            for conn, code, ext, body in self.kit.told
            if code == RequestCode.CHECK_TRANSACTION_STATE
        ]

    # Time and the disk.

    def at(self, now_ms: int) -> None:
        """Moves the clock and does what is due, as the broker's ticks do."""
        self.kit.now = now_ms
        for _ in range(10_000):
            more = self.transactions.tick(now_ms)
            more |= self.delay.tick(now_ms)
            more |= self.end_round()
            if not more:
                return
        raise AssertionError("there was always more to do")

    def through(self, *times_ms: int) -> None:
        for now_ms in times_ms:
            self.at(now_ms)

    def end_round(self) -> bool:
        if self.store.write_out() is None:
            return False
        self.store.confirm(self.store.flush())
        return True

    def saved_offsets(self) -> dict[str, Any]:
        """Return the current content of consumerOffset.json."""
        table = self.context.offsets.wrapper().offset_table
        return {"offsetTable": {key: {str(queue): offset for queue, offset in queues.items()} for key, queues in table.items()}}

    def progress(self) -> tuple[int | None, int | None]:
        query = self.context.offsets.query
        return query("CID_RMQ_SYS_TRANS", TRANS_HALF_TOPIC, 0), query("CID_RMQ_SYS_TRANS", TRANS_OP_HALF_TOPIC, 0)

    def reopened(
        self, root: Path, *, cut: int | None = None, offsets: dict[str, Any] | None = None, now_ms: int | None = None
    ) -> TransactionStory:
        """A broker on a copy of the log, up to `cut` if given; derived files are made again."""
        target = root / "store" / "commitlog"
        shutil.copytree(Path(self.context.store_settings.store_path_root_dir) / "commitlog", target)
        if cut is not None:
            _truncate_log(target, cut)
        saved = self.saved_offsets() if offsets is None else offsets
        return TransactionStory(root, offsets=saved, now_ms=self.kit.now if now_ms is None else now_ms, **self.settings)

    # What there is.

    def delivered(self) -> list[bytes]:
        return [record.body for record in self.messages(TOPIC, QUEUE)]

    def halves(self) -> list[Record]:
        return self.messages(TRANS_HALF_TOPIC, 0)

    def ops(self) -> list[bytes]:
        return [record.body for record in self.messages(TRANS_OP_HALF_TOPIC, 0)]

    def messages(self, topic: str, queue_id: int) -> list[Record]:
        queue = self.store.find_queue(topic, queue_id)
        found: list[Record] = []
        while (result := self.store.get_messages(queue, len(found), 32)).count:
            found += decode_all(result.body)
        return found

    def boundaries(self) -> list[int]:
        """Return the start offsets of the records of the log and the end of the last."""
        found = [0]
        while found[-1] < self.store.confirm_offset:
            raw = self.store.read_record(found[-1])
            assert raw is not None
            found.append(found[-1] + len(raw))
        return found


def _truncate_log(directory: Path, cut: int) -> None:
    (segment,) = directory.iterdir()
    with segment.open("r+b") as file:
        size = segment.stat().st_size
        file.seek(cut)
        file.write(bytes(size - cut))
