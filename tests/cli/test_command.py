"""Errors, suggestions and confirmation, common to all commands of operators."""

from __future__ import annotations

import pytest

from firearrow.admin.sync import Admin
from firearrow.testing.sync import Cluster
from tests.cli.operator.conftest import firearrow as firearrow
from tests.cli.operator.conftest import shared as shared
from tests.cli.operator.kit import Firearrow, Terminal, send


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("topic destroy", "firearrow topic: no such command 'destroy'; see firearrow topic --help"),
        ("topic create", "firearrow topic create: missing argument 'TOPIC'"),
        (
            "topic create T --queues 0",
            "firearrow topic create: invalid value for '--queues': '0' is out of range; expected a whole",
        ),
        ("topic create T --queue 1", "firearrow topic create: no such option --queue; did you mean --queues?"),
        (
            "topic create T --perm x",
            "firearrow topic create: invalid value for '--perm': 'x' is not one of 'r', 'w', 'rw', 'none'",
        ),
        ("topic alter T", "firearrow topic alter: nothing to change; expected --read-queues, --write-queues, --perm, --order or"),
        (
            "topic list -o xml",
            "firearrow topic list: invalid value for '-o' / '--output': 'xml' is not one of 'table', 'json', 'csv'",
        ),
        ("topic list -n nonsense", "firearrow topic list: "),
        (
            "topic list --timeout 3",
            "firearrow topic list: invalid value for '--timeout': '3' is not a duration; expected a number",
        ),
        (
            "offset reset g T --to then",
            "firearrow offset reset: invalid value for '--to': 'then' is not a position; expected earliest",
        ),
        ("offset reset g T --to 7", "firearrow offset reset: offset 7 belongs to one queue; expected --queue, and --broker if"),
        (
            "message find T --from soon",
            "firearrow message find: invalid value for '--from': 'soon' is not a time; expected one such",
        ),
        ("dlq resend g", "firearrow dlq resend: which dead letters? expected ids, --all, or a filter"),
        ("dlq resend g --all --rate 0", "firearrow dlq resend: invalid value for '--rate': 0.0 is not in the range"),
        ("config set --broker b x", "firearrow config set: invalid value for 'KEY=VALUE...': 'x' is not of the form KEY=VALUE"),
        ("config get", "firearrow config get: one of --broker, --name-servers is required"),
        ("group alter g", "firearrow group alter: nothing to change; expected --retries,"),
        (
            "group create g --consume maybe",
            "firearrow group create: invalid value for '--consume': 'maybe' is not a valid boolean",
        ),
        ("group create g --consume-timeout 90s", "firearrow group create: --consume-timeout has a resolution of one minute"),
        ("broker sttus b", "firearrow broker: no such command 'sttus'; did you mean status?"),
        ("broker -c x list", "firearrow broker: options of a broker to start do not apply here"),
        ("topic create no/name", "firearrow topic create: the specified topic 'no/name' contains illegal characters"),
        ("config set --broker broker-a fileReservedTime=long --yes", "firearrow config set: "),
        ("topic lst", "firearrow topic: no such command 'lst'; did you mean list?"),
        ("message peak T", "firearrow message: no such command 'peak'; did you mean peek?"),
        (
            "topic list --access-key k",
            "firearrow topic list: --access-key is given, but the environment variable FIREARROW_SECRET_KEY",
        ),
    ],
)
def test_invalid_usage_is_one_line_with_exit_code_2(firearrow: Firearrow, words: str, error: str) -> None:
    code, out, err = firearrow(*words.split())
    assert (code, out) == (2, "")
    assert err.startswith(error)
    assert err.count("\n") == 1


def test_name_server_that_does_not_answer_is_one_line_with_exit_code_1(firearrow: Firearrow) -> None:
    code, out, err = firearrow("topic", "list", "-n", "127.0.0.1:1")
    assert (code, out, err.count("\n")) == (1, "", 1)


