from __future__ import annotations

import signal

from tests.cli.messages.kit import firearrow, objects
from tests.cli.process import Start


def test_sent_message_is_consumed(name_server: str) -> None:
    code, out, err = firearrow(
        name_server,
        "send",
        "T",
        "hello",
        "--tag",
        "new",
        "--key",
        "A1",
        "--key",
        "A2",
        "--property",
        "n=1",
        "--sharding-key",
        "s",
    )
    assert (code, err) == (0, "")
    msg_id, topic, where, offset = out.split()
    assert (topic, offset) == ("T", "@0")

    code, out, err = firearrow(name_server, "consume", "T", "--count", "1", "-o", "json")
    assert (code, err) == (0, "")
    (message,) = objects(out)
    assert (message["msg_id"], message["body"], message["tags"], message["keys"]) == (msg_id, "hello", "new", ["A1", "A2"])
    assert (message["properties"]["n"], f"{message['broker']}/{message['queue_id']}", message["offset"]) == ("1", where, 0)

    code, out, err = firearrow(name_server, "consume", "T", "--count", "1")
    assert out.startswith(f"{where} @0 ")
    assert out.endswith(" tags=new keys=A1,A2 hello\n")


def test_messages_are_selected_by_tag_sql_and_position(name_server: str) -> None:
    firearrow(name_server, "send", "T", "new", "--tag", "new")
    firearrow(name_server, "send", "T", "old", "--tag", "old", "--property", "amount=200")

    assert firearrow(name_server, "consume", "T", "--tag", "new || paid", "--body", "--wait", "1s")[:2] == (0, "new\n")
    assert firearrow(name_server, "consume", "T", "--from", "latest", "--body", "--wait", "500ms")[:2] == (0, "")
    assert firearrow(name_server, "consume", "T", "--from", "1h", "--tag", "old", "--body", "--count", "1")[:2] == (0, "old\n")
    assert firearrow(name_server, "consume", "T", "--sql", "amount > 100", "--body", "--count", "1")[:2] == (0, "old\n")
    code, _, err = firearrow(name_server, "consume", "T", "--sql", "amount >", "--count", "1")
    assert code == 1
    assert "23 SUBSCRIPTION_PARSE_FAILED" in err


def test_group_continues_at_its_offset(name_server: str) -> None:
    firearrow(name_server, "send", "T", "1", "--sharding-key", "k")
    firearrow(name_server, "send", "T", "2", "--sharding-key", "k")

    assert firearrow(name_server, "consume", "T", "--group", "g", "--body", "--count", "1")[1] == "1\n"
    assert firearrow(name_server, "consume", "T", "--group", "g", "--body", "--count", "1")[1] == "2\n"
    assert firearrow(name_server, "consume", "T", "--group", "g", "--body", "--wait", "500ms")[1] == ""


def test_sigint_ends_a_consumer_with_exit_code_0(name_server: str, start: Start) -> None:
    firearrow(name_server, "send", "T", "hello")
    consumer = start("consume", "T", "-n", name_server)
    assert consumer.line().endswith("hello")
    code, _ = consumer.stop(signal.SIGINT)
    assert (code, consumer.log) == (0, "")


def test_mistyped_topic_gets_a_suggestion(name_server: str) -> None:
    firearrow(name_server, "send", "Orders", "--tag", "new", "hello")
    code, out, err = firearrow(name_server, "consume", "Ordres", "--count", "1")
    assert (code, out, err) == (1, "", "firearrow consume: topic 'Ordres' does not exist; did you mean Orders?\n")
    assert firearrow(name_server, "consume", "Orders", "--tag", "new", "--count", "1", "--body")[:2] == (0, "hello\n")


def test_offset_is_a_position(name_server: str) -> None:
    for body in ("0", "1", "2"):
        firearrow(name_server, "send", "T", body, "--sharding-key", "k")
    assert firearrow(name_server, "consume", "T", "--from", "2", "--body", "--count", "1")[:2] == (0, "2\n")
