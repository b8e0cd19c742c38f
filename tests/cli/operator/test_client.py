"""`firearrow client`: connected clients and their state."""

from __future__ import annotations

import json

import pytest

from firearrow.cli.operator.client import version_name
from firearrow.client.message import Message
from firearrow.testing.sync import Cluster
from firearrow.wire.codes import VERSION
from tests.cli.operator.kit import Firearrow, rows


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (0, "0"),
        (212, "212"),
        (213, "V4_0_0"),
        (214, "V4_0_1_SNAPSHOT"),
        (235, "V4_1_1"),
        (412, "V5_0_0_SNAPSHOT"),
        (413, "V5_0_0"),
        (513, "V5_5_0"),
        (612, "HIGHER_VERSION"),
    ],
)
def test_version_numbers_have_the_names_of_rocketmq(number: int, name: str) -> None:
    assert version_name(number) == name


def test_consumers_and_producers_are_listed(firearrow: Firearrow, shared: Cluster) -> None:
    firearrow("topic", "create", "Listed", "--queues", "1")
    with (
        shared.push_consumer(group="listed", subscribe={"Listed": "*"}, listener=lambda message: None),
        shared.producer(group="senders") as producer,
    ):
        producer.send(Message("Listed", b"x"))
        clients = rows(firearrow("client", "list", "-o", "json")[1])
        found = {(row["kind"], row["group"]) for row in clients}
        assert {("consumer", "listed"), ("producer", "senders")} <= found
        assert {row["version"] for row in clients} == {version_name(VERSION)}
        only = rows(firearrow("client", "list", "--group", "senders", "-o", "json")[1])
        assert [(row["kind"], row["group"]) for row in only] == [("producer", "senders")]
        assert {row["kind"] for row in rows(firearrow("client", "list", "--consumers", "-o", "json")[1])} == {"consumer"}


def test_consumers_and_producers_options_exclude_each_other(firearrow: Firearrow) -> None:
    code, out, err = firearrow("client", "list", "--consumers", "--producers")
    assert (code, out) == (2, "")
    assert "--consumers" in err
    assert "--producers" in err


def test_state_of_a_consumer_is_shown_with_its_queues(firearrow: Firearrow, shared: Cluster) -> None:
    firearrow("topic", "create", "Shown", "--queues", "2")
    with shared.push_consumer(group="shown", subscribe={"Shown": "*"}, listener=lambda message: None):
        (member,) = rows(firearrow("group", "members", "shown", "-o", "json")[1])
        shown = json.loads(firearrow("client", "show", "shown", member["client_id"], "-o", "json")[1])
        assert [queue["queue_id"] for queue in shown["queues"] if queue["topic"] == "Shown"] == [0, 1]
        assert "Shown" in {one["topic"] for one in shown["subscriptions"]}
        assert firearrow("client", "show", "shown", "nobody")[0] == 1
