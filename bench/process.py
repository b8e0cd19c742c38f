"""Processes that a benchmark starts: their output goes to a file, and they end with the benchmark.

A process is ended by its id, with SIGTERM and then SIGKILL. Memory is the resident size reported by the kernel.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path

BASE_PORTS = range(20000, 32000, 10)  # below the ephemeral ports


class BenchError(Exception):
    """A benchmark cannot continue; the text says why and what to do."""


class Process:
    """A child process with its output in a file."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = Path(command[0]).name
        self.log = log
        with log.open("wb") as output:
            self._popen = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env={**_environment(), **(env or {})}
            )
        self.pid = self._popen.pid

    def check_alive(self) -> None:
        if self._popen.poll() is not None:
            raise BenchError(f"{self.name} ended with exit code {self._popen.returncode}; the end of its output:\n{self.tail()}")

    def tail(self, lines: int = 20) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def rss_mb(self) -> float:
        return self._status_mb("VmRSS")

    def anonymous_mb(self) -> float:
        """Return the resident memory without pages of files: those of the store are cache that the kernel can drop."""
        return self._status_mb("RssAnon")

    def _status_mb(self, name: str) -> float:
        self.check_alive()
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
        raise BenchError(f"process {self.pid} ({self.name}) reports no resident memory")

    def cpu_s(self) -> float:
        """Return the CPU time used by all threads of the process."""
        self.check_alive()
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def wait(self, timeout_s: float) -> int:
        """Wait for a process that ends by itself; return its exit code."""
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise BenchError(f"{self.name} did not end within {timeout_s:.0f} s; its output ends:\n{self.tail()}") from None

    def signal(self, number: signal.Signals) -> None:
        if self._popen.poll() is None:
            self._popen.send_signal(number)

    def stop(self, timeout_s: float = 60) -> None:
        """Terminate the process and wait; kill it after the timeout."""
        if self._popen.poll() is None:
            self._popen.terminate()
            try:
                self._popen.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        if self._popen.poll() is None:
            self._popen.send_signal(signal.SIGKILL)
            self._popen.wait()


def _environment() -> dict[str, str]:
    # Installed programs start from cached bytecode; compiling again takes a broker 0.1 s longer to start.
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def accepts(port: int, host: str = "127.0.0.1") -> bool:
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def wait_until(done: Callable[[], bool], processes: Sequence[Process], timeout_s: float, what: str) -> None:
    """Poll `done` every few milliseconds; an ended process or the timeout is an error."""
    deadline = time.monotonic() + timeout_s
    while not done():
        for process in processes:
            process.check_alive()
        if time.monotonic() > deadline:
            tails = "\n".join(process.tail() for process in processes)
            raise BenchError(f"{what}: not within {timeout_s:.0f} s; the end of the output:\n{tails}")
        time.sleep(0.003)


def free_base_port() -> int:
    """Return a port P such that P-2 (fast port), P, P+1 (replication), P+2 (name server) and P+3 are free on loopback."""
    return free_base_ports(1)[0]


def free_base_ports(count: int) -> list[int]:
    bases = random.sample(BASE_PORTS, len(BASE_PORTS))  # another benchmark may search at the same time
    free = (base for base in bases if all(_is_free(base + step) for step in (-2, 0, 1, 2, 3)))
    found = list(islice(free, count))
    if len(found) < count:
        raise BenchError(f"no {count} times five free ports together between {BASE_PORTS.start} and {BASE_PORTS.stop}")
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
