"""Results of the SQL92 filter compared with the recorded results of Apache RocketMQ 5.5.0 (tests/conformance records them)."""

from __future__ import annotations

import pytest

from firearrow.broker.sql92 import SqlError, compile_expression
from firearrow.broker.sql92.parser import parse
from firearrow.wire import properties
from tests.broker import sql92_recorded, sql92_reference
from tests.broker.sql92_cases import MESSAGES

CASES = sql92_recorded.load()
COMPILED = [case for case in CASES if case.verdicts is not None]


def test_the_recorded_cases_are_worth_something() -> None:
    letters = "".join(case.verdicts or "" for case in COMPILED)
    assert len(CASES) > 800
    assert len(CASES) - len(COMPILED) > 150
    assert min(letters.count(letter) for letter in "TFNE") > 5000


def test_what_apache_refuses_we_refuse() -> None:
    accepted = []
    for case in CASES:
        if case.verdicts is None:
            try:
                compile_expression(case.expression)
            except SqlError:
                continue
            accepted.append(case.expression)
    assert not accepted


def test_messages_are_selected_as_apache_selects_them() -> None:
    encoded = [message.encode() for message in MESSAGES]
    for case in COMPILED:
        matches = compile_expression(case.expression).matches
        ours = "".join("T" if matches(message) else "." for message in encoded)
        assert ours == sql92_recorded.selected(case.verdicts), case.expression


def test_the_reference_of_our_other_tests_agrees_with_apache_to_the_letter() -> None:
    parsed = [properties.parse(message) for message in MESSAGES]
    for case in COMPILED:
        root, _ = parse(case.expression)
        assert "".join(sql92_reference.verdict(root, message) for message in parsed) == case.verdicts, case.expression


@pytest.mark.parametrize("message", MESSAGES, ids=range(len(MESSAGES)))
def test_a_property_is_found_as_the_wire_room_finds_it(message: str) -> None:
    for name in ("a", "b", "TAGS"):
        value = properties.find(message.encode(), name.encode())
        assert compile_expression(f"{name} IS NULL").matches(message.encode()) is (value is None)
        if value is not None:
            literal = value.decode().replace("'", "''")
            assert compile_expression(f"{name} = '{literal}'").matches(message.encode())
