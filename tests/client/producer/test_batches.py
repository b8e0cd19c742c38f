from __future__ import annotations

from itertools import count

import pytest

from firearrow.client.errors import InvalidMessageError
from firearrow.client.message import Message, MessageQueue, SendResult, SendStatus
from firearrow.client.producer.batches import results_of, split_into_batches
from firearrow.wire import batch
from firearrow.wire.properties import parse


def batches(messages: list[Message], max_size: int) -> list[list[tuple[int, bytes, bytes]]]:
    numbers = count()
    made = list(split_into_batches(messages, max_size, lambda: f"ID{next(numbers)}", dict))
    assert all(len(one.body) <= max_size for one in made)
    assert [m for one in made for m in one.messages] == messages
    assert [i for one in made for i in one.msg_ids] == [f"ID{n}" for n in range(len(messages))]
    return [batch.split(one.body) for one in made]


def test_messages_are_taken_in_order_as_long_as_they_fit() -> None:
    sizes = [100, 100, 100, 560, 920, 1, 1]
    made = batches([Message("T", b"x" * size, flag=n) for n, size in enumerate(sizes)], 1000)
    assert [[len(body) for _, body, _ in one] for one in made] == [[100, 100, 100], [560], [920], [1, 1]]
    assert [flag for one in made for flag, _, _ in one] == list(range(7))
    assert parse(made[0][1][2]) == {"UNIQ_KEY": "ID1", "WAIT": "true"}


def test_invalid_batches_are_rejected() -> None:
    good = Message("T", b"x")
    for bad, why in (
        (Message("U", b"x"), "mixes messages for 'T' and 'U'"),
        (Message("T", b"x", wait_store=False), "use two batches"),
        (Message("T", b""), "is empty"),
        (Message("T", b"x" * 990), r"takes 10\d\d bytes in a batch"),
    ):
        with pytest.raises(InvalidMessageError, match=why):
            batches([good, bad], 1000)


def test_each_message_has_a_result_of_its_own() -> None:
    whole = SendResult(SendStatus.OK, "A,B,C", "1,2,3", MessageQueue("T", "b", 0), 7)
    assert [(r.msg_id, r.offset_msg_id, r.queue_offset) for r in results_of(3, whole)] == [
        ("A", "1", 7),
        ("B", "2", 8),
        ("C", "3", 9),
    ]
    whole.offset_msg_id = "1"
    assert [r.offset_msg_id for r in results_of(3, whole)] == ["1", "1", "1"]
