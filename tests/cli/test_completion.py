from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow.admin.sync import Admin
from firearrow.cli.completion import SCRIPTS, candidates
from firearrow.testing.sync import Cluster


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
        ("broker st", ["stats", "status"]),
        ("broker --rea", ["--ready-file"]),
        ("up --namesrv", ["--namesrv-port"]),
        ("doctor --str", ["--strict"]),
        ("mqadmin topicSt", ["topicStatus"]),
        ("completion z", ["zsh"]),
        ("bench ", ["send", "consume"]),
        ("nonsense x", []),
        ("topic nonsense x", []),
    ],
)
def test_words(line: str, words: list[str]) -> None:
    assert candidates(line.split(" ")) == words


def test_names_come_from_the_name_server(name_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", name_server)
    assert candidates(["topic", "status", "Or"]) == ["Orders"]
    assert candidates(["offset", "reset", "bil"]) == ["billing"]
    assert candidates(["offset", "reset", "billing", "Ord"]) == ["Orders"]
    assert candidates(["broker", "status", ""]) == ["broker-a"]
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    assert candidates(["topic", "status", "Or"]) == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_understands_the_script(tmp_path: Path) -> None:
    tool = tmp_path / "firearrow"
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -m firearrow.cli "$@"\n')
    tool.chmod(0o755)
    script = SCRIPTS["bash"] + 'COMP_WORDS=(firearrow topic cr); COMP_CWORD=2; _firearrow; echo "${COMPREPLY[@]}"\n'
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=60, check=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}
    )
    assert done.stdout == "create\n"
