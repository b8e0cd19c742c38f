"""Apache's own configuration files: read, and written again without loss."""

from __future__ import annotations

import gzip
import json
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from firearrow.broker.settings import BrokerSettings
from firearrow.broker.tables.consumer_offsets import OffsetTable
from firearrow.broker.tables.groups import GroupTable
from firearrow.broker.tables.persistence import EntryTexts, TableFile
from firearrow.broker.tables.topics import TopicTable
from firearrow.wire import fastjson

STORES = Path(__file__).parents[2] / "fixtures" / "store"
CASES = ["a-clean", "b-crash", "d-retention"]


def apache(case: str, name: str) -> tuple[Any, Any]:
    """(the file as Apache wrote it, parsed by us; the same as the manifest has it)"""
    with tarfile.open(STORES / f"{case}.tar.gz") as archive:
        member = archive.extractfile(f"store/config/{name}")
        assert member is not None
        ours = fastjson.loads(member.read())
    with gzip.open(STORES / f"{case}.manifest.json.gz") as manifest:
        return ours, json.load(manifest)["config"][name]


def normal(value: Any) -> Any:
    """Through JSON, so that integer keys compare equal to text; without order, which maps do not have."""
    return json.loads(json.dumps(value, sort_keys=True))


@pytest.mark.parametrize("case", CASES)
def test_topics(case: str) -> None:
    read, expected = apache(case, "topics.json")
    settings = BrokerSettings(broker_cluster_name="DefaultCluster", broker_name="broker-a")
    topics = TopicTable(settings)
    topics.load(read)
    assert fastjson.loads(fastjson.dumps_pretty(topics.file_form())) == normal(expected)


@pytest.mark.parametrize("case", CASES)
def test_groups(case: str) -> None:
    read, expected = apache(case, "subscriptionGroup.json")
    groups = GroupTable(BrokerSettings())
    groups.load(read)
    assert normal(fastjson.loads(fastjson.dumps(groups.to_json()))) == normal(expected)
    version = groups.data_version
    groups.add_built_in_groups(1)
    assert groups.data_version == version, "Apache has the same built-in groups"


@pytest.mark.parametrize("case", CASES)
def test_offsets(case: str) -> None:
    read, expected = apache(case, "consumerOffset.json")
    offsets = OffsetTable()
    offsets.load(read)
    written = fastjson.loads(fastjson.dumps_pretty(offsets.to_json()))
    assert written.pop("groupTopicMap").keys() == expected.pop("groupTopicMap").keys()
    assert written == normal(expected)


def test_soon_writes_once_for_many_changes_and_again_for_later_ones() -> None:
    written: list[Any] = []
    jobs: list[Callable[[], None]] = []
    state = {"n": 0}
    file = TableFile(written.append, lambda: dict(state), jobs.append)
    for number in range(1, 4):
        state["n"] = number
        file.soon()
    assert (len(jobs), written) == (1, [])
    jobs.pop()()
    assert written == [{"n": 3}]
    file.soon()
    assert len(jobs) == 1


def test_a_slow_background_write_never_overwrites_a_newer_one() -> None:
    written: list[int] = []
    begun, go_on = threading.Event(), threading.Event()
    state = {"n": 1}

    def save(table: dict[str, Any]) -> None:
        if table["n"] == 1:
            begun.set()
            assert go_on.wait(60)
        written.append(table["n"])

    file = TableFile(save, lambda: dict(state))
    background = threading.Thread(target=file.now)
    background.start()
    assert begun.wait(60)
    state["n"] = 2
    operator = threading.Thread(target=file.now)
    operator.start()
    go_on.set()
    background.join(60)
    operator.join(60)
    assert written == [1, 2]


def test_a_write_that_failed_is_tried_again_with_the_next_change() -> None:
    written: list[int] = []
    failures = [OSError("disk full")]

    def save(table: dict[str, Any]) -> None:
        if failures:
            raise failures.pop()
        written.append(table["n"])

    errors: list[BaseException] = []

    def submit(job: Callable[[], None]) -> None:
        try:
            job()
        except OSError as error:
            errors.append(error)

    file = TableFile(save, lambda: {"n": 7}, submit)
    file.soon()
    file.soon()
    assert (len(errors), written) == (1, [7])


def test_joined_texts_are_what_the_writer_would_have_written() -> None:
    table: dict[str, dict[str, Any]] = {"a": {"x": 1, "m": {"k": "v"}, "e": {}}, 'q"uote': {"l": ["t"]}, "ä": {"s": 'a": b'}}
    texts = EntryTexts()
    for name, value in table.items():
        texts.put(name, value)
    texts.put("gone", {"x": 2})
    texts.pop("gone")
    joined = fastjson.dumps_pretty({"head": 1, "table": texts.joined()})
    assert joined == fastjson.dumps_pretty({"head": 1, "table": table})
    assert fastjson.dumps_pretty({"table": EntryTexts().joined()}) == fastjson.dumps_pretty({"table": {}})
