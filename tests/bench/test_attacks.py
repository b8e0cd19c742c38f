"""Evaluation of attacks: the probe, the limits and the table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bench.apache import Apache
from bench.attack_kinds import ATTACKS
from bench.attacks import Damage, damage_table, probe_until, run
from bench.firearrow import Firearrow
from bench.process import BenchError
from bench.session import Session
from bench.targets import Target


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize(
    ("damage", "verdict"),
    [
        (Damage("a", 0.3, 200.0), "ok"),
        (Damage("a", 0.31, 0.0), "MISSED"),
        (Damage("a", 0.0, 201.0), "MISSED"),
        (Damage("a", 0.0, 0.0, ["the route was captured"]), "MISSED, the route was captured"),
    ],
)
def test_limits_of_time_and_memory(damage: Damage, verdict: str) -> None:
    assert damage.verdict == verdict


def test_table_has_the_damage_of_one_server() -> None:
    head, rule, row = damage_table([[Damage("locks", 0.0256, 12.4)]], ["ours"]).splitlines()
    assert cells(head) == ["attack", "longest block, s", "memory, MB", ""]
    assert set(rule) == {"|", "-"}
    assert cells(row) == ["locks", "0.026", "+12", "ok"]


def test_table_compares_two_checkouts() -> None:
    head, _, row = damage_table([[Damage("locks", 2.8, 300.0), Damage("locks", 0.02, -1.0)]], ["before", "after"]).splitlines()
    assert cells(head)[1:3] == ["longest block, s, before", "memory, MB, before"]
    assert cells(row) == ["locks", "2.800", "+300", "MISSED", "0.020", "-1", "ok"]


def test_probe_asks_in_turns_and_reports_refusals_once() -> None:
    asked: Counter[str] = Counter()

    def answered(name: str, code: int) -> int:
        asked[name] += 1
        return code

    outcome = probe_until(lambda: asked.total() == 6, [lambda: answered("good", 0), lambda: answered("bad", 2)])

    assert asked == {"good": 3, "bad": 3}
    assert outcome.faults == ["the probe was refused with code 2"]


def test_broken_connection_ends_the_probe() -> None:
    def broken() -> int:
        raise ConnectionResetError

    assert probe_until(lambda: False, [broken]).faults == ["the probe failed: ConnectionResetError"]


def test_names_of_attacks_are_unique() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)


@pytest.mark.parametrize(
    ("target", "problem"),
    [(Firearrow(), "no attack has 'no such attack' in its name"), (Apache(touch_heap=False), "Firearrow only")],
    ids=["unknown attack", "Apache"],
)
def test_selection_that_cannot_be_measured_is_rejected(tmp_path: Path, target: Target, problem: str) -> None:
    session = Session(target, None, rounds=1, seconds=1, quick=True, only=["no such attack"], work=tmp_path)
    with pytest.raises(BenchError, match=problem):
        run(session)
