from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from firearrow.admin.sync import Admin
from firearrow.cli.main import firearrow, run
from firearrow.testing.sync import Cluster


def complete(*words: str) -> list[str]:
    """Return the completions of the last word."""
    *before, last = words
    completion = ShellComplete(firearrow, {}, "firearrow", "_FIREARROW_COMPLETE")
    return [item.value for item in completion.get_completions(before, last)]


@pytest.fixture(scope="module")
def name_server() -> Iterator[str]:
    with Cluster(sockets=True, clock=None) as cluster:
        with Admin(cluster.name_server) as admin:
            admin.create_topic("Orders", queues=1)
            admin.create_group("billing")
        yield cluster.name_server


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("to", ["topic"]),
        ("topic cr", ["create"]),
        ("topic create --qu", ["--queues"]),
        ("topic create T --type F", ["FIFO"]),
        ("topic list --output ", ["table", "json", "csv"]),
        ("offset reset g T --to e", ["earliest"]),
        ("broker st", ["status", "stats"]),
        ("broker --rea", ["--ready-file"]),
        ("up --namesrv", ["--namesrv-port"]),
        ("up --cluster dl", ["dledger-3"]),
        ("doctor --str", ["--strict"]),
        ("mqadmin topicSt", ["topicStatus"]),
        ("spark arch", ["archive"]),
        ("completion z", ["zsh"]),
        ("bench ", ["send", "consume"]),
        ("nonsense x", []),
        ("topic nonsense x", []),
    ],
)
def test_commands_options_and_choices_are_completed(line: str, words: list[str]) -> None:
    assert complete(*line.split(" ")) == words


def test_names_come_from_the_name_server(name_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", name_server)
    assert complete("topic", "status", "Or") == ["Orders"]
    assert complete("offset", "reset", "bil") == ["billing"]
    assert complete("offset", "reset", "billing", "Ord") == ["Orders"]
    assert complete("broker", "status", "") == ["broker-a"]
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    assert complete("topic", "status", "Or") == []
    assert complete("topic", "status", "-n", name_server, "Or") == ["Orders"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_with_the_printed_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tool = tmp_path / "firearrow"
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -m firearrow.cli "$@"\n')
    tool.chmod(0o755)
    assert run(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    script += 'COMP_WORDS=(firearrow topic cr); COMP_CWORD=2; _firearrow_completion firearrow; echo "${COMPREPLY[@]}"\n'
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=60, check=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}
    )
    assert done.stdout == "create\n"
