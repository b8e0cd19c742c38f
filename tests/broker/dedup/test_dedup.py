"""Sends that come twice: what is stored, what is answered, what is remembered, and for how long."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from firearrow.broker.dedup.dedup import PASSED_ON, UniqueKeyWindow
from firearrow.broker.dedup.snapshot import FILE, DedupFile
from firearrow.broker.requests.responses import Refused
from firearrow.broker.send.handler import SendHandler
from firearrow.broker.send.replies import PendingReplies
from firearrow.broker.tables.persistence import ConfigFiles
from firearrow.broker.transaction.service import Transactions
from firearrow.net.connection import Connection
from firearrow.wire import batch, properties
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command, FrameDecoder
from firearrow.wire.names import SCHEDULE_TOPIC
from firearrow.wire.record import decode_all
from tests.broker.fake_peer import FakeConnection
from tests.broker.kit import T0, Kit
from tests.broker.running import bodies, broker, client, send_header
from tests.support.waiting import run

Result = tuple[int, int, str]  # queue id, queue offset, message ids


class Story:
    """A broker's send path on a real store. `reopened` is another one on what it has on its disk, as after kill -9."""

    def __init__(self, root: Path, *, now_ms: int = T0, **options: Any) -> None:
        self.root, self.options = root, options
        self.kit = Kit(root, **({"message_delay_level": "1s 5s"} | options))
        self.kit.now = now_ms
        self.store = self.kit.store
        self.delay = self.kit.delay
        self.kit.topic("Orders")
        self.replies = PendingReplies()
        self.sends = SendHandler(self.kit.context, Transactions(self.kit.context, now_ms), self.replies)
        self.config = ConfigFiles(self.store.disk, str(root / "store" / "config"))
        self.file = DedupFile(self.sends.dedup, self.store, self.config)
        self.file.load(now_ms)
        self.peer = FakeConnection(4711)
        self.flag = 0  # of the requests

    def send(
        self, number: int | None, body: bytes = b"x", *, producer: str = "p", topic: str = "Orders", queue: int = 0, **names: str
    ) -> Result:
        if number is not None:
            names |= {"__PRODUCER_ID": producer, "__PRODUCER_SEQ": str(number)}
        result = self.start(body, topic=topic, queue=queue, **names)
        self.end_round()
        return result

    def start(self, body: bytes, *, topic: str = "Orders", queue: int = 0, **names: str) -> Result:
        """A send whose round is not over yet."""
        return self.request(RequestCode.SEND_MESSAGE_V2, send_header(topic, queue, properties.encode(names).decode()), body)

    def send_batch(self, *messages: tuple[bytes, dict[str, str]], queue: int = 0) -> Result:
        whole = batch.join([(0, body, properties.encode(names)) for body, names in messages])
        result = self.request(RequestCode.SEND_BATCH_MESSAGE, send_header("Orders", queue, "", batch="true"), whole)
        self.end_round()
        return result

    def request(self, code: int, ext: dict[str, Any], body: bytes) -> Result:
        request = Command(code, opaque=77, version=513, flag=self.flag, ext=ext, body=body)
        self.sends.send(cast(Connection, self.peer), request, self.kit.now)
        (answer,) = FrameDecoder().feed(self.replies.on_ack.pop().data)
        assert answer.code == ResponseCode.SUCCESS
        return int(answer.ext["queueId"]), int(answer.ext["queueOffset"]), answer.ext["msgId"]

    def end_round(self) -> None:
        self.store.write_out()
        self.store.confirm(self.store.flush())

    def at(self, now_ms: int) -> None:
        self.kit.now = now_ms
        while self.delay.tick(now_ms):
            self.end_round()
        self.end_round()

    def stored(self, topic: str = "Orders", queue: int = 0) -> list[bytes]:
        found: list[bytes] = []
        while (result := self.store.get_messages(self.store.queue(topic, queue), len(found), 32)).count:
            found += [record.body for record in decode_all(result.body)]
        return found

    def save(self) -> None:
        self.file.note()
        self.file.save()

    def reopened(self, name: str, *, keep_file: bool = True, **options: Any) -> Story:
        root = self.root / name
        shutil.copytree(self.root / "store", root / "store", ignore=shutil.ignore_patterns("lock"))
        if not keep_file:
            for file in (root / "store" / "config").glob(FILE + "*"):
                file.unlink()
        return Story(root, now_ms=self.kit.now, **(self.options | options))


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    told = Story(tmp_path)
    yield told
    told.kit.close()


def refused(send: Any, *args: Any, **names: Any) -> str:
    with pytest.raises(Refused) as error:
        send(*args, **names)
    assert error.value.code == ResponseCode.MESSAGE_ILLEGAL
    return error.value.remark


