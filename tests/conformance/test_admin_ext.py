"""DefaultMQAdminExt, Java's administration interface: equal answers from Apache's servers and ours."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import builds
from tests.conformance.servers import SMALL_JVM, Cluster

PROGRAM = Path(__file__).parent / "java" / "admin" / "AdminStory.java"

# Answers of both servers. `code N`: rejected with this code. Queue offsets as
# 1000 * end + consumed. Sizes depend on the length of the topic name.
EXPECTED: dict[str, Any] = {
    "cluster": True,
    "cluster address": True,
    "runtime has version": True,
    "ha": "true 0 0",
    "topic made": "3/2/6",
    "topic changed": "4/4/6",
    "topic in cluster": True,
    "topic in list": True,
    "topic in table": True,
    "user topics have no system topics": True,
    "clusters of topic": ["DefaultCluster"],
    "bad topic": "code 29",
    "unknown topic": "code 17",
    "topics at once": "1/1/6 2/2/4",
    "group made": "3/2/true",
    "group changed": "7/2/false",
    "group in table": True,
    "user groups have no system groups": True,
    "groups at once": "1/1/true",
    "reading forbidden": False,
    "reading allowed": True,
    "topic statistics": {"0": "0-3", "1": "0-3", "2": "0-3", "3": "0-3"},
    "consume statistics": {"0": 3003, "1": 3003, "2": 3003, "3": 3003},
    "statistics of all groups": 12,
    "what is consumed": True,
    "time spans": 4,
    "puts of the minute": 12,
    "gets of the minute": 12,
    "bytes of the minute": "3268 3268",
    "broker counts": True,
    "unknown statistic": "code 1",
    "connections of new groups": "111",
    "consumer connections": "1 CONSUME_PASSIVELY CLUSTERING CONSUME_FROM_FIRST_OFFSET *",
    "consumer client": "true JAVA",
    "producer connections": "1 JAVA",
    "all producers": 1,
    "unknown consumers": "code 206",
    "unknown producers": "code 1",
    "running info": "4 CONSUME_PASSIVELY 2",
    "stacks": True,
    "running info of nobody": "code 1",
    "status at the client": {"0": 3, "1": 3, "2": 3, "3": 3},
    "by id": "body 0",
    "by unique key": "body 5",
    "by key": 1,
    "track": "CONSUMED",
    "queue entries": 3,
    "consumed directly": "CR_SUCCESS",
    "offset by time": "1 3",
    "traces": ["Pub", "SubAfter", "SubBefore"],
    "trace of the send": "true true",
    "live reset": {"0": 0, "1": 0, "2": 0, "3": 0},
    "consumed again": 12,
    "statistics offline": {"0": 3003, "1": 3003, "2": 3003, "3": 3003},
    "one offset set": 1,
    "one queue reset": 2,
    "lag": 3,
    "cloned": {"0": 3, "1": 3, "2": 1, "3": 2},
    "skipped": 0,
    "broker configuration": True,
    "broker setting changed": "49",
    "forbidden setting": "code 16",
    "name server setting changed": "true",
    "forbidden setting of the name server": "code 16",
    "housekeeping": "true true true",
    "key": "value",
    "list": {"key": "value"},
    "key deleted": "code 22",
    "write permission": "true 4 true 6",
    "check of a half message resumed": "code 208",
    "group deleted": False,
    "topic deleted": "code 17",
    "route deleted": "code 17",
    "offsets deleted": "code 206",
}


@pytest.fixture(scope="module")
def answers(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    directory = tmp_path_factory.mktemp("story")
    words = [cluster.namesrv, cluster.broker, cluster.broker_name, cluster.cluster_name, f"-{int(time.time()) % 1_000_000:06}"]
    command = ["java", *SMALL_JVM, f"-Duser.home={directory}", "-cp", builds.java_server(), str(PROGRAM), *words]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=300, cwd=directory)
    story = [line for line in done.stdout.decode().splitlines() if line.startswith("{")]
    assert done.returncode == 0, (story, done.stderr.decode(errors="replace")[-4000:])
    told: dict[str, Any] = json.loads(story[-1])
    return told


@pytest.mark.parametrize("question", EXPECTED)
def test_the_answer_is_apaches(answers: dict[str, Any], question: str) -> None:
    assert answers[question] == EXPECTED[question]


def test_every_answer_is_looked_at(answers: dict[str, Any]) -> None:
    assert answers.keys() - EXPECTED.keys() == {"who consumes"}
    assert len(answers["who consumes"]) == 1
