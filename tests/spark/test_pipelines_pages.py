"""Output of the jobs: admin tables, lag over time, pages with charts, and command-line messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from firearrow.admin.sync import Admin
from firearrow.cli.main import main
from firearrow.wire.names import retry_topic
from tests.spark import needs
from tests.spark.test_pipelines_local import fill

pytestmark = needs.arrow


def consume(brokers: Any, topic: str, group: str) -> None:
    """Create a group and commit its offsets at the end of a topic."""

    from firearrow.spark.cluster import cluster_client
    from firearrow.spark.options import write_options

    with Admin(brokers.name_server) as admin:
        admin.create_group(group)
        admin.create_topic(retry_topic(group), queues=1)
    servers = cluster_client(write_options({"nameServer": brokers.name_server}).client())
    servers.commit(group, servers.max_offsets(servers.queues([topic])))


class Page(HTMLParser):
    """HTML parser that requires balanced tags and no external resources."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "img", "iframe")
        assert not any(name in ("src", "href") for name, _ in attrs)
        self.seen.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_lag_writes_a_history_and_a_page(brokers: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    brokers.create_topic("Watched", 2)
    fill(brokers, "Watched", 40)
    consume(brokers, "Watched", "watchers")
    fill(brokers, "Watched", 100, first=40)
    words = [
        "spark",
        "lag",
        "-n",
        brokers.name_server,
        "--group",
        "watchers",
        "--history",
        str(tmp_path / "history"),
        "-o",
        "json",
    ]

    for number in range(2):
        with pytest.raises(SystemExit) as ended:
            main([*words, "--html", str(tmp_path / "lag.html")])
        assert ended.value.code == 0
        fill(brokers, "Watched", 10, first=200 + number)

    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    group = [event for event in events if event["event"] == "group" and event["topic"] == "Watched"][-1]
    assert (group["lag"], len(group["history"])) == (110, 2)
    assert [lag for _, lag in group["history"]] == [100, 110]
    assert sum(queue["lag"] for queue in group["by_queue"]) == 110
    page = Page((tmp_path / "lag.html").read_text())
    assert {"svg", "polyline", "circle"} <= set(page.seen)
    assert "watchers" in page.text
    assert "110" in page.text


def test_names_on_a_page_are_escaped() -> None:
    from firearrow.spark.pipelines.lag import GroupLag
    from firearrow.spark.reports.lag import lag_page

    page = Page(lag_page([GroupLag("<script>alert(1)</script>", "a&b", 3, 0, 1, "b 0", 3, history=[(0, 1), (9, 3)])], "x"))

    assert "<script>alert(1)</script>" in page.text
    assert "a&b" in page.text


def test_admin_tables(brokers: Any) -> None:
    from firearrow.spark.errors import SparkOptionError
    from firearrow.spark.read.admin_tables import table_columns, table_rows

    brokers.create_topic("Listed", 2)
    fill(brokers, "Listed", 30)
    consume(brokers, "Listed", "listeners")

    def rows(table: str, **more: str) -> list[dict[str, Any]]:
        found = table_rows({"nameServer": brokers.name_server, "table": table, **more})
        return [dict(zip(table_columns(table), row, strict=True)) for row in found]

    assert [(row["topic"], row["writeQueues"]) for row in rows("topics", topic="Listed")] == [("Listed", 4)]
    assert sum(row["messages"] for row in rows("queues", topic="Listed")) == 30
    assert [row["group"] for row in rows("groups", group="listeners")] == ["listeners"]
    lag = [row for row in rows("lag", group="listeners") if row["topic"] == "Listed"]
    assert sum(row["brokerOffset"] for row in lag) == 30
    with brokers.producer(group="makers") as producer:
        from firearrow import Message

        producer.send(Message("Listed", b"x"))
        assert "makers" in [row["group"] for row in rows("clients") if row["side"] == "producer"]
    with pytest.raises(SparkOptionError, match=r"option table is 'topic'; did you mean topics\?"):
        rows("topic")
    with pytest.raises(SparkOptionError, match=r"unknown option 'grup'; did you mean group\?"):
        rows("lag", grup="x")
    with pytest.raises(SparkOptionError, match="the group 'nobody' does not exist"):
        rows("lag", group="nobody")


def test_dry_run_prints_the_plan(brokers: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    brokers.create_topic("Tried", 1)
    fill(brokers, "Tried", 25)
    words = ["-n", brokers.name_server, "--topic", "Tried", "--dry-run"]

    for job in (["archive", "--out", str(tmp_path / "a")], ["transfer", "--to-topic", "X", "--checkpoint", str(tmp_path / "c")]):
        with pytest.raises(SystemExit) as ended:
            main(["spark", *job, *words])
        assert ended.value.code == 0
        assert "25 messages" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["archive", "--topic", "A"], "missing option '--out'"),
        (["archive", "--topic", "A", "--out", "x", "--folow", "3"], "no such option --folow; did you mean --follow?"),
        (["archive", "--topic", "A", "--store", "S", "--out", "x"], "--topic and --store exclude each other"),
        (["lag", "--since", "yesterday"], "'yesterday' is not a duration; expected a number with a unit"),
        (["archiv"], "no such command 'archiv'; did you mean archive?"),
    ],
)
def test_invalid_usage_is_reported(words: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["spark", *words])

    assert ended.value.code == 2
    assert expected in capsys.readouterr().err


def test_missing_pyspark_is_reported_with_what_to_install() -> None:
    code = "import sys; sys.modules['pyspark'] = None; from firearrow.cli.main import main; main(['spark', 'sql', 'SELECT 1'])"

    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, text=True, timeout=60)

    assert ended.returncode == 1
    assert ended.stderr == "firearrow spark sql: pyspark is not installed: pip install 'firearrow[spark]'\n"


def test_missing_java_is_reported_with_what_to_install(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path), "JAVA_HOME": ""}
    words = ["spark", "sql", "SELECT 1", "--archive", str(tmp_path)]

    ended = subprocess.run(
        [sys.executable, "-m", "firearrow", *words], env=environment, capture_output=True, check=False, text=True, timeout=60
    )

    assert ended.returncode == 1
    assert ended.stdout == ""
    if "is not installed: pip install 'firearrow[spark]'" not in ended.stderr:
        assert "Spark needs Java 17 or later, which was not found: install it" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