# Idempotent producers.


def test_a_number_is_stored_once_and_its_repeat_gets_the_first_result(story: Story) -> None:
    first = story.send(7, b"first")
    story.send(8, b"next")
    assert story.send(7, b"again") == first
    assert story.send(7, b"and again", UNIQ_KEY="of the repeat") == first
    assert story.stored() == [b"first", b"next"]


def test_the_answer_to_a_repeat_names_the_key_of_the_first(story: Story) -> None:
    for names in ({"UNIQ_KEY": "FIRST"}, {"UNIQ_KEY": "SECOND"}):
        raw = properties.encode(names | {"__PRODUCER_ID": "p", "__PRODUCER_SEQ": "1"}).decode()
        request = Command(RequestCode.SEND_MESSAGE_V2, opaque=77, ext=send_header("Orders", 0, raw), body=b"x")
        story.sends.send(cast(Connection, story.peer), request, T0)
        story.end_round()
    keys = [FrameDecoder().feed(reply.data)[0].ext["transactionId"] for reply in story.replies.on_ack]
    assert keys == ["FIRST", "FIRST"]


def test_a_repeat_that_comes_before_the_first_is_written_is_a_repeat_too(story: Story) -> None:
    names: dict[str, Any] = {"__PRODUCER_ID": "p", "__PRODUCER_SEQ": "1"}
    assert story.start(b"first", **names) == story.start(b"again", **names)
    story.end_round()
    assert story.stored() == [b"first"]


def test_producers_and_queues_count_for_themselves(story: Story) -> None:
    story.kit.topic("Other")
    story.send(1, b"a")
    story.send(1, b"b", producer="q")
    story.send(1, b"c", queue=1)
    story.send(1, b"d", topic="Other")
    assert (story.stored(), story.stored(queue=1), story.stored("Other")) == ([b"a", b"b"], [b"c"], [b"d"])


def test_numbers_may_come_in_any_order_and_with_gaps(story: Story) -> None:
    for number in (5, 3, 9, 4, 0, 9, 5, 2**63 - 1, 3):
        story.send(number, b"%d" % number)
    assert story.stored() == [b"5", b"3", b"9", b"4", b"0", b"%d" % (2**63 - 1)]


def test_number_below_the_window_is_rejected(tmp_path: Path) -> None:
    story = Story(tmp_path, idempotent_producer_window=8)
    for number in range(100):
        story.send(number)
    remark = refused(story.send, 50)
    assert "__PRODUCER_SEQ 50" in remark
    assert "the highest is 99" in remark
    for number in range(92, 100):
        story.send(number)
    assert len(story.stored()) == 100
    story.kit.close()


def test_skipped_number_is_accepted_within_the_window(tmp_path: Path) -> None:
    story = Story(tmp_path, idempotent_producer_window=8)
    for number in (*range(90), *range(91, 95)):
        story.send(number)
    story.send(90, b"late")
    assert story.stored()[-1] == b"late"
    story.kit.close()


def test_least_recently_used_producer_is_evicted(tmp_path: Path) -> None:
    story = Story(tmp_path, idempotent_producer_max_num=3)
    for producer in ("a", "b", "c", "a", "d"):
        story.send(1, producer=producer)
    assert len(story.sends.dedup.producers) == 3
    before = len(story.stored())
    for producer in ("c", "a", "d"):
        story.send(1, producer=producer)
    assert len(story.stored()) == before
    story.send(1, producer="b")
    assert len(story.stored()) == before + 1
    story.kit.close()


def test_delayed_message_is_stored_and_delivered_once(story: Story) -> None:
    first = story.send(1, b"later", DELAY="1")
    assert story.send(1, b"later", DELAY="1") == first
    assert len(story.stored(SCHEDULE_TOPIC)) == 1
    story.at(T0 + 1_000)
    assert story.stored() == [b"later"]
    assert story.send(1, b"later", DELAY="1") == first


def test_a_consumers_retries_are_not_repeats(story: Story) -> None:
    names: dict[str, Any] = {"UNIQ_KEY": "U", "RETRY_TOPIC": "Orders"}
    story.send(1, b"x", topic="%RETRY%G", **names)
    story.send(1, b"x", topic="%RETRY%G", **names)
    assert story.stored("%RETRY%G") == [b"x", b"x"]


