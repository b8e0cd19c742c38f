"""How `firearrow cluster kill|stop|start` reaches the process that started the cluster: one line of JSON each way.

    {"verb": "kill", "name": "broker-a"}    ->    {"said": "killed broker-a (process 4712)"}
                                            or    {"error": "broker-a is not running (killed); ..."}

The members are children of that process: it alone can start them so that it stops them again, and it never signals a stranger
that has got an old process id.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from firearrow.cli.local_cluster import state
from firearrow.net.unix_socket import connect_unix, is_listening, serve_unix

SOCKET: Final = "cluster.sock"
VERBS: Final = ("kill", "stop", "start")
_LINE_BYTES: Final = 65_536

log = logging.getLogger("firearrow.cli")

Carry = Callable[[str, str], Awaitable[str]]  # verb, name -> what was done; RefusedError


class RefusedError(ValueError):
    """It was not done; the text says why and what can be done."""


class Control:
    """The end that listens."""

    def __init__(self, data: Path, carry_out: Carry) -> None:
        self._data = data
        self._carry_out = carry_out
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await serve_unix(self._serve, self._data, SOCKET, limit=_LINE_BYTES)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            (self._data / SOCKET).unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await reader.readline()
            if line:  # else it only wanted to know whether we are here
                writer.write(json.dumps(await self._answer(line)).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError) as error:  # a line that is too long is a ValueError
            log.warning("a request to the cluster was not answered: %s", error)
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, str]:
        try:
            wish = json.loads(line)
            verb, name = wish["verb"], wish["name"]
        except (ValueError, KeyError, TypeError):
            return {"error": f"not understood: {line[:80]!r}; expected a verb and a name"}
        if verb not in VERBS or not isinstance(name, str):
            return {"error": f"{verb!r} is not known; expected one of {', '.join(VERBS)}"}
        try:
            return {"said": await self._carry_out(verb, name)}
        except RefusedError as error:
            return {"error": str(error)}


async def ask(data: Path, verb: str, name: str) -> str:
    """What was done. RefusedError if it was not, NoClusterError where no cluster runs."""
    known = state.read(data)
    try:
        reader, writer = await connect_unix(data, SOCKET, limit=_LINE_BYTES)
    except OSError:
        raise _not_running(data, known) from None
    try:
        writer.write(json.dumps({"verb": verb, "name": name}).encode() + b"\n")
        line = await reader.readline()
    finally:
        writer.close()
    if not line:
        raise state.NoClusterError(f"the cluster in {data} was stopped before it answered")
    answer = json.loads(line)
    if "error" in answer:
        raise RefusedError(answer["error"])
    return str(answer["said"])


def current(data: Path) -> state.ClusterState:
    """How the members of a running cluster are. NoClusterError where none runs."""
    known = state.read(data)
    if not is_listening(data, SOCKET):  # the state file of a killed cluster remains
        raise _not_running(data, known)
    return known


def _not_running(data: Path, known: state.ClusterState) -> state.NoClusterError:
    return state.NoClusterError(
        f"the cluster in {data} is not running: start it with `firearrow up --cluster {known.form} --data {data}`"
    )
