"""send, consume and bench as processes, against a running `firearrow up`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.process import ANY_PORTS, PATIENCE_S, Start, read_json
from tests.support.waiting import wait_until


@pytest.fixture
def name_server(start: Start, tmp_path: Path) -> str:
    ready = tmp_path / "ready.json"
    start("up", "--data", str(tmp_path / "data"), *ANY_PORTS, "--ready-file", str(ready), "--set", "flushDiskType=ASYNC_FLUSH")
    wait_until(ready.exists, "the ready file")
    return str(read_json(ready)["namesrv"])


def firearrow(name_server: str, *words: str, stdin: bytes = b"") -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "firearrow.cli", *words, "-n", name_server],
        input=stdin,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_what_is_sent_is_consumed(name_server: str) -> None:
    code, out, err = firearrow(
        name_server,
        "send",
        "T",
        "hello",
        "--tag",
        "new",
        "--key",
        "A1",
        "--key",
        "A2",
        "--property",
        "n=1",
        "--sharding-key",
        "s",
    )
    assert (code, err) == (0, "")
    msg_id, topic, where, offset = out.split()
    assert (topic, offset) == ("T", "@0")

    code, out, err = firearrow(name_server, "consume", "T", "--count", "1", "--json")
    assert (code, err) == (0, "")
    (message,) = objects(out)
    assert (message["msg_id"], message["body"], message["tags"], message["keys"]) == (msg_id, "hello", "new", ["A1", "A2"])
    assert (message["properties"]["n"], f"{message['broker']}/{message['queue']}", message["offset"]) == ("1", where, 0)

    code, out, err = firearrow(name_server, "consume", "T", "--count", "1")
    assert out.startswith(f"{where} @0 ")
    assert out.endswith(" tags=new keys=A1,A2 hello\n")


def test_lines_and_files(name_server: str) -> None:
    code, out, err = firearrow(name_server, "send", "T", "--json", "--repeat", "2", stdin=b"one\n\ntwo\r\nthree")
    assert (code, err) == (0, "")
    assert [result["status"] for result in objects(out)] == ["SEND_OK"] * 6

    code, out, err = firearrow(name_server, "send", "T", "-", stdin=b"all\nof it\n")
    assert (code, len(out.splitlines())) == (0, 1)

    code, out, err = firearrow(name_server, "consume", "T", "--body", "--wait", "1")
    assert (code, err) == (0, "")
    assert sorted(out.splitlines()) == sorted(["one", "two", "three"] * 2 + ["all", "of it", ""])


def test_tags_sql_and_where_to_begin(name_server: str) -> None:
    firearrow(name_server, "send", "T", "new", "--tag", "new")
    firearrow(name_server, "send", "T", "old", "--tag", "old", "--property", "amount=200")

    assert firearrow(name_server, "consume", "T", "--tags", "new || paid", "--body", "--wait", "1")[:2] == (0, "new\n")
    assert firearrow(name_server, "consume", "T", "--from", "last", "--body", "--wait", "0.5")[:2] == (0, "")
    assert firearrow(name_server, "consume", "T", "--from", "1h", "--tags", "old", "--body", "--count", "1")[:2] == (0, "old\n")
    assert firearrow(name_server, "consume", "T", "--sql", "amount > 100", "--body", "--count", "1")[:2] == (0, "old\n")
    code, _, err = firearrow(name_server, "consume", "T", "--sql", "amount >", "--count", "1")
    assert code == 1
    assert "23 SUBSCRIPTION_PARSE_FAILED" in err


def test_a_group_goes_on_where_it_was(name_server: str) -> None:
    firearrow(name_server, "send", "T", "1", "--sharding-key", "k")
    firearrow(name_server, "send", "T", "2", "--sharding-key", "k")

    assert firearrow(name_server, "consume", "T", "--group", "g", "--body", "--count", "1")[1] == "1\n"
    assert firearrow(name_server, "consume", "T", "--group", "g", "--body", "--count", "1")[1] == "2\n"
    assert firearrow(name_server, "consume", "T", "--group", "g", "--body", "--wait", "0.5")[1] == ""


def test_a_consumer_without_an_end_ends_with_the_signal(name_server: str, start: Start) -> None:
    firearrow(name_server, "send", "T", "hello")
    consumer = start("consume", "T", "-n", name_server)
    assert consumer.line().endswith("hello")
    code, _ = consumer.stop(signal.SIGINT)
    assert (code, consumer.log) == (0, "")


def test_what_fails_is_one_line(name_server: str) -> None:
    code, out, err = firearrow(name_server, "consume", "Nowhere", "--count", "1")
    assert (code, out) == (1, "")
    assert err.startswith("firearrow: no route to the topic 'Nowhere'")
    assert err.count("\n") == 1

    code, out, err = firearrow("127.0.0.1:1", "send", "T", "x", "--timeout", "500")
    assert (code, out) == (1, "")
    assert "127.0.0.1:1" in err
    assert err.count("\n") == 1

    code, out, err = firearrow(name_server, "send", "T", "x", "--access-key", "a")
    assert (code, out) == (1, "")
    assert err == "firearrow: --access-key was given, but the environment variable FIREARROW_SECRET_KEY is not set\n"


@pytest.mark.parametrize("more", [["--in-flight", "50"], ["--in-flight", "1"], ["--batch", "10"]])
def test_bench_send(name_server: str, more: list[str]) -> None:
    code, out, err = firearrow(name_server, "bench", "send", "--messages", "200", "--size", "64", "--json", *more)
    assert code == 0, err
    figures = json.loads(out)
    assert figures["messages"] >= 200
    assert figures["failed"] == 0
    assert 0 < figures["latency_ms"]["p50"] <= figures["latency_ms"]["p99.9"] <= figures["latency_ms"]["max"]
    assert figures["messages_per_s"] > 0


def test_bench_consume_and_its_live_line(name_server: str) -> None:
    firearrow(name_server, "bench", "send", "--messages", "300")
    for more in ([], ["--threads", "--group", "other"]):
        code, out, err = firearrow(name_server, "bench", "consume", "--from", "first", "--messages", "300", *more)
        assert code == 0, err
        assert out.startswith("consumed 30")

    code, out, err = firearrow(name_server, "bench", "send", "--seconds", "1.5")
    assert code == 0, err
    assert "messages" in err.splitlines()[0]
    assert "/s, p99 " in err.splitlines()[0]
    assert out.splitlines()[1].startswith("latency ms: p50 ")
