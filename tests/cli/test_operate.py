"""The commands of operators against a cluster in this process: what they print, what they change, and their exit codes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from firearrow.admin.sync import Admin
from firearrow.cli.main import main
from firearrow.client.consumer.listener import RetryLater
from firearrow.client.message import Message, ReceivedMessage
from firearrow.testing.sync import Cluster
from tests.support.waiting import wait_until

Firearrow = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    """For tests that use names of their own."""
    with Cluster(sockets=True, clock=None) as cluster:
        yield cluster


@pytest.fixture
def firearrow(shared: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Firearrow:
    monkeypatch.setenv("NAMESRV_ADDR", shared.name_server)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(list(words))
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return run


def rows(text: str) -> list[dict[str, Any]]:
    value: list[dict[str, Any]] = json.loads(text)
    return value


def send(cluster: Cluster, topic: str, *bodies: bytes, **more: Any) -> list[str]:
    with cluster.producer(group="p") as producer:
        return [producer.send(Message(topic, body, **more)).msg_id for body in bodies]


def test_the_queues_of_an_ordered_topic(firearrow: Firearrow) -> None:
    assert firearrow("topic", "order", "Fixed") == (0, "", "nothing found\n")
    code, _, err = firearrow("topic", "order", "Fixed", "--set", "broker-a:4")
    assert (code, "expected --yes" in err) == (2, True)
    code, _, err = firearrow("topic", "order", "Fixed", "--set", "broker-a", "--yes")
    assert (code, err.count("\n"), "expected broker:queues" in err) == (2, 1, True)
    assert firearrow("topic", "order", "Fixed", "--set", "broker-a:4;broker-b:2", "--yes") == (
        0,
        "fixed the queues of Fixed to broker-a:4;broker-b:2\n",
        "",
    )
    code, out, _ = firearrow("topic", "order", "Fixed", "-o", "json")
    assert (code, rows(out)) == (0, [{"broker": "broker-a", "queues": 4}, {"broker": "broker-b", "queues": 2}])
    assert firearrow("topic", "order", "Fixed", "--delete", "--yes")[0] == 0
    assert firearrow("topic", "order", "Fixed", "--delete", "--yes")[0] == 1


def test_transactions_that_were_given_up(firearrow: Firearrow) -> None:
    assert firearrow("message", "undecided", "-o", "json") == (0, "[]\n", "")
    code, _, err = firearrow("message", "recheck", "AC110002000118B4AAC20000", "--yes")
    assert (code, err.count("\n"), "AC110002000118B4AAC20000" in err) == (1, 1, True)
    assert firearrow("message", "recheck", "AC110002000118B4AAC20000")[0] == 2


def test_a_topic_from_its_beginning_to_its_end(firearrow: Firearrow) -> None:
    assert firearrow("topic", "create", "Life", "--queues", "3", "--type", "DELAY") == (
        0,
        "made Life with 3 queues on broker-a\n",
        "",
    )
    code, out, err = firearrow("topic", "create", "Life")
    assert (code, out) == (1, "")
    assert err == ("firearrow topic create: the topic 'Life' exists already on broker-a: alter it, or give it another name\n")
    code, out, _ = firearrow("topic", "list", "--like", "LIF", "-o", "json")
    assert (code, rows(out)[0]["write_queues"], rows(out)[0]["message_type"]) == (0, 3, "DELAY")
    assert firearrow("topic", "alter", "Life", "--perm", "r", "--read-queues", "5")[0] == 0
    code, out, _ = firearrow("topic", "show", "Life", "-o", "csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert (row["read_queues"], row["write_queues"], row["perm"], row["order"]) == ("5", "3", "r", "false")
    assert "Life" in firearrow("topic", "list")[1]
    assert firearrow("topic", "route", "Life", "-o", "json")[1].count("broker-a") == 1
    assert len(rows(firearrow("topic", "status", "Life", "-o", "json")[1])) == 5

    code, out, err = firearrow("topic", "delete", "Life")
    assert (code, out) == (2, "")
    assert err == (
        "firearrow topic delete: this would delete Life (0 messages); expected --yes, or --dry-run, where nobody can be asked\n"
    )
    assert firearrow("topic", "delete", "Life", "--dry-run") == (0, "", "dry run: would delete Life (0 messages)\n")
    assert firearrow("topic", "show", "Life")[0] == 0
    assert firearrow("topic", "delete", "Life", "--yes") == (0, "deleted Life from broker-a\n", "")
    assert firearrow("topic", "show", "Life") == (1, "", "firearrow topic show: there is no topic 'Life'\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("topic", "firearrow topic: the following arguments are required: VERB"),
        ("topic destroy", "firearrow topic: argument VERB: invalid choice: 'destroy' (choose from "),
        ("topic create", "firearrow topic create: the following arguments are required: TOPIC"),
        ("topic create T --queues 0", "firearrow topic create: argument --queues: '0' is not a number; expected 1 or more"),
        ("topic create T --queue 1", "firearrow topic create: unknown argument --queue; did you mean --queues?"),
        (
            "topic create T --perm x",
            "firearrow topic create: argument --perm: 'x' is not a permission; expected r, w, rw or none",
        ),
        ("topic alter T", "firearrow topic alter: nothing to change; expected --read-queues, --write-queues, --perm, --order or"),
        ("topic list -o xml", "firearrow topic list: argument -o/--output: invalid choice: 'xml' (choose from"),
        ("topic list -n nonsense", "firearrow topic list: "),
        (
            "offset reset g T --to then",
            "firearrow offset reset: argument --to: 'then' is no place; expected begin, end, an offset, a",
        ),
        ("offset reset g T --to 7", "firearrow offset reset: the offset 7 is of one queue; expected --queue, and --broker if"),
        ("message find T --from soon", "firearrow message find: argument --from: 'soon' is not a time; expected one like 2030-"),
        ("dlq resend g", "firearrow dlq resend: which ones? expected ids, or --all, or one or more of --from"),
        ("dlq resend g --all --rate 0", "firearrow dlq resend: argument --rate: '0' is not a rate; expected messages a second"),
        ("config set --broker b x", "firearrow config set: argument KEY=VALUE: 'x' is not of the form KEY=VALUE"),
        ("config get", "firearrow config get: one of the arguments --broker --namesrv is required"),
        ("group alter g", "firearrow group alter: nothing to change; expected --retries,"),
        ("group create g --consume maybe", "firearrow group create: argument --consume: 'maybe' is neither; expected yes or no"),
        ("broker sttus b", "firearrow broker: argument VERB: invalid choice: 'sttus'"),
        (
            "topic create no/name",
            "firearrow topic create: the specified topic 'no/name' contains illegal characters",
        ),
        ("config set --broker broker-a fileReservedTime=long --yes", "firearrow config set: "),
        ("mqadmin topicLst", "firearrow mqadmin: there is no subcommand 'topicLst' here; did you mean topicList?"),
        ("mqadmin", "firearrow mqadmin: the following arguments are required: SUBCOMMAND"),
        ("mqadmin nonsense", "firearrow mqadmin: there is no subcommand 'nonsense' here; expected one of updateTopic,"),
        ("mqadmin sendMessage", "firearrow mqadmin: there is no subcommand 'sendMessage' here; use firearrow send"),
        ("mqadmin topicStatus", "firearrow mqadmin topicStatus: the following arguments are required: -t/--topic"),
        ("mqadmin updateTopic -t T", "firearrow mqadmin updateTopic: which brokers? expected -b ADDRESS or -c CLUSTER"),
        ("completion csh", "firearrow completion: argument shell: invalid choice: 'csh'"),
    ],
)
def test_wrong_words_are_one_line_and_exit_code_2(firearrow: Firearrow, words: str, says: str) -> None:
    code, out, err = firearrow(*words.split())
    assert (code, out) == (2, "")
    assert err.startswith(says)
    assert err.count("\n") == 1


@pytest.mark.parametrize(("words", "nearest"), [("topic lst", "list"), ("message peak T", "peek"), ("config gte", "get")])
def test_the_nearest_verb_is_named(firearrow: Firearrow, words: str, nearest: str) -> None:
    code, _, err = firearrow(*words.split())
    assert (code, err.count("\n")) == (2, 1)
    assert err.endswith(f"; did you mean {nearest}?\n")


DESTROYING = [
    "topic delete T", "group delete g", "offset reset g T --to end", "offset skip g T", "offset clone g g T",
    "message resend T ID", "broker clean broker-a queues", "broker wipe broker-a",
    "config set --broker broker-a fileReservedTime=1",
    "config set --namesrv orderMessageEnable=true", "config kv-put n k v", "config kv-delete n k",
    "mqadmin deleteTopic -t T", "mqadmin deleteSubGroup -g g -b broker-a", "mqadmin skipAccumulatedMessage -g g -t T",
    "mqadmin resetOffsetByTime -g g -t T -s now", "mqadmin cloneGroupOffset -s g -d g -t T", "mqadmin wipeWritePerm -b broker-a",
    "mqadmin deleteKvConfig -s n -k k", "mqadmin updateBrokerConfig -b broker-a -k fileReservedTime -v 1",
    "mqadmin updateNamesrvConfig -k orderMessageEnable -v true", "mqadmin cleanExpiredCQ -b broker-a",
]  # fmt: skip


@pytest.mark.parametrize("words", DESTROYING)
def test_what_destroys_wants_a_yes(firearrow: Firearrow, shared: Cluster, words: str) -> None:
    with Admin(shared.name_server) as admin:
        if "T" not in admin.topic_names():
            admin.create_topic("T", queues=1)
            admin.create_group("g")
        config = admin.broker_config(admin.list_brokers()[0].address)
    msg_id = send(shared, "T", b"x")[0] if "ID" in words else ""
    given = [msg_id if word == "ID" else word for word in words.split()]

    code, out, err = firearrow(*given)
    assert (code, out) == (2, ""), err
    assert "; expected --yes, or --dry-run, where nobody can be asked\n" in err
    code, _, err = firearrow(*given, "--dry-run")
    assert code == 0
    assert err.startswith("dry run: would ")
    with Admin(shared.name_server) as admin:
        assert "T" in admin.topic_names()
        assert "g" in admin.group_names()
        assert admin.broker_config(admin.list_brokers()[0].address) == config


def test_a_person_is_asked(firearrow: Firearrow, shared: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    firearrow("topic", "create", "Asked")
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    code, _, err = firearrow("topic", "delete", "Asked")
    assert (code, err) == (
        1,
        "This will delete Asked (0 messages). Go on? [y/N] firearrow topic delete: nothing was done\n",
    )
    monkeypatch.setattr("sys.stdin", Terminal("yes\n"))
    assert firearrow("topic", "delete", "Asked")[:2] == (0, "deleted Asked from broker-a\n")


def test_messages(firearrow: Firearrow, shared: Cluster) -> None:
    firearrow("topic", "create", "Mail", "--queues", "1")
    first, second = send(shared, "Mail", b'{"n": 1}', b"\x00\x01", tags="new", keys="k1")
    code, out, _ = firearrow("message", "show", "Mail", first, "-o", "json")
    assert (code, json.loads(out)["body"], json.loads(out)["tags"]) == (0, '{"n": 1}', "new")
    code, out, _ = firearrow("message", "show", "Mail", first, "--body", "json")
    assert out.endswith('{\n  "n": 1\n}\n')
    assert "00 01" in firearrow("message", "show", "Mail", second)[1]
    assert [row["msg_id"] for row in rows(firearrow("message", "peek", "Mail", "-o", "json")[1])] == [first, second]
    assert {row["msg_id"] for row in rows(firearrow("message", "find", "Mail", "--key", "k1", "-o", "json")[1])} == {
        first,
        second,
    }
    found = rows(firearrow("message", "find", "Mail", "--contains", '"n"', "--from", "1h", "-o", "json")[1])
    assert [row["msg_id"] for row in found] == [first]
    assert json.loads(firearrow("message", "at", "Mail", "broker-a", "0", "1", "-o", "json")[1])["msg_id"] == second
    code, _, err = firearrow("message", "at", "Mail", "broker-a", "0", "9")
    assert (code, err) == (
        1,
        "firearrow message at: queue 0 of 'Mail' on broker-a has no message at 9; it has 0 to 1\n",
    )
    assert firearrow("message", "resend", "Mail", first, "--yes")[0] == 0
    assert len(rows(firearrow("message", "find", "Mail", "--key", "k1", "-o", "json")[1])) == 3
    code, out, err = firearrow("message", "find", "Mail", "--tag", "none")
    assert (code, out, err) == (0, "", "nothing found\n")


def test_groups_and_offsets(firearrow: Firearrow, shared: Cluster) -> None:
    firearrow("topic", "create", "Books", "--queues", "1")
    assert firearrow("group", "create", "readers", "--retries", "4") == (0, "made readers on broker-a\n", "")
    assert rows(firearrow("group", "show", "readers", "-o", "json")[1])[0]["retry_max_times"] == 4
    send(shared, "Books", b"1", b"2", b"3")
    code, out, err = firearrow("offset", "reset", "readers", "Books", "--to", "begin", "--yes", "-o", "json")
    assert (code, [(row["before"], row["after"]) for row in rows(out)]) == (0, [(None, 0)])
    (row,) = rows(firearrow("group", "progress", "readers", "-o", "json")[1])
    assert (row["lag"], row["consumer_offset"]) == (3, 0)
    assert firearrow("group", "progress", "readers")[1].endswith("lag 3, in flight 0\n")
    code, out, err = firearrow("offset", "skip", "readers", "Books", "--dry-run", "-o", "csv")
    assert err == "dry run: would move readers in 1 queues of Books: skip 3 messages\n"
    assert rows(firearrow("group", "list", "--like", "readers", "--behind", "3", "-o", "json")[1])[0]["lag"] == 3
    firearrow("offset", "reset", "readers", "Books", "--to", "2", "--queue", "0", "--yes")
    assert rows(firearrow("offset", "show", "readers", "-o", "json")[1])[0]["lag"] == 1
    firearrow("group", "create", "others")
    with shared.push_consumer(group="readers", subscribe={"Books": "*"}, listener=lambda message: None):
        (member,) = rows(firearrow("group", "members", "readers", "-o", "json")[1])
        assert member["subscriptions"]["Books"] == "*"
        assert member["client_id"] in firearrow("client", "list", "--group", "readers")[1]
        code, out, _ = firearrow("client", "show", "readers", member["client_id"], "-o", "json")
        assert {queue["queue_id"] for queue in json.loads(out)["queues"] if queue["topic"] == "Books"} == {0}
    assert firearrow("offset", "clone", "readers", "others", "Books", "--yes")[0] == 0
    assert firearrow("group", "delete", "readers", "others", "--yes")[0] == 0
    assert firearrow("group", "members", "readers")[0] == 1


def test_dead_letters(firearrow: Firearrow, shared: Cluster, tmp_path: Path) -> None:
    firearrow("topic", "create", "Jobs", "--queues", "1")
    ids = send(shared, "Jobs", b"one", b"two", b"three", tags="t")
    failed: list[str] = []

    def fail(message: ReceivedMessage) -> None:
        failed.append(message.msg_id)
        raise RetryLater(-1)

    with shared.push_consumer(group="workers", subscribe={"Jobs": "*"}, listener=fail, start_from="earliest"):
        wait_until(lambda: "%DLQ%workers" in firearrow("topic", "list", "--all")[1] and dead(firearrow) == 3)
    assert [row["body"] for row in rows(firearrow("dlq", "list", "workers", "-o", "json")[1])] == ["one", "two", "three"]
    assert "two" in firearrow("dlq", "show", "workers", ids[1])[1]
    file = tmp_path / "letters.jsonl"
    assert firearrow("dlq", "export", "workers", str(file))[:2] == (0, f"wrote 3 dead letters of workers to {file}\n")
    assert firearrow("dlq", "export", "workers", str(file))[0] == 1, "a file that is there is not written over"
    assert firearrow("dlq", "resend", "workers", "--all")[0] == 2

    taken: list[bytes] = []
    with shared.push_consumer(group="workers", subscribe={"Jobs": "*"}, listener=lambda m: taken.append(m.body)):
        assert firearrow("dlq", "resend", "workers", ids[0], ids[2], "--yes")[:2] == (0, "sent 2 again, 0 failed\n")
        wait_until(lambda: len(taken) == 2)
        code, out, _ = firearrow("dlq", "import", str(file), "--rate", "100", "--yes", "-o", "json")
        assert (code, json.loads(out)["sent"]) == (0, 3)
        wait_until(lambda: len(taken) == 5)
    assert sorted(taken) == [b"one", b"one", b"three", b"three", b"two"]
    file.write_text(file.read_text() + "{}\n")
    code, _, err = firearrow("dlq", "import", str(file), "--yes")
    assert (code, "line 4: not a line of an export" in err, "nothing was sent" in err) == (1, True, True)


def test_brokers_and_settings(firearrow: Firearrow) -> None:
    (broker,) = rows(firearrow("broker", "list", "-o", "json")[1])
    assert (broker["broker"], broker["problem"]) == ("broker-a", None)
    assert json.loads(firearrow("broker", "status", "broker-a", "-o", "json")[1])["brokerVersionDesc"] == "V5_5_0"
    assert firearrow("broker", "stats", "broker-a", "NO_SUCH_NUMS", "x") == (0, "", "nothing found\n")
    assert firearrow("broker", "wipe", "broker-a", "--yes")[0] == 0
    assert firearrow("broker", "allow", "broker-a")[0] == 0
    assert firearrow("broker", "clean", "broker-a", "queues", "--yes")[0] == 0
    assert json.loads(firearrow("broker", "replication", "broker-a", "-o", "json")[1])["master"] is True
    assert firearrow("config", "set", "--broker", "broker-a", "fileReservedTime=48", "--yes")[0] == 0
    assert rows(firearrow("config", "get", "--broker", "broker-a", "filereserved", "-o", "json")[1])[0]["value"] == "48"
    code, _, err = firearrow("config", "set", "--broker", "broker-a", "storePathRootDir=/x", "--yes")
    assert (code, "storePathRootDir" in err) == (1, True)
    assert firearrow("config", "kv-put", "n", "k", "v", "--yes")[0] == 0
    assert firearrow("config", "kv-get", "n", "k") == (0, "v\n", "")
    assert rows(firearrow("config", "kv-list", "n", "-o", "json")[1]) == [{"key": "k", "value": "v"}]
    assert firearrow("config", "kv-delete", "n", "k", "--yes")[0] == 0
    assert firearrow("config", "kv-get", "n", "k")[0] == 1
    assert "listenPort" in firearrow("config", "get", "--namesrv")[1]
    (cluster,) = rows(firearrow("cluster", "list", "-o", "json")[1])
    assert (cluster["masters"], cluster["unreachable"]) == (1, [])
    assert rows(firearrow("cluster", "show", "-o", "json")[1])[0]["broker"] == "broker-a"
    assert firearrow("broker", "status", "nobody")[0] == 1


def test_nobody_there(firearrow: Firearrow) -> None:
    code, out, err = firearrow("topic", "list", "-n", "127.0.0.1:1")
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    code, out, _ = firearrow("doctor", "-n", "127.0.0.1:1")
    assert code == 1
    assert out.startswith("ERROR 127.0.0.1:1: it does not answer")


def dead(firearrow: Firearrow) -> int:
    found = rows(firearrow("dlq", "list", "-o", "json")[1])
    return sum(int(row["messages"]) for row in found if row["group"] == "workers")
