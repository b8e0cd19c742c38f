"""The environment of processes that can fail: network, clock and disk. Each part reports why it is not available here."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from firearrow.cli.local_cluster.peer_secret import peer_secret_settings
from firearrow.cli.local_cluster.topology import FORMS, Endpoint
from tests.chaos.fleet import Fleet, members_at

# A benchmarking network, which is not routed (RFC 2544).
_NET = "198.18"
_numbers = itertools.count(os.getpid() % 200)


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)


def _must(*words: str) -> None:
    done = _run(*words)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr.strip()}"


# Networks


def no_namespaces() -> str | None:
    if shutil.which("ip") is None:
        return "there is no command ip; on Debian: apt-get install iproute2"
    name = f"fa-try-{os.getpid()}"
    done = _run("ip", "netns", "add", name)
    if done.returncode:
        return f"network namespaces are not permitted here: {done.stderr.strip()}"
    _run("ip", "netns", "delete", name)
    bridge = f"fatry{os.getpid() % 100_000}"
    done = _run("ip", "link", "add", bridge, "type", "bridge")
    if done.returncode:
        return f"a bridge between network namespaces is not permitted here: {done.stderr.strip()}"
    _run("ip", "link", "delete", bridge)
    return None


class Network:
    """A virtual network: each member has an address and a link to a switch, to which the test process is connected too."""

    def __init__(self, form: str) -> None:
        self._tag = f"fa{os.getpid() % 10_000}{next(_numbers) % 100:02d}"
        self._third = next(_numbers) % 250
        self.names = ["namesrv", *(seat.name for seat in FORMS[form])]
        self._form = form

    def address(self, name: str) -> str:
        return f"{_NET}.{self._third}.{10 + self.names.index(name)}"

    def fleet(self, directory: Path, **settings: str) -> Fleet:
        places = [Endpoint(self.address(name), 10911) for name in self.names[1:]]
        settings |= peer_secret_settings(directory, places[0].host, settings)
        members = members_at(self._form, directory, Endpoint(self.address("namesrv"), 9876), places, **settings)
        return Fleet(self._form, members, {name: ["ip", "netns", "exec", self._space(name)] for name in self.names})

    def up(self) -> None:
        bridge = f"{self._tag}b"
        _must("ip", "link", "add", bridge, "type", "bridge")
        _must("ip", "address", "add", f"{_NET}.{self._third}.1/24", "dev", bridge)
        _must("ip", "link", "set", bridge, "up")
        for name in self.names:
            space, cable = self._space(name), self._cable(name)
            _must("ip", "netns", "add", space)
            _must("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
            _must("ip", "link", "set", cable, "master", bridge, "up")
            _must("ip", "-n", space, "address", "add", f"{self.address(name)}/24", "dev", "eth0")
            _must("ip", "-n", space, "link", "set", "eth0", "up")
            _must("ip", "-n", space, "link", "set", "lo", "up")

    def down(self) -> None:
        for name in self.names:
            _run("ip", "link", "delete", self._cable(name))
            _run("ip", "netns", "delete", self._space(name))
        _run("ip", "link", "delete", f"{self._tag}b")

    def unplug(self, name: str) -> None:
        """Disconnect a member completely."""
        _must("ip", "link", "set", self._cable(name), "down")

    def plug(self, name: str) -> None:
        _must("ip", "link", "set", self._cable(name), "up")

    def part(self, name: str, others: Sequence[str]) -> None:
        """Separate members from each other; all others still reach them."""
        self._routes("add", name, others)

    def join(self, name: str, others: Sequence[str]) -> None:
        self._routes("delete", name, others)

    def deafen(self, name: str, others: Sequence[str]) -> None:
        """Let a member send to others but receive nothing from them."""
        for other in others:
            _must("ip", "-n", self._space(other), "route", "add", "blackhole", f"{self.address(name)}/32")

    def undeafen(self, name: str, others: Sequence[str]) -> None:
        for other in others:
            _must("ip", "-n", self._space(other), "route", "delete", "blackhole", f"{self.address(name)}/32")

    def _routes(self, what: str, name: str, others: Sequence[str]) -> None:
        for other in others:
            for here, there in ((name, other), (other, name)):
                _must("ip", "-n", self._space(here), "route", what, "blackhole", f"{self.address(there)}/32")

    def _space(self, name: str) -> str:
        return f"{self._tag}-{name}"

    def _cable(self, name: str) -> str:
        return f"{self._tag}v{self.names.index(name)}"


@contextlib.contextmanager
def network(form: str) -> Iterator[Network]:
    one = Network(form)
    try:
        one.up()
        yield one
    finally:
        one.down()


# Clocks


class Clock:
    """The wall clock of a process, which can be set while it runs; see wrongclock/sitecustomize.py."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = directory / "clock"
        self._file.write_bytes(bytes(8))

    def set(self, seconds: float) -> None:
        """Set the offset from the correct time."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("=q", int(seconds * 1e9)))

    @property
    def env(self) -> Mapping[str, str]:
        return {"PYTHONPATH": str(Path(__file__).parent / "wrongclock"), "WRONG_CLOCK": str(self._file)}


# Disks


def no_small_disk() -> str | None:
    if shutil.which("mount") is None or os.geteuid():
        return "a small disk has to be mounted, which only root can do"
    done = _run("unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt")
    return f"mounting is not permitted here: {done.stderr.strip()}" if done.returncode else None


@contextlib.contextmanager
def small_disk(at: Path, megabytes: int) -> Iterator[None]:
    at.mkdir(parents=True, exist_ok=True)
    _must("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(at))
    try:
        yield
    finally:
        _must("umount", "--lazy", str(at))


def enlarge(at: Path, megabytes: int) -> None:
    _must("mount", "-o", f"remount,size={megabytes}m", str(at))
