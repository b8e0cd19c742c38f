"""Every read-only command in each output format, and every command with an unknown option."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

import click
import pytest

from firearrow.admin.sync import Admin
from firearrow.cli.main import ADMINISTRATION, COMMANDS, firearrow, run
from firearrow.client.consumer.listener import RetryLater
from firearrow.client.message import Message, ReceivedMessage
from firearrow.testing.sync import Cluster
from tests.support.waiting import wait_until

READ_ONLY = [
    "topic list", "topic list --all", "topic show T", "topic status T", "topic route T", "topic groups T", "topic order T",
    "group list", "group show g", "group progress g", "group members g",
    "message show T ID", "message at T broker-a 0 0", "message find T --key k", "message find T --tag A",
    "message find T --from 1h", "message peek T", "message track T ID", "message undecided",
    "offset show g", "broker list", "broker status broker-a", "broker stats broker-a TOPIC_PUT_NUMS T",
    "broker replication broker-a",
    "cluster list", "cluster show", "client list", "client show g CLIENT",
    "dlq list", "dlq list g", "dlq show g DEAD", "trace show ID",
    "config get --broker broker-a flush", "config get --name-servers", "config kv-list n", "config kv-get n k", "doctor",
]  # fmt: skip
# Commands that change something, write files, control the processes of `firearrow up --cluster`, or need users (test_user.py).
CHANGING = {
    "topic": {"create", "alter", "delete"},
    "group": {"create", "alter", "delete"},
    "message": {"resend", "consume", "recheck"},
    "offset": {"reset", "skip", "clone"},
    "broker": {"clean", "wipe", "allow", "rejoin", "seed"},
    "cluster": {"status", "kill", "stop", "start"},
    "dlq": {"resend", "export", "import"},
    "config": {"set", "kv-put", "kv-delete"},
    "user": {"list", "get", "create", "update", "delete"},
    "acl": {"list", "get", "create", "update", "delete"},
}
NOUNS = [name for name, command in COMMANDS.items() if command.section == ADMINISTRATION or name == "broker"]


def subcommands(noun: str) -> set[str]:
    context = firearrow.make_context("firearrow", [])
    command = firearrow.get_command(context, noun)
    return set(command.list_commands(context)) if isinstance(command, click.Group) else set()


VERBS = {noun: subcommands(noun) for noun in NOUNS}


class Scene:
    """A topic with a message that was traced, failed and became a dead letter; its group is connected."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        with Admin(cluster.name_server) as admin:
            admin.create_topic("T", queues=1)
            admin.kv_put("n", "k", "v")
            admin.set_order_config("T", {"broker-a": 1})
            self.consumer = cluster.push_consumer(
                group="g", subscribe={"T": "*"}, listener=fail, start_from="earliest", trace=True
            )
            self.consumer.start()
            with cluster.producer(group="p", trace=True) as producer:
                sent = producer.send(Message("T", b'{"a": 1}', tags="A", keys="k"))
            wait_until(lambda: admin.dead_letter_counts() and admin.message_trace(sent.msg_id), "the dead letter and the trace")
            (dead,) = admin.dead_letters_of("g")
            admin.reset_offset("g", "T", "latest")  # commits an offset
            connection = admin.consumer_connection("g")
        self.words = {"ID": sent.msg_id, "DEAD": dead.msg_id, "CLIENT": connection.connection_set[0].client_id}


def fail(message: ReceivedMessage) -> None:
    raise RetryLater(-1)  # a dead letter at once


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with Cluster(sockets=True, clock=None) as cluster:
        scene = Scene(cluster)
        yield scene
        scene.consumer.close()


def test_every_subcommand_is_covered() -> None:
    covered = {noun: {words.split()[1] for words in READ_ONLY if words.split()[0] == noun} for noun in NOUNS if VERBS[noun]}
    assert {noun: covered[noun] | CHANGING.get(noun, set()) for noun in covered} == {noun: VERBS[noun] for noun in covered}


@pytest.mark.parametrize("words", READ_ONLY)
def test_command_prints_a_table_json_and_csv(scene: Scene, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = [scene.words.get(word, word) for word in words.split()]
    printed = {}
    for form in ("table", "json", "csv"):
        code = run([*given, "-n", scene.cluster.name_server, "-o", form])
        printed[form], err = capsys.readouterr()
        assert code == 0 or (code, words) == (1, "doctor"), err
    assert "\x1b" not in printed["table"]
    values = json.loads(printed["json"])
    rows = values if isinstance(values, list) else [values]
    head, *lines = csv.reader(io.StringIO(printed["csv"]))
    assert len(lines) == len(rows)
    if rows:
        assert head == list(rows[0])
        assert printed["table"].strip()
    else:
        assert words in ("message undecided",)


@pytest.mark.parametrize("words", [f"{noun} {verb}".strip() for noun in NOUNS for verb in sorted(VERBS[noun]) or [""]])
def test_unknown_option_is_one_line_with_exit_code_2(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words.split(), "--nonsense"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1), err
    assert err.startswith(f"firearrow {words}: no such option --nonsense; "), err
