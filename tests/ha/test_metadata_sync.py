"""Copies of the master's tables into those of a slave."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from firearrow.auth.administration import AuthAdministration
from firearrow.auth.gate import Caller
from firearrow.broker.roles.replication import ReplicationHost
from firearrow.broker.send.group_commit import GroupCommit
from firearrow.broker.tables.persistence import ConfigFiles
from firearrow.ha.metadata_sync import FollowerMetadataSync, MetadataCopy
from firearrow.net.channel import Channel
from firearrow.wire import fastjson
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command
from firearrow.wire.header_schema import Request, request_code, request_fields
from tests.auth.kit import Users
from tests.broker.kit import T0, Kit
from tests.support.waiting import run, until

TOPIC = {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False}


class MasterChannel:
    """A connection to a master: its handlers, except for the responses that the test sets."""

    address = "10.0.0.1:10911"

    def __init__(self, master: Kit) -> None:
        self._master = master
        self.set: dict[int, list[Command]] = {}
        self.asked: list[tuple[int, dict[str, Any]]] = []

    async def call(self, request: Request, *, timeout_ms: int) -> Command:
        code = request_code(request)
        fields: dict[str, Any] = {**(request_fields(request) or {})}
        self.asked.append((code, fields))
        if self.set.get(code):
            return self.set[code].pop(0)
        if code not in self._master.handlers:
            return Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        return self._master.ask(code, **fields)


class Pair:
    def __init__(self, root: Path) -> None:
        self.master, self.slave = Kit(root / "m"), Kit(root / "s", broker_role="SLAVE", broker_id=1, slave_sync_interval=1)
        self.master.now += 1
        self.channel = MasterChannel(self.master)
        self.config = ConfigFiles(self.slave.store.disk, str(root / "s" / "store" / "config"))
        self.host = ReplicationHost(
            context=self.slave.context,
            commit=cast(GroupCommit, None),
            config=self.config,
            now_ms=lambda: T0,
            lead=lambda term: None,
            follow=lambda reason: None,
            serve=lambda conn, request: None,
            set_proxy=lambda wanted: None,
            pause=lambda paused: None,
        )

    def copy(self) -> None:
        run(MetadataCopy(self.host).copy(cast(Channel, self.channel)))

    def has_topic(self, name: str) -> bool:
        return self.slave.context.topics.find(name) is not None


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.master.close()
    made.slave.close()


def test_topics_and_groups_of_the_master_replace_those_of_the_slave(pair: Pair) -> None:
    pair.slave.topic("Stale")
    pair.master.topic("Orders", queues=3)
    pair.master.context.groups.find_or_create("readers")
    pair.copy()
    orders = pair.slave.context.topics.find("Orders")
    assert orders is not None
    assert (orders.topic_name, orders.write_queue_nums, pair.has_topic("Stale")) == ("Orders", 3, False)
    assert "readers" in pair.slave.saved["groups"]["subscriptionGroupTable"]


def test_consumer_offsets_are_merged(pair: Pair) -> None:
    pair.slave.context.offsets.commit("own", "T", 0, 5)
    pair.slave.context.offsets.commit("both", "T", 0, 5)
    pair.master.context.offsets.commit("both", "T", 0, 9)
    pair.copy()
    assert [pair.slave.context.offsets.query(group, "T", 0) for group in ("own", "both")] == [5, 9]


def test_delay_offsets_are_loaded_and_saved(pair: Pair) -> None:
    pair.channel.set[RequestCode.GET_ALL_DELAY_OFFSET] = [Command(0, body=b'{"offsetTable":{1:7}}')]
    pair.copy()
    assert pair.slave.delay.offsets()[:2] == [7, 0]
    assert pair.config.load("delayOffset.json")["offsetTable"] == {"1": 7}


def test_topics_are_read_in_pages(pair: Pair) -> None:
    code = RequestCode.GET_ALL_TOPIC_CONFIG
    pair.channel.set[code] = [a_page("First"), a_page("Second")]
    pair.copy()
    assert [fields["topicSeq"] for asked, fields in pair.channel.asked if asked == code] == ["0", "2000"]
    assert (pair.has_topic("First"), pair.has_topic("Second")) == (True, True)


def a_page(topic: str) -> Command:
    table = {"topicConfigTable": {topic: TOPIC | {"topicName": topic}}, "dataVersion": {"counter": 9}}
    return Command(0, ext={"totalTopicNum": "2001"}, body=fastjson.dumps(table))


@pytest.mark.parametrize("response", [Command(0, body=b"[1]"), Command(0, body=b"{"), Command(1, remark="no")])
def test_table_that_cannot_be_copied_is_skipped(pair: Pair, response: Command) -> None:
    pair.channel.set[RequestCode.GET_ALL_TOPIC_CONFIG] = [response]
    pair.slave.topic("Kept")
    pair.master.context.offsets.commit("G", "T", 0, 9)
    pair.copy()
    assert pair.has_topic("Kept")
    assert pair.slave.context.offsets.query("G", "T", 0) == 9


def fill_with_the_same_log(pair: Pair, messages: int) -> None:
    store, now = pair.master.store, 1_700_000_000_000
    queue = store.queue("Orders", 0)
    host = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
    for number in range(messages):
        store.append(queue, b"%d" % number * 50, b"", 0, flag=0, sys_flag=0, born_ms=now, born_host=host, store_ms=now)
    store.write_out()
    store.confirm(store.flush())
    pair.slave.store.replica.write_raw(store.read_log(0, store.max_offset), 0)
    pair.slave.store.replica.index_new_records()
    pair.slave.store.confirm(pair.slave.store.flush())


def overwrite(pair: Pair, offset: int, data: bytes) -> None:
    store = pair.slave.store
    path = f"{store.settings.commit_log_dir}/{0:020d}"
    with closing(store.disk.open(path)) as file:
        file.pwrite(data, offset)


def test_damaged_records_of_a_slave_are_copied_from_its_master(pair: Pair) -> None:
    fill_with_the_same_log(pair, 10)
    master, slave = pair.master.store, pair.slave.store
    whole = master.read_log(0, master.max_offset)
    entries = [slave.queue("Orders", 0).entry(number) for number in (2, 5)]
    assert entries[0] is not None
    assert entries[1] is not None
    start, end = entries[0][0], entries[1][0] + entries[1][1]
    overwrite(pair, start, bytes(end - start))
    slave.damage.report_range(start, end)
    pair.copy()
    assert slave.read_log(0, slave.max_offset) == whole
    assert slave.damage.ranges == {}


def test_intact_records_of_a_slave_are_not_replaced(pair: Pair) -> None:
    fill_with_the_same_log(pair, 3)
    master, slave = pair.master.store, pair.slave.store
    entry = slave.queue("Orders", 0).entry(1)
    assert entry is not None
    offset, size, _ = entry
    intact = slave.read_log(offset, size)
    assert not slave.replica.repair(offset, intact)
    overwrite(pair, offset + 100, b"?")
    assert not slave.replica.repair(offset, slave.read_log(offset, size))
    assert not slave.replica.repair(offset + 1, intact)
    assert not slave.replica.repair(slave.max_offset, intact)
    assert slave.replica.repair(offset, intact)
    assert slave.read_log(0, slave.max_offset) == master.read_log(0, master.max_offset)


def test_range_that_the_master_does_not_have_is_given_up(pair: Pair) -> None:
    fill_with_the_same_log(pair, 3)
    pair.slave.store.damage.report_range(50, 60)
    copy = MetadataCopy(pair.host)
    for _ in range(5):
        run(copy.copy(cast(Channel, pair.channel)))
    asked = [fields for code, fields in pair.channel.asked if code == RequestCode.VIEW_MESSAGE_BY_ID]
    assert len(asked) == 3
    assert pair.slave.store.damage.ranges == {50: 60}


def test_broker_that_became_master_copies_nothing(pair: Pair) -> None:
    pair.master.topic("Orders")
    pair.slave.context.role.change("SYNC_MASTER", 0)
    pair.copy()
    assert not pair.has_topic("Orders")


def test_unreachable_leader_is_logged_once_and_tried_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[str] = []

    async def connect(address: str, **options: Any) -> Channel:
        attempts.append(address)
        raise OSError("no route to host")

    async def scenario() -> None:
        sync = FollowerMetadataSync(pair.host, lambda: "10.0.0.1:10911")
        sync.start()
        await until(lambda: len(attempts) >= 3)
        await sync.stop()

    monkeypatch.setattr(Channel, "connect", connect)
    with caplog.at_level(logging.WARNING, "firearrow.ha.group"):
        run(scenario())
    (line,) = [record.getMessage() for record in caplog.records if record.name == "firearrow.ha.group"]
    assert "10.0.0.1:10911: no route to host" in line


def test_users_and_policies_are_copied_when_they_change(pair: Pair) -> None:
    master, slave = Users("alice"), Users("stale")
    master.allow("alice", "Topic:a Pub")
    operations = AuthAdministration(master.table).operations()

    async def call(request: Request, *, timeout_ms: int) -> Command:
        asked = Command(request_code(request), ext=dict(request_fields(request)))
        asked.caller = Caller(master.table.principal("root"), "10.0.0.2")
        codes.append(asked.code)
        if asked.code not in operations:
            return Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        answer = operations[asked.code](asked)
        return Command(ResponseCode.SUCCESS, ext=dict(answer.ext or {}), body=answer.body)

    codes: list[int] = []
    channel = cast(Channel, SimpleNamespace(address="10.0.0.1:10911", call=call))
    host = replace(pair.host, context=replace(pair.slave.context, auth=slave.table))
    run(MetadataCopy(host).copy(channel))
    assert slave.table.to_json() == master.table.to_json() == slave.saved
    codes.clear()
    run(MetadataCopy(host).copy(channel))
    assert codes.count(RequestCode.AUTH_GET_USER) == 0
    master.table.delete_user("alice")
    run(MetadataCopy(host).copy(channel))
    assert slave.table.find("alice") is None
