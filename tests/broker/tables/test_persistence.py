"""Apache's own configuration files: read, and written again without loss."""

from __future__ import annotations

import gzip
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from firearrow.broker.settings import BrokerSettings
from firearrow.broker.tables.consumer_offsets import OffsetTable
from firearrow.broker.tables.groups import GroupTable
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
    assert normal(topics.to_json()) == normal(expected)
    assert fastjson.loads(fastjson.dumps_pretty(topics.to_json())) == normal(expected)


@pytest.mark.parametrize("case", CASES)
def test_groups(case: str) -> None:
    read, expected = apache(case, "subscriptionGroup.json")
    groups = GroupTable(BrokerSettings())
    groups.load(read)
    assert normal(groups.to_json()) == normal(expected)
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
