"""Windows of idempotent producers: what is remembered, in which order it is forgotten."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firearrow.broker.dedup.windows import Producers, ProducerWindow
from firearrow.broker.requests.responses import Refused
from firearrow.wire.codes import ResponseCode


def filled(size: int, *numbers: int) -> ProducerWindow:
    window = ProducerWindow(size)
    for number in numbers:
        window.add(number, 10 + number, 100 * number)
    return window


def test_stored_number_is_found_with_its_offsets() -> None:
    window = filled(8, 3, 1)
    at = window.find(1)
    assert at is not None
    assert (window.queue_offsets[at], window.physical_offsets[at]) == (11, 100)


def test_number_between_stored_ones_is_new() -> None:
    window = filled(8, 3, 1)
    assert window.find(2) is None
    assert not window.knows(2)


def test_forgotten_number_is_rejected_with_the_highest_one() -> None:
    window = filled(4, *range(10))
    with pytest.raises(Refused, match="the highest is 9") as refused:
        window.find(0)
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
    assert window.knows(0)


def test_restored_floor_rejects_the_numbers_below_it() -> None:
    window = ProducerWindow(4)
    window.restore(7)
    assert (window.highest, window.knows(7), window.knows(8)) == (7, True, False)
    with pytest.raises(Refused):
        window.find(7)
    assert window.find(8) is None


def test_least_recently_used_window_is_evicted() -> None:
    producers = Producers(max_num=2, window_size=4)
    kept = producers.window("a", "T", 0)
    producers.window("b", "T", 0)
    assert producers.window("a", "T", 0) is kept
    producers.window("c", "T", 0)
    assert [key for key, _ in producers.items()] == [("a", "T", 0), ("c", "T", 0)]


def test_deleted_topic_is_forgotten_and_counted_as_changes() -> None:
    producers = Producers(max_num=10, window_size=4)
    for topic, queue_id in (("T", 0), ("T", 1), ("Other", 0)):
        producers.window("p", topic, queue_id)
    producers.forget("T")
    assert [key for key, _ in producers.items()] == [("p", "Other", 0)]
    assert producers.changes == 2


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.lists(st.integers(0, 40), max_size=120))
def test_window_never_accepts_a_number_twice(size: int, numbers: list[int]) -> None:
    window, taken = ProducerWindow(size), list[int]()
    for number in numbers:
        try:
            at = window.find(number)
        except Refused:
            assert number not in taken[-size:]
            continue
        if at is not None:
            assert taken[window.queue_offsets[at]] == number
        else:
            assert number not in taken
            window.add(number, len(taken), 0)
            taken.append(number)
        assert len(window.sequences) <= size + size // 8 + 1
        assert all(window.knows(known) for known in taken)


def test_numbers_are_the_same_whether_added_one_by_one_or_together() -> None:
    one, together = ProducerWindow(20), ProducerWindow(20)
    for first in range(0, 200, 10):
        wanted = range(first, first + 10)
        together.extend(wanted, wanted, wanted)
        for number in wanted:
            one.add(number, number, number)
        assert together.highest == one.highest
        assert (together.sequences, together.floor) == (one.sequences, one.floor)
