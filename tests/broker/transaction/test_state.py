"""Fates of half messages, on their own and against a plain model."""

from __future__ import annotations

import random

import pytest

from firearrow.broker.transaction import state
from firearrow.broker.transaction.state import COMMITTED, ENDED, MOVED, OPEN, ROLLED_BACK, UNKNOWN, HalfStates


def test_unknown_offsets_are_open() -> None:
    halves = HalfStates(5)
    assert [halves.state(offset) for offset in (4, 5, 1_000_000)] == [UNKNOWN, OPEN, OPEN]
    assert halves.next_open(0, 10) == 5
    assert halves.next_open(8, 10) == 8
    assert halves.next_open(12, 10) == 10


def test_state_is_final() -> None:
    halves = HalfStates(0)
    halves.settle(3, COMMITTED)
    halves.settle(3, ROLLED_BACK)
    assert halves.state(3) == COMMITTED


def test_first_open_advances_past_settled_halves() -> None:
    halves = HalfStates(0)
    for offset in (0, 1, 3, 4):
        halves.settle(offset, COMMITTED)
    assert halves.advance(6) == 2
    halves.settle(2, ROLLED_BACK)
    assert halves.advance(6) == 5
    assert halves.advance(5) == 5
    halves.settle(5, ROLLED_BACK)
    assert halves.advance(6) == 6
    assert halves.state(2) == ROLLED_BACK  # still known
    assert halves.next_open(0, 9) == 6


def test_the_newest_copy_is_the_open_one() -> None:
    halves = HalfStates(0)
    halves.moved(0, 0, 7)
    halves.moved(0, 7, 9)
    assert [halves.state(offset) for offset in (0, 7, 9)] == [MOVED, MOVED, OPEN]
    assert [halves.open_copy(0, offset) for offset in (0, 7, 9)] == [9, 9, 9]
    halves.decide(0, 9, COMMITTED)
    assert [halves.open_copy(0, offset) for offset in (0, 7, 9)] == [None, None, None]
    assert not halves.is_moved(0)


def test_deleted_halves_are_not_open() -> None:
    halves = HalfStates(0)
    halves.moved(0, 0, 3)
    halves.skip_to(10)
    assert (halves.first_open, halves.next_open(0, 20)) == (10, 10)
    assert halves.state(4) == UNKNOWN
    assert halves.open_copy(0, 0) is None
    assert halves.advance(20) == 10


@pytest.mark.parametrize("seed", range(5))
def test_states_match_a_model(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "KEEP_BELOW", 8)
    choose = random.Random(seed)
    halves, model, first, end = HalfStates(100), dict[int, int](), 100, 100
    for _ in range(2_000):
        end += choose.randrange(3)
        offset = choose.randrange(max(first - 20, 0), end + 1)
        if offset < end and choose.random() < 0.7:
            fate = choose.choice([COMMITTED, ROLLED_BACK, ENDED])
            halves.settle(offset, fate)
            if offset >= first:
                model.setdefault(offset, fate)
        while first < end and first in model:
            first += 1
        assert halves.advance(end) == first
        assert halves.last_open(offset) == next((o for o in range(offset - 1, first - 1, -1) if o not in model), None)
        assert halves.next_open(offset, end) == next((o for o in range(max(offset, first), end) if o not in model), end)
        if offset >= first:
            assert halves.state(offset) == model.get(offset, OPEN)


def test_next_open_is_found_fast_behind_a_million_decided() -> None:
    halves = HalfStates(0)
    halves.settle(1_000_000, COMMITTED)
    for offset in range(1, 1_000_000, 997):
        halves.settle(offset, COMMITTED)
    assert halves.advance(2_000_000) == 0
    halves.settle(0, COMMITTED)
    assert halves.advance(2_000_000) == 2
