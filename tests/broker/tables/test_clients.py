"""Connected clients. Each test is a transcript of events and notifications."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, cast

from firearrow.broker.settings import BrokerSettings
from firearrow.broker.tables.clients import ClientTable, ToTell
from firearrow.broker.tables.groups import GroupTable
from firearrow.net.connection import Connection
from firearrow.wire import fastjson
from firearrow.wire.bodies.client import ConsumerData, HeartbeatData, SubscriptionData
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command
from tests.broker.fake_peer import FakeConnection
from tests.broker.kit import Kit

TAG_A, TAG_B = 2598919, 2598920


class Story:
    def __init__(self) -> None:
        self.clients = ClientTable()
        self.ports: dict[Connection, str] = {}

    def connect(self, name: str) -> Connection:
        conn = cast(Connection, FakeConnection(40000 + len(self.ports)))
        self.ports[conn] = name
        return conn

    def beat(
        self, conn: Connection, group: str = "G", now_ms: int = 0, model: str = "CLUSTERING", **topics: tuple[str, int]
    ) -> list[str]:
        """Send a heartbeat, topic=(expression, version); return the notified members."""
        wanted = [SubscriptionData(topic, expression, sub_version=version) for topic, (expression, version) in topics.items()]
        data = ConsumerData(group, "CONSUME_PASSIVELY", model, "CONSUME_FROM_LAST_OFFSET", wanted)
        beat = HeartbeatData(self.ports[conn], consumer_data_set=[data])
        to_tell, _ = self.clients.heartbeat_of_consumer(conn, beat, data, "JAVA", 513, now_ms)
        return self.names(to_tell)

    def names(self, to_tell: ToTell) -> list[str]:
        return sorted(self.ports[conn] for conn, _ in to_tell)

    def members(self, group: str = "G") -> list[str]:
        consumers = self.clients.consumer_group(group)
        return [] if consumers is None else sorted(consumers.client_ids())


def test_members_are_notified_when_a_member_joins_or_leaves() -> None:
    story = Story()
    a, b = story.connect("a"), story.connect("b")
    assert story.beat(a, T=("*", 1)) == ["a"]
    assert story.beat(a, T=("*", 1)) == []
    assert story.beat(b, T=("*", 1)) == ["a", "b"]
    assert story.members() == ["a", "b"]
    assert story.names(story.clients.unregister_consumer(a, "G")) == ["b"]
    assert story.members() == ["b"]
    assert story.names(story.clients.disconnected(b)) == []
    assert story.clients.consumer_group("G") is None


def test_closed_connection_is_removed_from_all_groups() -> None:
    story = Story()
    a, b = story.connect("a"), story.connect("b")
    for group in ("G1", "G2"):
        story.beat(a, group, T=("*", 1))
        story.beat(b, group, T=("*", 1))
    story.clients.heartbeat_of_producer(a, "a", "P", "JAVA", 513, 0)
    told = story.clients.disconnected(a)
    assert sorted(group for _, group in told) == ["G1", "G2"]
    assert story.names(told) == ["b", "b"]
    assert story.clients.producers() == {}
    assert story.clients.disconnected(a) == []


def test_broadcasting_groups_are_not_notified() -> None:
    story = Story()
    a, b = story.connect("a"), story.connect("b")
    assert story.beat(a, model="BROADCASTING", T=("*", 1)) == []
    assert story.beat(b, model="BROADCASTING", T=("*", 1)) == []
    assert story.clients.disconnected(a) == []


def test_closed_connection_is_not_registered() -> None:
    story = Story()
    a = story.connect("a")
    a.closed = True
    assert story.beat(a, T=("*", 1)) == []
    story.clients.heartbeat_of_producer(a, "a", "P", "JAVA", 513, 0)
    assert story.members() == []
    assert story.clients.producers() == {}


def test_change_of_topics_notifies_change_of_tags_does_not() -> None:
    story = Story()
    a = story.connect("a")
    story.beat(a, T=("TagA", 1))
    assert story.beat(a, T=("TagB", 2)) == []
    assert story.beat(a, T=("TagB", 2), U=("*", 1)) == ["a"]
    assert story.beat(a, U=("*", 1)) == ["a"]
    assert story.clients.subscription("G", "T") is None


def test_the_newest_subscription_wins() -> None:
    story = Story()
    a, b = story.connect("a"), story.connect("b")
    story.beat(a, T=("TagA", 5))
    story.beat(b, T=("TagB", 4))  # a member that has not heard yet
    assert _expression(story, "T") == "TagA"
    story.beat(b, T=("TagB", 6))
    assert _expression(story, "T") == "TagB"


def test_a_pull_that_is_newer_than_the_heartbeat_is_served_at_once() -> None:
    story = Story()
    a = story.connect("a")
    assert story.clients.subscription_for_pull("G", "T", 1) is None
    story.beat(a, T=("TagA", 5))
    assert story.clients.subscription_for_pull("G", "Other", 1) is None

    same = story.clients.subscription_for_pull("G", "T", 5)
    assert same is not None
    assert story.clients.tag_codes("G", same) == frozenset({TAG_A})
    older = story.clients.subscription_for_pull("G", "T", 0)  # Go clients send 0
    assert older is same

    newer = story.clients.subscription_for_pull("G", "T", 9)  # its heartbeat is still on the way
    assert newer is not None
    assert story.clients.tag_codes("G", newer) is None, "unfiltered: the client compares the tags itself"
    assert _expression(story, "T") == "TagA", "until the heartbeat says what it wants"


def test_a_newer_pull_with_sql_keeps_the_filter_that_is_known() -> None:
    story = Story()
    a = story.connect("a")
    data = ConsumerData("G", subscription_data_set=[SubscriptionData("T", "a > 1", sub_version=5, expression_type="SQL92")])
    story.clients.heartbeat_of_consumer(a, HeartbeatData("a", consumer_data_set=[data]), data, "JAVA", 513, 0)
    served = story.clients.subscription_for_pull("G", "T", 6, "SQL92")
    assert served is not None
    assert served.sub_string == "a > 1"


def test_silent_members_expire_and_the_others_are_notified() -> None:
    story = Story()
    a, b = story.connect("a"), story.connect("b")
    story.beat(a, now_ms=0, T=("*", 1))
    story.beat(b, now_ms=60_000, T=("*", 1))
    story.clients.heartbeat_of_producer(a, "a", "P", "JAVA", 513, 0)
    assert story.clients.tick(120_000) == ([], [])
    told, silent = story.clients.tick(120_001)
    assert (story.names(told), silent) == (["b"], [a])
    assert story.members() == ["b"]
    assert story.clients.producers() == {}


def test_expired_members_are_not_notified() -> None:
    story = Story()
    a, b = story.connect("a"), story.connect("b")
    story.beat(a, T=("*", 1))
    story.beat(b, T=("*", 1))
    told, silent = story.clients.tick(200_000)
    assert told == []
    assert set(silent) == {a, b}


def test_silent_producer_expires_without_closing_its_connection() -> None:
    story = Story()
    a = story.connect("a")
    story.clients.heartbeat_of_producer(a, "a", "P", "JAVA", 513, 0)
    assert story.clients.tick(200_000) == ([], [])
    assert story.clients.producer_group("P") == []


def test_a_client_that_came_back_on_a_new_connection_is_listed_once() -> None:
    story = Story()
    old, new = story.connect("a"), story.connect("a")
    story.beat(old, T=("*", 1), now_ms=0)
    story.beat(new, T=("*", 1), now_ms=9)
    assert story.members() == ["a"]
    consumers = story.clients.consumer_group("G")
    assert consumers is not None
    assert [member.conn for member in consumers.members.values()] == [old, new]
    story.clients.disconnected(old)
    assert story.members() == ["a"]


def test_a_heartbeat_without_subscriptions_keeps_them_and_says_when_it_wants_all() -> None:
    story = Story()
    a = story.connect("a")
    full = ConsumerData("G", subscription_data_set=[SubscriptionData("T", "*", sub_version=1)])
    short = ConsumerData("G")

    def beat(data: ConsumerData, fingerprint: int, without_sub: bool) -> tuple[Any, bool]:
        heartbeat = HeartbeatData("a", consumer_data_set=[data], heartbeat_fingerprint=fingerprint, without_sub=without_sub)
        return story.clients.heartbeat_of_consumer(a, heartbeat, data, "JAVA", 513, 0)

    assert beat(short, 7, True)[1], "nothing is known of this group: send everything"
    assert not beat(full, 7, False)[1]
    assert beat(short, 7, True) == ([], False)
    assert story.clients.subscription("G", "T") is not None
    assert beat(full, 8, False)[1], "another fingerprint than before"
    assert not beat(full, 8, False)[1]


def _expression(story: Story, topic: str) -> str | None:
    found = story.clients.subscription("G", topic)
    return None if found is None else found.sub_string


def owner_of(story: Story, client_id: str) -> Connection | None:
    client = story.clients.find_producer(client_id)
    return None if client is None else client.conn


def test_a_producer_is_found_by_its_client_id() -> None:
    story = Story()
    a = story.connect("a")
    assert owner_of(story, "c") is None
    story.clients.heartbeat_of_producer(a, "c", "P", "JAVA", 513, 1)
    story.clients.heartbeat_of_producer(a, "c", "Q", "JAVA", 513, 1)
    story.clients.unregister_producer(a, "Q")
    assert owner_of(story, "c") is a
    story.clients.heartbeat_of_producer(a, "renamed", "P", "JAVA", 513, 3)
    assert (owner_of(story, "c"), owner_of(story, "renamed")) == (None, a)
    story.clients.disconnected(a)
    assert owner_of(story, "renamed") is None


def test_another_connection_does_not_take_over_the_client_id_of_a_producer() -> None:
    story = Story()
    first, second = story.connect("first"), story.connect("second")
    story.clients.heartbeat_of_producer(second, "other", "P", "JAVA", 513, 0)
    story.clients.heartbeat_of_producer(first, "c", "P", "JAVA", 513, 1)
    # It changes its own id, uses other groups and sends the newer heartbeats.
    for now_ms in range(2, 100_000, 30_000):
        story.clients.heartbeat_of_producer(second, "c", "P", "JAVA", 513, now_ms)
        story.clients.heartbeat_of_producer(second, "c", "Q", "JAVA", 513, now_ms)
        assert owner_of(story, "c") is first
        story.clients.heartbeat_of_producer(first, "c", "R", "JAVA", 513, now_ms)
        story.clients.unregister_producer(first, "P")
        assert owner_of(story, "c") is first


def test_a_producer_that_reconnects_is_found_on_its_new_connection() -> None:
    story = Story()
    old, new = story.connect("old"), story.connect("new")
    story.clients.heartbeat_of_producer(old, "c", "P", "JAVA", 513, 1)
    story.clients.heartbeat_of_producer(new, "c", "P", "JAVA", 513, 2)
    story.clients.disconnected(old)
    assert owner_of(story, "c") is new


def test_a_producer_whose_old_connection_is_silent_is_found_on_its_new_connection() -> None:
    story = Story()
    broken, new = story.connect("broken"), story.connect("new")
    story.clients.heartbeat_of_producer(broken, "c", "P", "JAVA", 513, 0)
    for now_ms in (31_000, 59_000):
        story.clients.heartbeat_of_producer(new, "c", "P", "JAVA", 513, now_ms)
        assert owner_of(story, "c") is broken
    story.clients.heartbeat_of_producer(new, "c", "P", "JAVA", 513, 61_000)
    assert owner_of(story, "c") is new


def test_another_connection_does_not_take_over_the_client_id_of_a_consumer() -> None:
    story = Story()
    first, second = story.connect("c"), story.connect("c")
    story.beat(first, now_ms=1, T=("*", 1))
    story.beat(second, now_ms=2, T=("*", 1))
    group = story.clients.consumer_group("G")
    assert group is not None
    found = group.find("c")
    assert found is not None
    assert found.conn is first
    story.clients.disconnected(first)
    found = group.find("c")
    assert found is not None
    assert found.conn is second


def test_a_heartbeat_with_too_many_groups_creates_none(kit: Kit) -> None:
    """A new group costs about 100 us and creates a topic. Other clients wait meanwhile."""
    conn = FakeConnection()
    known = set(kit.context.groups.all())
    answer = _heartbeat(kit, conn, [f"G{number}" for number in range(1_001)])
    assert (answer.code, set(kit.context.groups.all())) == (ResponseCode.INVALID_PARAMETER, known)
    assert "1001 groups; 1000 is the maximum" in (answer.remark or "")

    assert _heartbeat(kit, conn, [f"G{number}" for number in range(900)]).code == ResponseCode.SUCCESS
    assert _heartbeat(kit, conn, [f"G{number}" for number in range(900)]).code == ResponseCode.SUCCESS
    more = _heartbeat(kit, conn, [f"H{number}" for number in range(200)])  # on the same connection
    assert "1100 groups" in (more.remark or "")


def test_subscriptions_of_a_connection_are_limited(kit: Kit) -> None:
    conn = FakeConnection()
    topics = [f"T{number}" for number in range(6_000)]
    assert [_heartbeat(kit, conn, [group], topics).code for group in "abcc"] == [0, 0, 0, 0]
    assert "24000 subscriptions" in (_heartbeat(kit, conn, ["d"], topics).remark or "")


def test_groups_are_rendered_for_their_file_when_it_is_written() -> None:
    """Rendering takes most of the time for a new group, and the file is written in the background."""
    rendered: list[bytes] = []
    waiting: list[Callable[[], None]] = []
    groups = GroupTable(BrokerSettings(), lambda table: rendered.append(fastjson.dumps_pretty(table)), submit=waiting.append)
    for number in range(1_000):
        groups.find_or_create(f"G{number}", 1)
    assert (len(waiting), rendered) == (1, [])
    waiting[0]()
    assert b"G999" in rendered[0]


def _heartbeat(kit: Kit, conn: FakeConnection, groups: list[str], topics: Sequence[str] = ()) -> Command:
    subscriptions = [{"topic": topic, "subString": "*"} for topic in topics]
    consumers = [{"groupName": group, "subscriptionDataSet": subscriptions} for group in groups]
    body = json.dumps({"clientID": "c", "consumerDataSet": consumers, "producerDataSet": []})
    return kit.ask(RequestCode.HEART_BEAT, body=body.encode(), conn=conn)
