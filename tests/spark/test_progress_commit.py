"""Commits of stream progress: which offsets are committed, and errors. The listener is driven without a Spark session."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from firearrow.spark.errors import SparkOptionError
from firearrow.spark.read.offsets import Offsets, Queue

MODULE = "firearrow.spark.progress_commit"
Q0, Q1 = Queue("T", "a", 0), Queue("T", "a", 1)


class Cluster:
    """Records commits; the next ones fail while `error` is set."""

    def __init__(self) -> None:
        self.commits: list[tuple[str, Offsets]] = []
        self.error: Exception | None = None

    def commit(self, group: str, offsets: Offsets) -> None:
        if self.error is not None:
            raise self.error
        self.commits.append((group, dict(offsets)))


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module under test, with a plain base class for the listener if PySpark is not installed."""
    if importlib.util.find_spec("pyspark") is None:
        for name in ("pyspark", "pyspark.sql", "pyspark.sql.streaming"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        monkeypatch.setattr(sys.modules["pyspark.sql.streaming"], "StreamingQueryListener", object, raising=False)
    imported = importlib.import_module(MODULE)
    monkeypatch.setattr(imported, "ensure_group", lambda options, group: None)
    yield imported
    sys.modules.pop(MODULE)


@pytest.fixture
def cluster(module: Any, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(module, "cluster_client", lambda options: made)
    return made


def listener(module: Any, query: str | None = None) -> Any:
    streams = SimpleNamespace(addListener=lambda listener: None)
    return module.commit_progress(SimpleNamespace(streams=streams), "127.0.0.1:9876", "job", query=query)


def progress(*end_offsets: str | None, name: str = "q") -> Any:
    sources = [SimpleNamespace(endOffset=text) for text in end_offsets]
    return SimpleNamespace(progress=SimpleNamespace(name=name, sources=sources))


def test_only_changed_offsets_are_committed(module: Any, cluster: Cluster) -> None:
    made = listener(module)
    made.onQueryProgress(progress('{"T": {"a": {"0": 5, "1": 7}}}'))
    made.onQueryProgress(progress('{"T": {"a": {"0": 6, "1": 7}}}'))
    assert cluster.commits == [("job", {Q0: 5, Q1: 7}), ("job", {Q0: 6})]
    assert made.committed == {Q0: 6, Q1: 7}


def test_progress_of_other_queries_is_ignored(module: Any, cluster: Cluster) -> None:
    made = listener(module, query="mine")
    made.onQueryProgress(progress('{"T": {"a": {"0": 5}}}', name="other"))
    assert cluster.commits == []
    made.onQueryProgress(progress('{"T": {"a": {"0": 5}}}', name="mine"))
    assert cluster.commits == [("job", {Q0: 5})]


def test_failed_commit_is_logged_and_repeated_with_the_next_progress(
    module: Any, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    made = listener(module)
    cluster.error = ConnectionError("brokers are down")
    with caplog.at_level(logging.WARNING, "firearrow.spark"):
        made.onQueryProgress(progress('{"T": {"a": {"0": 5}}}'))
    assert "could not commit the progress of a stream: brokers are down" in caplog.text
    cluster.error = None
    made.onQueryProgress(progress('{"T": {"a": {"0": 5}}}'))
    assert cluster.commits == [("job", {Q0: 5})]


@pytest.mark.parametrize("text", [None, "", "5", "[1]", "not JSON", '{"logOffset": 3}', '{"T": {"a": {"0": -1}}}'])
def test_offsets_of_other_sources_are_ignored(module: Any, text: str | None) -> None:
    assert module.parse_source_offsets(text) == {}


def test_invalid_group_name_is_rejected(module: Any) -> None:
    with pytest.raises(SparkOptionError, match="consumer_group is 'a b'"):
        module.commit_progress(SimpleNamespace(), "127.0.0.1:9876", "a b")
