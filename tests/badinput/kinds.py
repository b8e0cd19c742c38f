"""Malformed delays, timers, transactions, decisions and send-backs, with the code that rejects each.

The codes are those of Apache's broker 5.5.0, to which the conformance tests send the same requests. Apache fails with code 1 on a
missing or non-numeric field; Firearrow rejects it with code 29 and the name of the field, as in every request.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

SYSTEM_ERROR, MESSAGE_ILLEGAL, NO_GROUP, BAD_FIELD = 1, 13, 26, 29
HALF = {"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": "U1"}


class Case(NamedTuple):
    changes: Mapping[str, str | None]  # properties of a send, fields of another request; None: the field is missing
    code: int
    apaches: int | None = None  # Apache's code if it differs

    def __str__(self) -> str:
        return " ".join(f"{name}={value if value is None else value[:24]!r}" for name, value in self.changes.items())


NO_LEVELS = ("abc", " 3", "3 ", "3.0", "0x3", "99999999999", "-99999999999", "+", "1e1")
NO_TIMES = ("abc", " 5", "1.5", "99999999999999999999", "-", "1e3")
TIMERS = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")

SENDS = [
    *(Case({"DELAY": text}, SYSTEM_ERROR) for text in NO_LEVELS),
    *(Case(HALF | {"DELAY": text}, SYSTEM_ERROR) for text in NO_LEVELS),
    *(Case({name: text}, MESSAGE_ILLEGAL) for name in TIMERS for text in NO_TIMES),
    *(Case(HALF | {name: text}, MESSAGE_ILLEGAL) for name in TIMERS for text in NO_TIMES),
    Case({"TIMER_DELAY_SEC": "+259201"}, MESSAGE_ILLEGAL),
    Case({"TIMER_DELAY_MS": "259200001"}, MESSAGE_ILLEGAL),
    Case({"TIMER_DELIVER_MS": "9223372036854775807"}, MESSAGE_ILLEGAL),
    Case(HALF | {"TIMER_DELAY_SEC": "259201"}, MESSAGE_ILLEGAL),
    Case(HALF | {"TIMER_DELIVER_MS": "9223372036854775807"}, MESSAGE_ILLEGAL),
]

# Sent to a queue or topic that does not exist.
KINDS: list[dict[str, str]] = [{"DELAY": "1"}, {"TIMER_DELAY_SEC": "100"}, HALF]
PLACES = [({"e": "99"}, BAD_FIELD), ({"b": "No Topic!"}, BAD_FIELD), ({"b": "SCHEDULE_TOPIC_XXXX"}, 16)]

# Of a pending half message.
DECISIONS = [
    Case({"producerGroup": "x"}, SYSTEM_ERROR),
    Case({"producerGroup": ""}, SYSTEM_ERROR),
    Case({"producerGroup": None}, BAD_FIELD, SYSTEM_ERROR),
    Case({"tranStateTableOffset": "77"}, SYSTEM_ERROR),
    Case({"tranStateTableOffset": "-1"}, SYSTEM_ERROR),
    Case({"tranStateTableOffset": "x"}, BAD_FIELD, SYSTEM_ERROR),
    Case({"tranStateTableOffset": None}, BAD_FIELD, SYSTEM_ERROR),
    Case({"commitLogOffset": "-1"}, SYSTEM_ERROR),
    Case({"commitLogOffset": "99999999999"}, SYSTEM_ERROR),
    Case({"commitLogOffset": "x"}, BAD_FIELD, SYSTEM_ERROR),
    Case({"commitLogOffset": None}, BAD_FIELD, SYSTEM_ERROR),
    Case({"commitOrRollback": "1"}, SYSTEM_ERROR),
    Case({"commitOrRollback": "4"}, SYSTEM_ERROR),
    Case({"commitOrRollback": "-8"}, SYSTEM_ERROR),
    Case({"commitOrRollback": "x"}, BAD_FIELD, SYSTEM_ERROR),
    Case({"commitOrRollback": None}, BAD_FIELD, SYSTEM_ERROR),
]

# Of a message that is there.
SEND_BACKS = [
    Case({"offset": "99999999999"}, SYSTEM_ERROR),
    Case({"offset": "-1"}, SYSTEM_ERROR),
    Case({"offset": "x"}, BAD_FIELD, SYSTEM_ERROR),
    Case({"offset": None}, BAD_FIELD, SYSTEM_ERROR),
    Case({"group": "no group"}, NO_GROUP),
    Case({"group": "x" * 300}, NO_GROUP),
    Case({"group": None}, BAD_FIELD, SYSTEM_ERROR),
    Case({"delayLevel": "x"}, BAD_FIELD, SYSTEM_ERROR),
    Case({"delayLevel": "99999999999"}, BAD_FIELD, SYSTEM_ERROR),
    Case({"delayLevel": None}, BAD_FIELD, SYSTEM_ERROR),
]


def properties_text(names: Mapping[str, str | None]) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in names.items())


def send_fields(topic: str, names: Mapping[str, str | None]) -> dict[str, str]:
    born_ms = time.time_ns() // 1_000_000  # a half message born long ago would be given up
    return {
        "a": "p", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "4" if "TRAN_MSG" in names else "0", "g": str(born_ms),
        "h": "0", "i": properties_text(names), "j": "0", "k": "false", "m": "false",
    }  # fmt: skip


def changed(fields: dict[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in {**fields, **changes}.items() if value is not None}
