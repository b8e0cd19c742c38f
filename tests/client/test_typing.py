"""The public interface, strictly type-checked from a user's file: what is right passes, what is wrong does not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import firearrow

pytest.importorskip("mypy")

SOURCE = Path(firearrow.__file__).parent.parent

RIGHT = """
from __future__ import annotations

import concurrent.futures
from datetime import datetime, timedelta

from typing_extensions import assert_type

import firearrow as fa
import firearrow.aio as aio
from firearrow.testing import Cluster

with fa.Producer("127.0.0.1:9876", group="orders") as producer:
    result = producer.send(fa.Message("Orders", b"hello", tags="new", keys=["A1"], properties={"n": "1"}))
    assert_type(result, fa.SendResult)
    print(result.msg_id, result.queue_id, result.queue_offset)
    producer.send(fa.Message("Orders", b"later"), delay=10)
    producer.send(fa.Message("Orders", b"later"), deliver_at=datetime.now() + timedelta(hours=1))
    producer.send(fa.Message("Orders", b"later"), delay_level=3)
    producer.send(fa.Message("Orders", b"in order"), sharding_key="order-7")
    assert_type(producer.send_batch([fa.Message("Orders", b"a"), fa.Message("Orders", b"b")]), list[fa.SendResult])
    producer.send_oneway(fa.Message("Orders", b"gone"))
    assert_type(producer.send_nowait(fa.Message("Orders", b"soon")), concurrent.futures.Future[fa.SendResult])
    assert_type(producer.request(fa.Message("Orders", b"how much?"), timeout=0.1), fa.ReceivedMessage)
    producer.recall(result)
    assert_type(producer.queues("Orders"), list[fa.MessageQueue])


def handle(message: fa.ReceivedMessage) -> None:
    print(message.body, message.tags, message.reconsume_times)
    raise fa.RetryLater(3)


async def handle_async(message: fa.ReceivedMessage) -> None:
    print(message.body)


def handle_many(messages: list[fa.ReceivedMessage]) -> None:
    print(len(messages))


with fa.PushConsumer("127.0.0.1:9876", group="billing", subscribe={"Orders": "new || paid"}, listener=handle) as consumer:
    consumer.run(timeout=5)
    consumer.pause()
    consumer.resume()

fa.PushConsumer(
    group="billing", subscribe={"Orders": fa.Sql("amount > 100")}, listener=handle_many, batch_size=10, orderly=True,
    allocation=fa.ConsistentHash(), credentials=fa.Credentials("key", "secret"), start_from="earliest",
)
fa.PushConsumer(group="billing", subscribe={"Orders": "*"}, listener=handle_async, start_from=datetime(2024, 1, 1))

with fa.PullConsumer("127.0.0.1:9876", group="audit", topics=["Orders"]) as pull:
    for message in pull:
        assert_type(message, fa.ReceivedMessage)
        break
    assert_type(pull.poll(0.1, max_messages=5), list[fa.ReceivedMessage])
    for queue in pull.assignment():
        pull.seek(queue, "earliest")
        pull.seek(queue, datetime.now())
        pull.seek(queue, 7)
    assert_type(pull.lag(), dict[fa.MessageQueue, int])
    pull.commit()


def execute(message: fa.Message, argument: object) -> fa.LocalTransactionState:
    return fa.LocalTransactionState.COMMIT


def check(message: fa.ReceivedMessage) -> fa.LocalTransactionState:
    return fa.LocalTransactionState.UNKNOWN


with fa.TransactionProducer("127.0.0.1:9876", group="tx", execute=execute, check=check) as transactions:
    assert_type(transactions.send_in_transaction(fa.Message("Orders", b"x"), 7), fa.TransactionSendResult)
    assert_type(transactions.send(fa.Message("Orders", b"x")), fa.SendResult)


async def main() -> None:
    async with aio.Producer("127.0.0.1:9876") as producer:
        assert_type(await producer.send(fa.Message("Orders", b"hello")), fa.SendResult)
    async with aio.PullConsumer("127.0.0.1:9876", group="audit", topics=["Orders"]) as consumer:
        async for message in consumer:
            assert_type(message, fa.ReceivedMessage)


def test_order_is_closed_after_two_hours(firearrow_broker: Cluster) -> None:
    with firearrow_broker.producer() as p:
        p.send(fa.Message("CloseOrder", b"42"), delay_level=18)
    firearrow_broker.clock.advance(hours=2)
    assert [m.body for m in firearrow_broker.messages("CloseOrder")] == [b"42"]


class Counting:
    def before_send(self, context: fa.SendContext) -> None:
        print(context.messages)

    def after_send(self, context: fa.SendContext) -> None:
        print(context.result, context.error)


fa.Producer(hooks=[Counting()])
try:
    fa.Producer("127.0.0.1:9876").start()
except fa.BrokerError as error:
    print(error.code, error.remark)
except fa.FirearrowError:
    pass
"""

WRONG = """
import firearrow as fa

fa.Producer(9876)
fa.Producer("a:1", retires=3)
producer = fa.Producer("a:1")
producer.send(b"hello")
producer.send(fa.Message("T", b"x"), delays=3)
producer.send(fa.Message("T", "text"))
producer.sendd
result: str = producer.send(fa.Message("T", b"x"))
fa.PushConsumer("a:1", group="g", subscribe={"T": "*"})
fa.PushConsumer("a:1", group="g", subscribe={"T": "*"}, listener=lambda a, b: None)
consumer = fa.PullConsumer("a:1", group="g", topics=["T"])
consumer.seek("T", 7)
consumer.seek(consumer.assignment()[0], "middle")
fa.TransactionProducer("a:1", group="g")
fa.Nothing
"""


def mypy(directory: Path, text: str) -> tuple[int, str]:
    """A user's project: their file and the package, with no configuration of ours."""
    (directory / "user.py").write_text(textwrap.dedent(text))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--config-file",
            "",
            "--cache-dir",
            str(SOURCE.parent / ".mypy_cache"),
            "user.py",
        ],
        capture_output=True,
        text=True,
        cwd=directory,
        env={**os.environ, "MYPYPATH": str(SOURCE)},
        timeout=280,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_interface_passes_strict_checks(tmp_path: Path) -> None:
    status, output = mypy(tmp_path, RIGHT)
    assert (status, output) == (0, "Success: no issues found in 1 source file\n")


def test_mistakes_are_found(tmp_path: Path) -> None:
    status, output = mypy(tmp_path, WRONG)
    found = {int(line) for line in re.findall(r"^user\.py:(\d+): error", output, flags=re.MULTILINE)}
    lines = WRONG.splitlines()
    harmless = {
        number for number, line in enumerate(lines, 1) if not line or line.startswith(("import", "producer =", "consumer ="))
    }

    assert status == 1
    assert [lines[number - 1] for number in sorted(set(range(1, len(lines) + 1)) - harmless - found)] == [], output
