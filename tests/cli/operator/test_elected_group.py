"""Counts on elected groups: followers also register as proxies, but every queue, message and lag is counted once."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from firearrow.admin.sync import Admin
from firearrow.cli.main import run
from firearrow.client.message import Message
from firearrow.client.sync.clients import Producer
from tests.cli.process import ANY_PORTS, Start, read_json
from tests.support.waiting import wait_until

MESSAGES = 12
QUEUES = 4


def up(start: Start, tmp_path: Path, form: str) -> str:
    """Start a cluster and return the address of its name server when the proxies are registered."""
    start("up", "--cluster", form, "--data", "data", *ANY_PORTS, "--ready-file", "ready.json").line()
    namesrv = str(read_json(tmp_path / "ready.json")["namesrv"])
    with Admin(namesrv) as admin:
        groups = 2 if form.startswith("2x") else 1
        wait_until(lambda: len(admin.topic_route("TBW102").brokers) == groups * 3, "the registration of the proxies")
    return namesrv


@pytest.mark.parametrize(("form", "groups"), [("dledger-3", 1), ("2xdledger-3", 2)])
def test_each_queue_message_and_lag_is_counted_once(
    form: str, groups: int, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    namesrv = up(start, tmp_path, form)
    monkeypatch.setenv("NAMESRV_ADDR", namesrv)
    brokers = ["broker-a", "broker-b"][:groups]

    def rows(*words: str) -> Any:
        capsys.readouterr()
        run([*words, "-o", "json"])
        return json.loads(capsys.readouterr().out)

    def text(*words: str) -> str:
        capsys.readouterr()
        assert run(words) == 0
        return capsys.readouterr().out

    with Admin(namesrv) as admin, Producer(namesrv, group="p") as producer:
        assert admin.create_topic("Orders", queues=QUEUES) == brokers
        assert admin.create_group("billing") == brokers
        for number in range(MESSAGES):
            producer.send(Message("Orders", b"x", tags="new", keys=f"key-{number}"))
        admin.reset_offset("billing", "Orders", "earliest")

        assert len(admin.topic_status("Orders")) == groups * QUEUES
        assert sum(queue.messages for queue in admin.topic_status("Orders")) == MESSAGES
        assert [one.name for one in admin.list_brokers(masters_only=True)] == brokers
        assert len(admin.list_brokers()) == groups * 3
        assert sum(queue.lag for queue in admin.group_progress("billing")) == MESSAGES
        assert sum(one.lag for one in admin.list_groups()) == MESSAGES
        wait_until(lambda: len(admin.messages_by_key("Orders", "key-0")) == 1, "the index")
        assert len(admin.messages_between("Orders")) == MESSAGES
        assert len(admin.peek("Orders", 100)) == MESSAGES
        assert admin.topic_groups("Orders") == ["billing"]
        assert list(admin.topic_configs("Orders")) == brokers
        assert list(admin.group_configs("billing")) == brokers

    assert sum(row["messages"] for row in rows("topic", "status", "Orders")) == MESSAGES
    (topic,) = [row for row in rows("topic", "list") if row["topic"] == "Orders"]
    assert (topic["read_queues"], topic["write_queues"], topic["brokers"]) == (groups * QUEUES, groups * QUEUES, brokers)
    assert sum(row["write_queues"] or 0 for row in rows("topic", "route", "Orders")) == groups * QUEUES
    (group,) = [row for row in rows("group", "list") if row["group"] == "billing"]
    assert (group["lag"], group["brokers"]) == (MESSAGES, brokers)
    for words in (["group", "progress", "billing"], ["offset", "show", "billing"]):
        assert sum(row["lag"] for row in rows(*words)) == MESSAGES
    (cluster,) = rows("cluster", "list")
    assert (cluster["masters"], cluster["slaves"], cluster["topics"]) == (groups, groups * 2, 1)
    assert len(rows("broker", "list")) == len(rows("cluster", "show")) == groups * 3
    assert len(rows("message", "find", "Orders", "--tag", "new")) == MESSAGES
    causes = [row["cause"] for row in rows("doctor") if row["subject"] == "billing"]
    assert causes == [f"it has a lag of {MESSAGES} messages and no member is connected"]
    assert f"Consume Diff Total: {MESSAGES}\n" in text("mqadmin", "consumerProgress", "-g", "billing")
    assert re.search(rf"^billing .* {MESSAGES}$", text("mqadmin", "consumerProgress"), re.MULTILINE)
    assert text("mqadmin", "statsAll", "-t", "Orders").splitlines()[-1].split()[:3] == ["Orders", "billing", str(MESSAGES)]
    assert len(text("mqadmin", "topicStatus", "-t", "Orders").split("broker-")) == groups * QUEUES + 1
    assert len(text("mqadmin", "clusterList").splitlines()) == groups * 3 + 1


def test_doctor_names_the_members_to_start(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    namesrv = up(start, tmp_path, "dledger-3")
    monkeypatch.setenv("NAMESRV_ADDR", namesrv)
    monkeypatch.chdir(tmp_path)

    def findings() -> list[dict[str, str]]:
        capsys.readouterr()
        run(["doctor", "-o", "json"])
        return [row for row in json.loads(capsys.readouterr().out) if row["check"] == "masters"]

    assert findings() == []
    assert run(["cluster", "kill", "n2", "--data", "data"]) == 0
    wait_until(lambda: findings() and findings()[0]["severity"] == "warning", "the finding of a missing member")
    (missing,) = findings()
    assert "the elected group misses n2 (127.0.0.1:" in missing["cause"]
    assert run(["cluster", "kill", "n1", "--data", "data"]) == 0
    wait_until(lambda: findings() and findings()[0]["severity"] == "error", "the finding of a lost majority")
    (lost,) = findings()
    assert "1 of 3 members run, a majority is 2" in lost["cause"]
    assert lost["fix"].startswith("start n1, n2 again")
