"""Control characters in messages, tags, keys and remarks: no command prints them."""

from __future__ import annotations

import io
import json
import re
import sys

import pytest

from firearrow.admin.sync import Admin
from firearrow.cli.main import run as run_command
from firearrow.client.errors import BrokerError
from firearrow.testing.sync import Cluster
from tests.cli.operator.kit import Firearrow, send

ATTACK = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")
COLOURS = re.compile("\x1b\\[[0-9;]*m")  # of rich


class TerminalOutput(io.TextIOWrapper):
    """A standard output that is a terminal."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8")

    def isatty(self) -> bool:
        return True

    def text(self) -> str:
        self.flush()
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode()


@pytest.fixture(scope="module")
def attacked(shared: Cluster) -> str:
    """Return the id of a message that contains escape sequences everywhere."""
    with Admin(shared.name_server) as admin:
        admin.create_topic("Attacked", queues=1)
        admin.create_topic("%DLQ%victims", queues=1)
    send(
        shared, "%DLQ%victims", f"body{ATTACK}".encode(), tags=f"t{ATTACK}", keys=f"k{ATTACK}", properties={f"p{ATTACK}": ATTACK}
    )
    (found,) = send(
        shared, "Attacked", f"body{ATTACK}\nnext".encode(), tags=f"t{ATTACK}", keys=f"k{ATTACK}", properties={"p": ATTACK}
    )
    return found


COMMANDS = [
    "consume Attacked --count 1",
    "message peek Attacked",
    "message show Attacked ID",
    "message show Attacked ID --body text",
    "message find Attacked --from 1h",
    "dlq list victims",
    "dlq export victims -",
    "mqadmin queryMsgByUniqueKey -t Attacked -i ID",
    "mqadmin printMsg -t Attacked",
    "mqadmin queryMsgByOffset -t Attacked -b broker-a -i 0 -o 0",
    "doctor",
]


@pytest.mark.parametrize("form", [[], ["-o", "json"]], ids=["table", "json"])
@pytest.mark.parametrize("words", COMMANDS)
def test_commands_escape_control_characters(firearrow: Firearrow, attacked: str, words: str, form: list[str]) -> None:
    if form and "mqadmin" in words:
        pytest.skip("mqadmin has one format")
    code, out, err = firearrow(*words.replace("ID", attacked).split(), *form)

    assert code == 0, err
    assert CONTROLS.findall(out + err) == []
    assert words == "doctor" or r"\x1b" in out or r"\u001b" in out


@pytest.mark.parametrize("words", [*COMMANDS, "consume Attacked --count 1 --body", "message peek Attacked -o csv"])
def test_commands_escape_control_characters_on_terminals(
    attacked: str, shared: Cluster, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", shared.name_server)
    terminal = TerminalOutput()
    monkeypatch.setattr(sys, "stdout", terminal)

    assert run_command(words.replace("ID", attacked).split()) == 0

    text = terminal.text()
    assert text
    assert CONTROLS.findall(COLOURS.sub("", text)) == []


def test_json_contains_the_original_values(firearrow: Firearrow, attacked: str) -> None:
    _, out, _ = firearrow("message", "show", "Attacked", attacked, "-o", "json")

    shown = json.loads(out)
    assert shown["body"] == f"body{ATTACK}\nnext"
    assert shown["properties"]["p"] == ATTACK


def test_error_messages_escape_control_characters(firearrow: Firearrow, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*args: object, **keywords: object) -> None:
        raise BrokerError(1, f"remark{ATTACK}", "127.0.0.1:1")

    monkeypatch.setattr("firearrow.admin.aio.Admin.topic_names", refuse)
    for words in (["mqadmin", "topicList"], ["topic", "list", f"--no{ATTACK}"]):
        code, out, err = firearrow(*words)
        assert code
        assert CONTROLS.findall(out + err) == []