def test_broker_given_as_name_server_is_named_as_such(firearrow: Firearrow, shared: Cluster) -> None:
    with Admin(shared.name_server) as admin:
        (broker,) = admin.list_brokers()
    for words in (
        ["topic", "list"],
        ["topic", "status", "T"],
        ["group", "list"],
        ["send", "T", "x"],
        ["consume", "T"],
        ["doctor"],
    ):
        code, out, err = firearrow(*words, "-n", broker.address)
        assert code == 1, words
        assert f"{broker.address} is a broker, not a name server" in err + out, words


def test_mistyped_names_get_a_suggestion(firearrow: Firearrow) -> None:
    firearrow("topic", "create", "Orders", "--queues", "1")
    firearrow("group", "create", "billing")
    for words in (
        "topic status Ordres",
        "topic show Ordres",
        "message peek Ordres",
        "offset reset billing Ordres --to latest --yes",
    ):
        code, _, err = firearrow(*words.split())
        assert (code, err.count("\n")) == (1, 1), err
        assert err.endswith("topic 'Ordres' does not exist; did you mean Orders?\n"), err
    code, _, err = firearrow("group", "show", "biling")
    assert (code, err) == (1, "firearrow group show: group 'biling' does not exist; did you mean billing?\n")
    code, _, err = firearrow("broker", "status", "broker-b")
    assert code == 1
    assert "the name server knows broker-a" in err


DESTRUCTIVE = [
    "topic delete T", "group delete g", "offset reset g T --to latest", "offset skip g T", "offset clone g g T",
    "message resend T ID", "broker clean broker-a queues", "broker wipe broker-a",
    "config set --broker broker-a fileReservedTime=1",
    "config set --name-servers orderMessageEnable=true", "config kv-put n k v", "config kv-delete n k",
    "mqadmin deleteTopic -t T", "mqadmin deleteSubGroup -g g -b broker-a", "mqadmin skipAccumulatedMessage -g g -t T",
    "mqadmin resetOffsetByTime -g g -t T -s now", "mqadmin cloneGroupOffset -s g -d g -t T", "mqadmin wipeWritePerm -b broker-a",
    "mqadmin deleteKvConfig -s n -k k", "mqadmin updateBrokerConfig -b broker-a -k fileReservedTime -v 1",
    "mqadmin updateNamesrvConfig -k orderMessageEnable -v true", "mqadmin cleanExpiredCQ -b broker-a",
]  # fmt: skip


@pytest.mark.parametrize("words", DESTRUCTIVE)
def test_destructive_command_needs_a_yes(firearrow: Firearrow, shared: Cluster, words: str) -> None:
    with Admin(shared.name_server) as admin:
        if "T" not in admin.topic_names():
            admin.create_topic("T", queues=1)
            admin.create_group("g")
        config = admin.broker_config(admin.list_brokers()[0].address)
    msg_id = send(shared, "T", b"x")[0] if "ID" in words else ""
    given = [msg_id if word == "ID" else word for word in words.split()]

    code, out, err = firearrow(*given)
    assert (code, out) == (2, ""), err
    assert "; without a terminal, pass --yes or --dry-run\n" in err
    code, _, err = firearrow(*given, "--dry-run")
    assert code == 0
    assert err.startswith("dry run: would ")
    with Admin(shared.name_server) as admin:
        assert "T" in admin.topic_names()
        assert "g" in admin.group_names()
        assert admin.broker_config(admin.list_brokers()[0].address) == config


def test_person_at_a_terminal_is_asked(firearrow: Firearrow, shared: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    firearrow("topic", "create", "Asked")
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    code, _, err = firearrow("topic", "delete", "Asked")
    assert (code, err) == (
        1,
        "This will delete Asked (0 messages). Continue? [y/N] firearrow topic delete: nothing was changed\n",
    )
    monkeypatch.setattr("sys.stdin", Terminal("yes\n"))
    assert firearrow("topic", "delete", "Asked")[:2] == (0, "deleted Asked from broker-a\n")