def test_a_deleted_topic_is_forgotten(story: Story) -> None:
    story.send(1, b"old")
    story.kit.context.topics.delete("Orders", T0)
    story.sends.topic_changed("Orders", None)
    story.store.drop_topic("Orders")
    story.kit.topic("Orders")
    story.send(1, b"new")
    assert story.stored() == [b"new"]
    again = story.reopened("again", keep_file=False)  # the old record is still in the log
    assert again.send(1, b"repeat")[1] == 0
    assert again.stored() == [b"new"]
    again.kit.close()


def numbered(number: int, producer: str = "p") -> dict[str, str]:
    return {"__PRODUCER_ID": producer, "__PRODUCER_SEQ": str(number), "UNIQ_KEY": f"U{number}"}


def test_a_batch_that_comes_again_is_answered_with_its_first_result(story: Story) -> None:
    messages = [(b"%d" % number, numbered(number)) for number in range(3)]
    first = story.send_batch(*messages)
    assert story.send_batch(*messages) == first
    assert story.stored() == [b"0", b"1", b"2"]


def test_only_new_messages_of_a_batch_are_stored(story: Story) -> None:
    _, _, first_ids = story.send_batch((b"0", numbered(0)), (b"1", numbered(1)))
    queue, offset, ids = story.send_batch((b"1", numbered(1)), (b"2", numbered(2)), (b"plain", {}), (b"0", numbered(0)))
    assert story.stored() == [b"0", b"1", b"2", b"plain"]
    assert (queue, offset) == (0, 1)
    assert [ids.split(",")[0], ids.split(",")[3]] == [first_ids.split(",")[1], first_ids.split(",")[0]]


def test_a_batch_with_one_number_twice_is_refused(story: Story) -> None:
    assert "twice" in refused(story.send_batch, (b"0", numbered(0)), (b"0", numbered(0)))
    assert story.stored() == []


# Unique keys.


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[Story]:
    told = Story(tmp_path, deduplicate_uniq_key_window_ms=1_000)
    yield told
    told.kit.close()


def test_keys_may_repeat_without_the_setting(story: Story) -> None:
    story.send(None, UNIQ_KEY="U")
    story.send(None, UNIQ_KEY="U")
    assert len(story.stored()) == 2


def test_message_forwarded_twice_is_stored_once(story: Story) -> None:
    story.flag = PASSED_ON
    first = story.send(None, b"first", UNIQ_KEY="U")
    assert story.send(None, b"again", UNIQ_KEY="U") == first
    several = story.send_batch((b"a", {"UNIQ_KEY": "A"}), (b"b", {"UNIQ_KEY": "B"}))
    assert story.send_batch((b"a", {"UNIQ_KEY": "A"}), (b"b", {"UNIQ_KEY": "B"})) == several
    assert story.stored() == [b"first", b"a", b"b"]
    story.flag = 0
    assert story.send(None, b"from a client", UNIQ_KEY="U") != first
    story.flag = PASSED_ON
    story.kit.now += 10_001
    assert story.send(None, b"much later", UNIQ_KEY="U") != first


def test_a_key_that_comes_again_within_the_window_is_a_repeat_on_any_queue(keyed: Story) -> None:
    first = keyed.send(None, b"first", UNIQ_KEY="U")
    keyed.kit.now = T0 + 1_000
    assert keyed.send(None, b"again", UNIQ_KEY="U", queue=1) == first
    assert (keyed.stored(), keyed.stored(queue=1)) == ([b"first"], [])
    keyed.kit.now = T0 + 1_001
    assert keyed.send(None, b"another", UNIQ_KEY="U", queue=1) != first
    assert keyed.stored(queue=1) == [b"another"]


def test_keys_are_per_topic_and_ignore_retries(keyed: Story) -> None:
    keyed.kit.topic("Other")
    for topic in ("Orders", "Other", "%RETRY%G", "%RETRY%G"):
        keyed.send(None, topic=topic, UNIQ_KEY="U")
    assert (len(keyed.stored()), len(keyed.stored("Other")), len(keyed.stored("%RETRY%G"))) == (1, 1, 2)


def test_messages_without_a_key_of_their_own_are_all_different(keyed: Story) -> None:
    keyed.send(None)
    keyed.send(None)
    keyed.send_batch((b"x", {}), (b"x", {}))
    assert len(keyed.stored()) == 4


def test_a_batch_of_known_keys_is_a_repeat(keyed: Story) -> None:
    messages = [(b"%d" % number, {"UNIQ_KEY": f"U{number}"}) for number in range(3)]
    first = keyed.send_batch(*messages)
    assert keyed.send_batch(*messages, queue=2) == first
    assert (len(keyed.stored()), len(keyed.stored(queue=2))) == (3, 0)


