"""The control socket by which `firearrow cluster kill|stop|start` reaches the process of `up --cluster`: a JSON line each way.

    {"verb": "kill", "name": "broker-a"}    ->    {"result": "killed broker-a (process 4712)"}
                                            or    {"error": "broker-a is not running (killed); ..."}

That process is the parent of the members. Only it can start them so that it also stops them, and it never signals an unrelated
process that reuses an old pid.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from firearrow.cli.local_cluster.state import ClusterError, ClusterState, read
from firearrow.net.unix_socket import connect_unix, is_listening, serve_unix

SOCKET: Final = "cluster.sock"
VERBS: Final = ("kill", "stop", "start")
_LINE_BYTES: Final = 65_536

log = logging.getLogger("firearrow.cli")

Execute = Callable[[str, str], Awaitable[str]]  # verb, name -> result; raises ClusterError


class Control:
    """The listening end of the control socket."""

    def __init__(self, data: Path, execute: Execute) -> None:
        self._data = data
        self._execute = execute
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
            if line:  # an empty connection only checks that the cluster runs
                writer.write(json.dumps(await self._reply(line)).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError) as error:  # a line that is too long is a ValueError
            log.warning("a control request failed: %s", error)
        finally:
            writer.close()

    async def _reply(self, line: bytes) -> dict[str, str]:
        try:
            parsed = json.loads(line)
            verb, name = parsed["verb"], parsed["name"]
        except (ValueError, KeyError, TypeError):
            return {"error": f"malformed request {line[:80]!r}; expected a verb and a name"}
        if verb not in VERBS or not isinstance(name, str):
            return {"error": f"unknown verb {verb!r}; expected one of {', '.join(VERBS)}"}
        try:
            return {"result": await self._execute(verb, name)}
        except ClusterError as error:
            return {"error": str(error)}


async def request(data: Path, verb: str, name: str) -> str:
    """Send a request and return its result. Raises ClusterError if it is rejected or no cluster runs."""
    known = read(data)
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
        raise ClusterError(f"the cluster in {data} stopped before it replied")
    reply = json.loads(line)
    if "error" in reply:
        raise ClusterError(reply["error"])
    return str(reply["result"])


def current(data: Path) -> ClusterState:
    """Return the state of a running cluster. Raises ClusterError if none runs."""
    known = read(data)
    if not is_listening(data, SOCKET):  # the state file of a killed cluster remains
        raise _not_running(data, known)
    return known


def _not_running(data: Path, known: ClusterState) -> ClusterError:
    return ClusterError(
        f"the cluster in {data} is not running: start it with `firearrow up --cluster {known.form} --data {data}`"
    )
