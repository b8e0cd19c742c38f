"""Malformed messages of every kind are rejected with Apache's codes and not stored."""

from __future__ import annotations

import asyncio

from firearrow.wire.codes import RequestCode
from tests.badinput import kinds
from tests.badinput.hostile import Attacker
from tests.badinput.kinds import Case, changed, send_fields
from tests.badinput.victim import GROUP, TOPIC, prepare, under_attack
from tests.conformance.servers import Cluster
from tests.support.raw_client import Link, send


def ask_all(victim: Cluster, code: int, cases: list[tuple[str, dict[str, str], int]]) -> None:
    """Send each case: (description, fields, expected code)."""

    async def scenario() -> dict[str, int | None]:
        wrong: dict[str, int | None] = {}
        async with under_attack(victim), Attacker(victim.broker) as attacker:
            for name, fields, expected in cases:
                answer = await attacker.ask(code, fields, b"x")
                if answer is None or answer.code != expected:
                    wrong[name] = None if answer is None else answer.code
        return wrong

    assert asyncio.run(scenario()) == {}


def test_malformed_delays_timers_and_halves_are_rejected(victim: Cluster) -> None:
    cases = [(str(case), send_fields(TOPIC, case.changes), case.code) for case in kinds.SENDS]
    for kind in kinds.KINDS:
        for where, code in kinds.PLACES:
            cases.append((f"{kind} to {where}", send_fields(TOPIC, {**kind}) | where, code))
    ask_all(victim, RequestCode.SEND_MESSAGE_V2, cases)


def test_malformed_transaction_decisions_are_rejected(victim: Cluster) -> None:
    async def half() -> dict[str, str]:
        link = await Link.connect(victim.broker)
        await prepare(link)
        answer = await link.call(RequestCode.SEND_MESSAGE_V2, send_fields(TOPIC, {**kinds.HALF}), b"half")
        assert answer.code == 0, answer
        link.close()
        offset = int(answer.ext["msgId"][16:], 16)
        return {"tranStateTableOffset": str(answer.ext["queueOffset"]), "commitLogOffset": str(offset)}

    fields = {"producerGroup": "p", "commitOrRollback": "8", "fromTransactionCheck": "false", "msgId": "U1"} | asyncio.run(half())
    ask_all(victim, RequestCode.END_TRANSACTION, _cases(kinds.DECISIONS, fields))


def test_malformed_send_backs_are_rejected(victim: Cluster) -> None:
    async def message() -> str:
        link = await Link.connect(victim.broker)
        await prepare(link)
        answer = await send(link, TOPIC, 0, b"body", "key")
        assert answer.code == 0, answer
        link.close()
        return str(int(answer.ext["msgId"][16:], 16))

    fields = {"offset": asyncio.run(message()), "group": GROUP, "delayLevel": "0", "originTopic": TOPIC}
    ask_all(victim, RequestCode.CONSUMER_SEND_MSG_BACK, _cases(kinds.SEND_BACKS, fields))


def _cases(cases: list[Case], fields: dict[str, str]) -> list[tuple[str, dict[str, str], int]]:
    return [(str(case), changed(fields, case.changes), case.code) for case in cases]
