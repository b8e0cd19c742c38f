"""Operator commands as processes against a running broker, and the CPU time of a long listing."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

from firearrow.admin.aio import Admin
from firearrow.wire import fastjson
from firearrow.wire.bodies.topic import CreateTopicListRequestBody, TopicConfig
from firearrow.wire.codes import RequestCode
from tests.cli.process import ANY_PORTS, PATIENCE_S, Start, read_json
from tests.support.waiting import wait_until

MANY = 10_000
LIST_CPU_S = 2.0


def test_commands_work_as_processes(start: Start, tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    start("up", "--data", str(tmp_path / "data"), *ANY_PORTS, "--ready-file", str(ready), "--set", "flushDiskType=ASYNC_FLUSH")
    wait_until(ready.exists, "the ready file")
    name_server = str(read_json(ready)["namesrv"])

    def firearrow(*words: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "firearrow.cli", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            env={**os.environ, "NAMESRV_ADDR": name_server},
        )
        return done.returncode, done.stdout, done.stderr

    assert firearrow("topic", "create", "Orders", "--queues", "2") == (0, "created Orders with 2 queues on broker-a\n", "")
    assert firearrow("send", "Orders", "hello", "--key", "A1")[0] == 0
    code, out, _ = firearrow("message", "find", "Orders", "--key", "A1", "-o", "json")
    assert (code, [row["body"] for row in json.loads(out)]) == (0, ["hello"])
    assert firearrow("consume", "Orders", "--group", "billing", "--count", "1")[0] == 0
    assert firearrow("offset", "reset", "billing", "Orders", "--to", "earliest", "--yes")[0] == 0
    code, out, _ = firearrow("group", "progress", "billing", "--topic", "Orders", "-o", "json")
    assert sum(row["lag"] for row in json.loads(out)) == 1
    code, out, _ = firearrow("doctor", "-o", "json")
    assert code == 0
    assert any("no member is connected" in row["cause"] for row in json.loads(out))

    asyncio.run(make_topics(name_server))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code, out, _ = firearrow("topic", "list")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (code, out.count("\n")) == (0, MANY + 2)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert spent < LIST_CPU_S, f"{spent:.2f} s of CPU to list {MANY} topics"


async def make_topics(name_server: str) -> None:
    async with Admin(name_server, request_timeout=20) as admin:
        (broker,) = await admin.list_brokers()
        topics = [TopicConfig(f"Many{number:05d}", 4, 4) for number in range(MANY)]
        for begin in range(0, MANY, 1000):  # the most that a request may name
            body = CreateTopicListRequestBody(topics[begin : begin + 1000])
            await admin.client.check(broker.address, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, fastjson.dumps(body.to_json()))
