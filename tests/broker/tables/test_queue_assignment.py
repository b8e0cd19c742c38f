"""Sharing queues out among members."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.broker.requests.responses import Refused
from firearrow.broker.tables.queue_assignment import share


@pytest.mark.parametrize(
    ("strategy", "queues", "members", "shares"),
    [
        ("AVG", 8, "abc", ["012", "345", "67"]),
        ("AVG", 4, "abcd", ["0", "1", "2", "3"]),
        ("AVG", 2, "abc", ["0", "1", ""]),
        ("AVG_BY_CIRCLE", 8, "abc", ["036", "147", "25"]),
        ("AVG", 0, "a", [""]),
    ],
)
def test_shares_of_each_strategy(strategy: str, queues: int, members: str, shares: list[str]) -> None:
    all_queues = [str(number) for number in range(queues)]
    assert ["".join(share(strategy, all_queues, list(members), member)) for member in members] == shares


@given(st.sampled_from(["AVG", "AVG_BY_CIRCLE"]), st.integers(0, 64), st.integers(1, 20))
def test_every_queue_has_exactly_one_owner_and_shares_differ_by_one_at_most(strategy: str, queues: int, count: int) -> None:
    members = [f"c{number:02}" for number in range(count)]
    shares = [share(strategy, range(queues), members, member) for member in members]
    assert sorted(queue for own in shares for queue in own) == list(range(queues))
    sizes = [len(own) for own in shares]
    assert max(sizes) - min(sizes) <= 1


def test_non_member_gets_no_queues() -> None:
    assert share("AVG", [0, 1], ["a"], "b") == []


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(Refused, match="MACHINE_ROOM"):
        share("MACHINE_ROOM", [0], ["a"], "a")
