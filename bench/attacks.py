"""Time that other clients are blocked, and memory that a broker uses, while one client attacks it.

    scripts/bench attacks --checkout ../before --checkout . --only SQL92

Every attack (`attack_kinds.py`) has a broker and a name server of its own, in one process. The attacker and the probe are two
other processes. The probe is an honest client: it sends a message, asks the broker for an offset and the name server for a route,
in turns, with pauses of 5 ms, and records the longest time until a response.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from bench.attack_kinds import ATTACK_S, ATTACKS, Attack
from bench.attack_peer import TIMEOUT_S, Outcome, Peer, Victim, send
from bench.firearrow import NAMESRV_STEP, Firearrow
from bench.process import BenchError, Process, free_base_port
from bench.report import number, table
from bench.session import Session
from firearrow.wire.codes import RequestCode

BLOCKED_AT_MOST_S = 0.3
GROWTH_AT_MOST_MB = 200.0
PAUSE_S = 0.005
SAMPLE_S = 0.02
SETTLE_S = 1.0  # measured after the attacker has ended
_processes = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Damage:
    """Effects of one attack on one server. `faults` are effects other than time and memory, such as refused sends."""

    attack: str
    blocked_s: float
    growth_mb: float
    faults: Sequence[str] = ()

    @property
    def missed(self) -> bool:
        return self.blocked_s > BLOCKED_AT_MOST_S or self.growth_mb > GROWTH_AT_MOST_MB or bool(self.faults)

    @property
    def verdict(self) -> str:
        return ", ".join(["MISSED", *self.faults]) if self.missed else "ok"


def run(session: Session) -> bool:
    """Print a table; return whether no attack on the (last) checkout blocks the probe or grows memory beyond the limits."""
    servers = [target for target in session.targets if isinstance(target, Firearrow)]
    if len(servers) < len(session.targets):
        raise BenchError("attacks are measured on Firearrow only: omit --reference and --ours")
    attacks = [attack for attack in ATTACKS if not session.only or any(text in attack.name for text in session.only)]
    if not attacks:
        raise BenchError(f"no attack has {' or '.join(map(repr, session.only))} in its name")
    rows = []
    for attack in attacks:
        rows.append([measure(session, server, attack) for server in servers])
        session.say(f"{attack.name}: " + "; ".join(_said(damage) for damage in rows[-1]))
    names = [server.name for server in servers]
    print(damage_table(rows, names))
    results: list[dict[str, Any]] = [
        {"server": name, **asdict(damage)} for row in rows for name, damage in zip(names, row, strict=True)
    ]
    session.save("attacks", results)
    return not any(row[-1].missed for row in rows)


def damage_table(rows: Sequence[Sequence[Damage]], names: Sequence[str]) -> str:
    """Format the damage of each attack, one row for each and a group of columns for each server."""
    several = len(names) > 1
    head = ["attack"]
    for name in names:
        head += [f"{what}, {name}" if several else what for what in ("longest block, s", "memory, MB", "")]
    cells = [[row[0].attack, *(cell for damage in row for cell in _cells(damage))] for row in rows]
    return table(head, cells)


def _cells(damage: Damage) -> list[str]:
    return [f"{damage.blocked_s:.3f}", f"{damage.growth_mb:+.0f}", damage.verdict]


def _said(damage: Damage) -> str:
    return f"{number(damage.blocked_s)} s, {damage.growth_mb:+.0f} MB, {damage.verdict}"


def measure(session: Session, server: Firearrow, attack: Attack) -> Damage:
    """Start a server, attack it once, and return the damage."""
    metrics_port = free_base_port() + 3
    settings = {"metricsExporterType": "PROM", "metricsPromExporterPort": str(metrics_port), **attack.settings}
    with session.store() as store:
        running = server.start(store, settings, max_files=attack.max_files)
        try:
            victim = Victim(running.port, running.port + NAMESRV_STEP, metrics_port)
            attack.prepare(victim)
            probe = Child(probe_server, victim)
            try:
                probe.result(TIMEOUT_S)  # it has a response to each of its requests
                time.sleep(SETTLE_S)
                growth_mb, outcome = _attacked(running.broker, attack, victim)
                probe.stop()
                probed = probe.result(2 * TIMEOUT_S)
            finally:
                probe.end()
        finally:
            running.kill()
    blocked_s = max(outcome.blocked_s, probed.blocked_s)
    return Damage(attack.name, blocked_s, growth_mb, [*outcome.faults, *probed.faults])


def _attacked(broker: Process, attack: Attack, victim: Victim) -> tuple[float, Outcome]:
    """Run the attacker; return the growth of the memory and the attacker's findings."""
    before_mb = peak_mb = broker.anonymous_mb()
    attacker = Child(_attack, victim, attack.name)
    try:
        deadline = time.monotonic() + ATTACK_S
        while attacker.alive and time.monotonic() < deadline:
            peak_mb = max(peak_mb, broker.anonymous_mb())
            time.sleep(SAMPLE_S)
        ended = not attacker.alive
        settled = time.monotonic() + SETTLE_S
        while time.monotonic() < settled:
            peak_mb = max(peak_mb, broker.anonymous_mb())
            time.sleep(SAMPLE_S)
        outcome = attacker.result(0) if ended else Outcome()
    finally:
        attacker.end()
    return peak_mb - before_mb, outcome


