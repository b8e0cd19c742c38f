"""The load program against a fake broker: requests, counts and detected faults."""

from __future__ import annotations

import os
import shutil
import struct
import time
from itertools import count
from pathlib import Path

import pytest

from bench.load import LoadResult, build, call
from bench.process import BenchError
from tests.bench.fake_broker import FakeBroker, Header, encode, record, sub_messages

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler (cc) to build the load program with")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(program=tmp_path_factory.mktemp("load") / "load")


def drive(program: Path, broker: FakeBroker, mode: str, *options: str) -> LoadResult:
    return call([mode, "--port", str(broker.port), "--warm", "0", *options], program)


def exactly(messages: int) -> tuple[str, ...]:
    return ("--seconds", "0", "--messages", str(messages))


def properties(text: str) -> dict[str, str]:
    return dict(pair.split("\x01") for pair in text.split("\x02") if pair)


def test_every_send_is_acknowledged_once_and_spread_over_the_queues(program: Path) -> None:
    with FakeBroker() as broker:
        result = drive(program, broker, "send", "--conns", "3", "--depth", "4", "--size", "10", "--topic", "t", *exactly(200))
    assert (result.msgs, result.acknowledged, result.fault) == (200, 200, None)
    assert broker.queue_lengths == {("t", queue): 50 for queue in range(4)}
    assert {body for _, body in broker.requests} == {b"x" * 10}
    assert 0 < result.p50_ms <= result.p99_ms <= result.p999_ms <= result.max_ms


def test_message_keys_are_unique(program: Path) -> None:
    with FakeBroker() as broker:
        drive(program, broker, "send", *exactly(50))
        drive(program, broker, "send", *exactly(50))
    sent = [properties(header["extFields"]["i"]) for header, _ in broker.requests]
    assert {tuple(sorted(p)) for p in sent} == {("KEYS", "TAGS", "UNIQ_KEY", "WAIT")}
    assert len({p["UNIQ_KEY"] for p in sent}) == 100
    assert len({p["KEYS"] for p in sent}) == 100
    assert {len(p["UNIQ_KEY"]) for p in sent} == {32}


def test_batch_is_well_formed_and_counts_every_message(program: Path) -> None:
    with FakeBroker() as broker:
        result = drive(program, broker, "batch", "--batch", "8", "--size", "5", "--conns", "2", *exactly(80))
    assert (result.msgs, result.fault) == (80, None)
    keys = set()
    for header, body in broker.requests:
        assert (header["code"], header["extFields"]["m"]) == (320, "true")
        for message in sub_messages(body):
            total, magic, crc, flag, size = struct.unpack_from(">5i", message)
            assert (total, magic, crc, flag, size, message[20:25]) == (len(message), 0, 0, 0, 5, b"xxxxx")
            (length,) = struct.unpack_from(">h", message, 25)
            assert length == len(message) - 27
            keys.add(properties(message[27:].decode())["UNIQ_KEY"])
    assert len(keys) == 80


def test_many_topics_have_distinct_names(program: Path) -> None:
    with FakeBroker() as broker:
        drive(program, broker, "send", "--topic", "t", "--topics", "3", "--queues", "2", *exactly(12))
    assert broker.queue_lengths == {(f"t-0000{topic}", queue): 2 for topic in range(3) for queue in range(2)}


def test_pull_reads_every_queue_once_per_pass(program: Path) -> None:
    with FakeBroker() as broker:
        broker.queue_lengths.update({("t", 0): 70, ("t", 1): 32, ("t", 2): 1, ("t", 3): 0})
        result = drive(program, broker, "pull", "--topic", "t", "--conns", "4", "--passes", "2", "--seconds", "0")
    assert (result.msgs, result.fault) == (2 * 103, None)


def test_delayed_message_counts_when_delivered(program: Path) -> None:
    with FakeBroker(delay_s=1.3) as broker:
        broker.queue_lengths[("t", 1)] = 7  # what was there before is not ours
        began = time.monotonic()
        result = drive(program, broker, "delay", "--topic", "t", "--conns", "2", *exactly(40))
        took_s = time.monotonic() - began
    assert (result.msgs, result.acknowledged, result.fault) == (40, 40, None)
    assert 0.25 < result.seconds <= took_s - 1  # all but the second of the delay level itself
    assert result.p99_ms < 1_300  # of the sends
    sent = [properties(header["extFields"]["i"]) for header, _ in broker.requests if header["code"] == 310]
    assert [p["DELAY"] for p in sent] == ["1"] * 40


def test_message_delivered_twice_is_a_gap(program: Path) -> None:
    asked = count()

    def one_too_many(header: Header, body: bytes, answers: list[bytes]) -> list[bytes]:
        if header["code"] != 30 or next(asked) < 4:  # each queue is asked once before anything is sent
            return answers
        return [encode(header, 0, {"offset": "11"})]

    with FakeBroker(one_too_many) as broker:
        result = drive(program, broker, "delay", *exactly(40))
    assert result.gaps == 4


