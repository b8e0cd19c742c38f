"""Clients in other languages: Go v2, Node's ali-ons and the C++ core in the Python package `rocketmq`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance import builds
from tests.conformance.conftest import MakeTopic, fresh
from tests.conformance.servers import Cluster

COUNT = 20


def go_command() -> list[str]:
    return [str(builds.go_program())]


def node_command() -> list[str]:
    return ["node", str(builds.node_directory() / "client.js")]


def cpp_command() -> list[str]:
    return [str(builds.cpp_python()), str(Path(__file__).parent / "cpp" / "client.py")]


@pytest.mark.parametrize(
    ("tools", "command", "sent_count"),
    [(["go"], go_command, 2 * COUNT), (["node", "npm"], node_command, COUNT), ([], cpp_command, COUNT)],
    ids=["go", "node", "cpp"],
)
def test_sends_and_consumes(
    cluster: Cluster, make_topic: MakeTopic, tmp_path: Path, tools: list[str], command: Callable[[], list[str]], sent_count: int
) -> None:
    reason = builds.missing_tools(*tools)
    if reason is not None:
        pytest.skip(reason)
    topic, group = make_topic(), fresh("other")

    # Each of them writes logs to the user's home.
    done = subprocess.run(
        [*command(), cluster.namesrv, topic, group, str(COUNT)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
    )

    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    result = json.loads(done.stdout.splitlines()[-1])
    assert len(result["sent"]) == sent_count
    assert sorted(one["body"] for one in result["received"]) == sorted(one["body"] for one in result["sent"])
    # The consumer finds each message at the offset of its send result.
    places = {one["body"]: (one.get("queueId"), one["queueOffset"]) for one in result["received"]}
    for one in result["sent"]:
        queue_id, queue_offset = places[one["body"]]
        assert queue_offset == one["queueOffset"]
        assert one.get("queueId", queue_id) == queue_id
    assert {one["tags"] for one in result["received"]} <= {"TagGo", "TagNode", "TagCpp"}