class Child:
    """A process of this benchmark that reports outcomes through a pipe."""

    def __init__(self, task: Callable[..., None], victim: Victim, *arguments: str) -> None:
        self._pipe, theirs = _processes.Pipe()
        self._process: BaseProcess = _processes.Process(target=task, args=(theirs, victim, *arguments), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def stop(self) -> None:
        """Ask for the last report; a process that has ended has sent it."""
        with suppress(BrokenPipeError):
            self._pipe.send("stop")

    def result(self, timeout_s: float) -> Outcome:
        """Return the next report."""
        try:
            if self._pipe.poll(timeout_s):
                outcome: Outcome = self._pipe.recv()
                return outcome
        except EOFError:
            raise BenchError("a process of the benchmark failed; its error is above") from None
        raise BenchError(f"a process of the benchmark did not report within {timeout_s:.0f} s")

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _attack(pipe: Connection, victim: Victim, name: str) -> None:
    attack = next(attack for attack in ATTACKS if attack.name == name)
    try:
        outcome = attack.run(victim)
    except OSError:  # a server may disconnect an attacker
        outcome = Outcome()
    pipe.send(outcome)


def probe_server(pipe: Connection, victim: Victim) -> None:
    """Report once when the server serves every request, then again, with the longest wait, after a text has come in the pipe."""
    broker, namesrv = Peer(victim.broker), Peer(victim.namesrv)
    turns: list[Callable[[], int]] = [
        lambda: send(broker, victim.topic, bytes(100)).code,
        lambda: broker.request(RequestCode.GET_MAX_OFFSET, {"topic": victim.topic, "queueId": "0"}).code,
        lambda: namesrv.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": victim.topic}).code,
    ]
    deadline = time.monotonic() + TIMEOUT_S / 2
    while any(turn() for turn in turns) and time.monotonic() < deadline:
        time.sleep(PAUSE_S)
    pipe.send(Outcome())
    time.sleep(SETTLE_S / 2)
    pipe.send(probe_until(lambda: pipe.poll(0), turns))


def probe_until(stopped: Callable[[], bool], turns: Sequence[Callable[[], int]]) -> Outcome:
    """Call `turns` in rotation; they return response codes. A connection that breaks ends the probe and is a fault."""
    outcome = Outcome()
    count = 0
    while not stopped():
        began = time.monotonic()
        try:
            code = turns[count % len(turns)]()
        except OSError as error:
            outcome.fault(f"the probe failed: {type(error).__name__}")
            outcome.blocked_s = max(outcome.blocked_s, time.monotonic() - began)
            return outcome
        outcome.blocked_s = max(outcome.blocked_s, time.monotonic() - began)
        if code:
            outcome.fault(f"the probe was refused with code {code}")
        count += 1
        time.sleep(PAUSE_S)
    return outcome
