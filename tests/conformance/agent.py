"""The Python end of java/client: starts the agent's process and calls its operations."""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from tests.conformance import builds
from tests.conformance.servers import PATIENCE_MS, SMALL_JVM

# Output of an mqadmin command that failed in the tool itself, or because the machine was slow.
_AGAIN = ("ConcurrentModificationException", "client failed", "RemotingTimeoutException", "RemotingConnectException")


class AgentError(Exception):
    """A failed client operation; `code` is the response code of the server, if any."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(f"{answer.get('error')} (code {answer.get('code')}): {answer.get('message')}")
        self.code: int | None = answer.get("code")
        self.message: str = answer.get("message") or ""
        self.trace: str = answer.get("trace") or ""


class Agent:
    """A Java process with RocketMQ's client. Calls may overlap; each runs in its own thread."""

    def __init__(self, version: str, directory: Path, *, with_tools: bool = False) -> None:
        self.version = version
        class_path = builds.java_agent(version)
        if with_tools:
            class_path = f"{class_path}:{builds.java_tools(version)}"
        directory.mkdir(parents=True, exist_ok=True)
        # The user's home contains the logs and the offsets of broadcasting consumers.
        home = [f"-Duser.home={directory}", f"-Drocketmq.client.localOffsetStoreDir={directory / 'offsets'}"]
        if with_tools:
            home.append(f"-Drocketmq.home.dir={directory}")
            (directory / "conf").mkdir(exist_ok=True)
            (directory / "conf" / "logback_tools.xml").write_text("<configuration/>\n")  # older releases do not start without it
        self.log = directory / "agent.log"
        with self.log.open("ab") as errors:
            self._process = subprocess.Popen(
                ["java", *SMALL_JVM, *home, "-cp", class_path, "conformance.Agent"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=directory,  # mqadmin's consumerStatus writes to the working directory
            )
        self._ids = itertools.count(1)
        self._open: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def call(self, op: str, timeout_s: float = 120.0, **fields: Any) -> Any:
        return self.submit(op, **fields).result(timeout_s)

    def consumed(self, consumer: str, count: int, patience_ms: int = PATIENCE_MS) -> list[dict[str, Any]]:
        """Return the messages of a push consumer once it has `count` of them, or fewer after the timeout."""
        return list(self.call("push.messages", name=consumer, count=count, timeoutMs=patience_ms)["messages"])

    def mqadmin(self, commands: Iterable[Sequence[str]]) -> list[str]:
        """Run commands of mqadmin in parallel and return what each printed.

        Commands that collided in the command list that the tool shares between them, or timed out, run again.
        """
        words = list(commands)
        texts: list[str] = self.call("mqadmin", commands=[{"args": one} for one in words])
        for number, one in enumerate(words):
            for _ in range(3):
                if texts[number].strip() and not any(problem in texts[number] for problem in _AGAIN):
                    break
                (texts[number],) = self.call("mqadmin", commands=[{"args": one}])
        return texts

    def submit(self, op: str, **fields: Any) -> Future[Any]:
        future: Future[Any] = Future()
        number = next(self._ids)
        line = json.dumps({"id": number, "op": op, **fields}).encode() + b"\n"
        assert self._process.stdin is not None
        with self._lock:
            self._open[number] = future
            self._process.stdin.write(line)
            self._process.stdin.flush()
        return future

    def close(self) -> None:
        """Shut the clients down cleanly."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill the process, so that its clients do not unregister."""
        self._process.kill()
        self._process.wait(10)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            future = self._open.pop(int(answer["id"]), None)
            if future is None:
                continue
            if answer["ok"]:
                future.set_result(answer.get("result"))
            else:
                future.set_exception(AgentError(answer))
        for future in list(self._open.values()):
            future.set_exception(ConnectionError(f"the agent's process ended, see {self.log}"))