def test_a_key_in_flight_is_a_repeat_too(keyed: Story) -> None:
    assert keyed.start(b"first", UNIQ_KEY="U") == keyed.start(b"again", UNIQ_KEY="U", queue=1)
    keyed.end_round()
    assert (keyed.stored(), keyed.stored(queue=1)) == ([b"first"], [])


def test_keys_of_the_window_are_known_again_after_a_kill(keyed: Story) -> None:
    old = keyed.send(None, b"old", UNIQ_KEY="OLD")
    keyed.kit.now = T0 + 900
    first = keyed.send(None, b"first", UNIQ_KEY="U", queue=1)
    later = keyed.send(None, b"later", UNIQ_KEY="D", DELAY="2")
    keyed.kit.now = T0 + 1_500
    again = keyed.reopened("again")
    assert again.send(None, UNIQ_KEY="U") == first
    assert again.send(None, UNIQ_KEY="D", DELAY="2") == later
    assert again.send(None, UNIQ_KEY="OLD") != old
    assert (again.stored(queue=1), len(again.stored(SCHEDULE_TOPIC, 1))) == ([b"first"], 1)
    again.kit.close()


def test_delivery_of_a_held_message_is_not_a_repeat(keyed: Story) -> None:
    keyed.send(None, b"later", UNIQ_KEY="D", DELAY="1")
    keyed.at(T0 + 1_500)
    assert keyed.stored() == [b"later"]
    for one in (keyed, again := keyed.reopened("again")):
        one.send(None, b"new", UNIQ_KEY="D")
        assert one.stored() == [b"later", b"new"]
    again.kit.close()


def test_keys_are_bounded_in_number_and_time() -> None:
    window = UniqueKeyWindow(1_000, 10)
    for number in range(100):
        assert window.find(b"%d" % number, T0) is None
        window.add(b"%d" % number, number, T0)
        assert len(window) <= 10
    assert window.find(b"99", T0) == 99
    assert window.find(b"99", T0 + 5_000) is None
    assert len(window) == 0


# Over sockets.


def test_lost_replies_are_repeated_also_after_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
        names: dict[str, Any] = {"__PRODUCER_ID": "p", "UNIQ_KEY": "U"}
        async with broker(tmp_path, flush="SYNC_FLUSH") as running, client(running) as c:
            sends = [c.send("Orders", b"%d" % n, **names, __PRODUCER_SEQ=str(n)) for n in (1, 2, 1, 2, 3)]
            first = await asyncio.gather(*sends)
            assert [answer.ext["queueOffset"] for answer in first] == ["0", "1", "0", "1", "2"]
        async with broker(tmp_path, flush="SYNC_FLUSH") as running, client(running) as c:
            again = await c.send("Orders", b"2", **names, __PRODUCER_SEQ="2")
            assert (again.ext["queueOffset"], again.ext["msgId"][16:]) == ("1", first[1].ext["msgId"][16:])
            c.channel.oneway(
                RequestCode.SEND_MESSAGE_V2,
                send_header("Orders", 0, properties.encode(names | {"__PRODUCER_SEQ": "3"}).decode()),
                b"3",
            )
            assert bodies(await c.pull("Orders", 0)) == [b"1", b"2", b"3"]
            await c.send("Orders", b"4", **names, __PRODUCER_SEQ="4")
            assert bodies(await c.pull("Orders", 0)) == [b"1", b"2", b"3", b"4"]

    run(story())


@pytest.mark.parametrize("kind", [{"TIMER_DELAY_SEC": "60"}, {"TRAN_MSG": "true", "PGROUP": "P"}, {"DELAY": "3"}])
def test_held_message_is_stored_once_and_answered_alike(tmp_path: Path, kind: dict[str, str]) -> None:
    async def story() -> None:
        names: dict[str, Any] = {"__PRODUCER_ID": "p", "__PRODUCER_SEQ": "5", "UNIQ_KEY": "U"} | kind
        async with broker(tmp_path) as running, client(running) as c:
            first, again = await asyncio.gather(*(c.send("Orders", b"x", queue_id=3, **names) for _ in range(2)))
            end = running.context.store.max_offset
            late = await c.send("Orders", b"x", queue_id=3, **names)
            assert first.ext["queueId"] == "3"
            assert first.ext == again.ext == late.ext
            assert ("recallHandle" in first.ext) == ("TIMER_DELAY_SEC" in kind)
            assert running.context.store.max_offset == end
        async with broker(tmp_path) as running, client(running) as c:
            restarted = await c.send("Orders", b"x", queue_id=3, **names)
            assert restarted.ext | {"msgId": ""} == first.ext | {"msgId": ""}
            assert restarted.ext["msgId"][16:] == first.ext["msgId"][16:]

    run(story())