def test_transaction_is_a_half_message_and_its_commit(program: Path) -> None:
    with FakeBroker() as broker:
        result = drive(program, broker, "transaction", "--topic", "t", "--conns", "3", "--depth", "4", *exactly(80))
    assert (result.msgs, result.acknowledged, result.fault) == (80, 80, None)
    assert broker.halves == [None] * 80
    assert broker.queue_lengths == {("t", queue): 20 for queue in range(4)}
    halves = [header["extFields"] for header, _ in broker.requests if header["code"] == 310]
    assert {fields["f"] for fields in halves} == {"4"}
    assert {properties(fields["i"])["PGROUP"] for fields in halves} == {halves[0]["a"]}


def test_rejected_commit_is_counted(program: Path) -> None:
    commits = count()

    def refuse_every_tenth(header: Header, body: bytes, answers: list[bytes]) -> list[bytes]:
        refused = header["code"] == 37 and next(commits) % 10 == 9
        return [encode(header, 1, {})] if refused else answers

    with FakeBroker(refuse_every_tenth) as broker:
        result = drive(program, broker, "transaction", "--conns", "1", *exactly(100))
    assert (result.acknowledged, result.failed) == (90, 10)


def test_rejected_request_is_counted_and_not_acknowledged(program: Path) -> None:
    numbers = count()

    def refuse_every_tenth(header: Header, body: bytes, answers: list[bytes]) -> list[bytes]:
        return [encode(header, 2, {})] if next(numbers) % 10 == 9 else answers

    with FakeBroker(refuse_every_tenth) as broker:
        result = drive(program, broker, "send", "--conns", "1", *exactly(100))
    assert (result.acknowledged, result.failed) == (90, 10)


def test_second_reply_is_stray(program: Path) -> None:
    with FakeBroker(lambda header, body, answers: answers * 2) as broker:
        result = drive(program, broker, "send", "--conns", "1", "--depth", "8", *exactly(40))
    assert result.acknowledged == 40
    assert result.stray > 0
    assert result.fault is not None


def test_repeated_offset_is_a_gap(program: Path) -> None:
    with FakeBroker(lambda header, body, answers: [encode(header, 0, {"queueOffset": "7"})]) as broker:
        result = drive(program, broker, "send", *exactly(40))
    assert result.gaps == 4  # one for each queue


def test_pulled_record_with_wrong_offset_is_a_gap(program: Path) -> None:
    def skip_one(header: Header, body: bytes, answers: list[bytes]) -> list[bytes]:
        return [encode(header, 0, {"nextBeginOffset": "2", "maxOffset": "2"}, record(0) + record(5))]

    with FakeBroker(skip_one) as broker:
        result = drive(program, broker, "pull", "--queues", "1", "--conns", "1", "--passes", "1", "--seconds", "0")
    assert (result.msgs, result.gaps) == (2, 1)


def test_open_loop_stall_affects_every_request_due_meanwhile(program: Path) -> None:
    numbers = count()

    def stall_once(header: Header, body: bytes, answers: list[bytes]) -> list[bytes]:
        if next(numbers) == 20:
            time.sleep(0.5)
        return answers

    with FakeBroker(stall_once) as broker:
        result = drive(program, broker, "send", "--conns", "1", "--rate", "200", "--seconds", "1")
    # About half of all requests were due during the half second: a closed loop would report a single slow one.
    assert result.p99_ms > 300
    assert 150 <= result.acknowledged <= 201
    assert result.fault is None


def test_closed_connection_ends_the_run_with_the_reason(program: Path) -> None:
    def break_off(header: Header, body: bytes, answers: list[bytes]) -> list[bytes]:
        raise ConnectionError

    with FakeBroker(break_off) as broker, pytest.raises(BenchError, match=r"closed a connection|Connection reset"):
        drive(program, broker, "send", "--conns", "1", *exactly(10))


def test_cpu_time_is_reported_per_message(program: Path) -> None:
    with FakeBroker() as broker:
        # The fake broker lives in this process.
        result = drive(program, broker, "send", "--conns", "4", "--depth", "8", "--pid", str(os.getpid()), "--seconds", "0.5")
    assert 1 < result.cpu_us_per_msg < 10_000


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["push"], "not one of send, batch, pull, delay, transaction"),
        (["send", "--depth", "0"], "expected 1 to 4096"),
        (["send", "--size", "many"], "a number of 0 or more is expected"),
        (["send", "--speed", "9"], "unknown option --speed"),
        (["send", "--depth"], "needs a value"),
        (["send", "--seconds", "0"], "would not end"),
        (["pull", "--rate", "9"], "for send and batch"),
        (["transaction", "--rate", "9"], "for send and batch"),
        (["delay", "--warm", "1"], "measures the whole run"),
        (["send", "--port", "1"], "cannot connect to 127.0.0.1:1"),
    ],
)
def test_invalid_usage_is_reported_in_one_line(program: Path, arguments: list[str], reason: str) -> None:
    with pytest.raises(BenchError, match=reason):
        call(arguments, program)
