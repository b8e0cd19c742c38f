"""Op messages: both forms of their body, when they are written, and which are still needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow.broker.transaction.op_queue import OpMessages, parse_offsets
from firearrow.wire.names import TRANS_OP_HALF_TOPIC
from tests.broker.kit import HOST, T0, Kit


@pytest.mark.parametrize(
    ("body", "offsets"),
    [
        (b"123", [123]),
        (b"2,3,5,6,7,0,1,4,", [2, 3, 5, 6, 7, 0, 1, 4]),
        (b"12", [12]),
        (b"12,13", [12, 13]),
        (b"", []),
        (b",,", []),
        (b"-1,", []),
        (b"1,x,2,", [1, 2]),
        (b"99999999999999999999999,5,", [5]),
        (b"\xff\x00,7,", [7]),
    ],
)
def test_both_body_formats_are_parsed(body: bytes, offsets: list[int]) -> None:
    assert parse_offsets(body) == offsets


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    kit = Kit(tmp_path, transaction_op_msg_max_size=6, transaction_op_batch_interval=3_000)
    yield kit
    kit.close()


def make(kit: Kit) -> OpMessages:
    return OpMessages(kit.settings, kit.context.writer, HOST, 0)


def test_batch_is_due_by_age_or_size(kit: Kit) -> None:
    ops = make(kit)
    assert not ops.is_due(T0)
    ops.add(1, T0)
    assert [ops.is_due(T0 + ms) for ms in (0, 2_999, 3_000)] == [False, False, True]
    assert ops.is_due(T0 - 1)  # the clock was set back
    ops.add(2, T0 + 1)
    assert not ops.is_due(T0 + 2)
    ops.add(3, T0 + 2)
    assert ops.is_due(T0 + 2)
    ops.write(T0 + 2)
    assert not ops.is_due(T0 + 10_000)


def test_empty_batch_is_written_only_as_a_mark(kit: Kit) -> None:
    ops = make(kit)
    ops.write(T0)
    assert kit.store.appended_offset == 0
    ops.write(T0, mark=True)
    assert kit.store.queue(TRANS_OP_HALF_TOPIC, 0).next_offset == 1


def test_an_op_message_is_needed_until_the_halves_it_names_are_passed(kit: Kit) -> None:
    ops = make(kit)
    for halves in ((5, 1), (2,), (9, 0), (3,)):
        for half in halves:
            ops.add(half, T0)
        ops.write(T0)
    assert [ops.advance(first_open) for first_open in (0, 5, 6, 9, 10)] == [0, 0, 2, 2, 4]
