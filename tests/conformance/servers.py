"""Server processes under test: ours, or Apache's from Maven Central.

Both kinds accept the same settings, so tests do not depend on the kind. FIREARROW_CONFORMANCE_TARGET=apache runs the tests
against Apache's servers, which validates the tests themselves.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.conformance import builds, rawcall
from tests.support.ports import reserve_port

TARGET = os.environ.get("FIREARROW_CONFORMANCE_TARGET", "firearrow")
SMALL_JVM = ["-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Duser.timezone=UTC"]
# Large enough for every test, small enough to copy.
SMALL_FILES = {"mappedFileSizeCommitLog": "16777216"}
START_TIMEOUT_S = 60.0
# Time limit for a consumer. On Apache's broker about one start in twenty waits for the next heartbeat (30 s).
free_port = reserve_port  # the name that the Spark tests import
PATIENCE_MS = 75_000 if TARGET == "apache" else 60_000


@dataclass
class Process:
    """A server process with its output in a file."""

    command: list[str]
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)
    popen: subprocess.Popen[bytes] | None = None

    def start(self) -> Process:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self.popen = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **self.env}
            )
        return self

    def alive(self) -> bool:
        return self.popen is not None and self.popen.poll() is None

    def wait_until(self, ready: Callable[[], bool], what: str, timeout_s: float = START_TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not ready():
            if not self.alive():
                raise RuntimeError(f"{what}: the process ended early\n{self.output()[-4000:]}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not within {timeout_s:.0f} s\n{self.output()[-4000:]}")
            time.sleep(0.02)

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def stop(self, timeout_s: float = 30.0) -> int:
        """Stop cleanly and return the exit status."""
        return self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> int:
        return self._end(signal.SIGKILL, 10.0)

    def _end(self, number: signal.Signals, timeout_s: float) -> int:
        if self.popen is None:
            return 0
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        try:
            return self.popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait(10)
            raise


@dataclass
class Cluster:
    """A running name server with one registered broker."""

    kind: str
    namesrv: str
    broker: str
    store: Path
    processes: list[Process]
    broker_name: str = "broker-a"
    cluster_name: str = "DefaultCluster"

    def stop(self) -> None:
        """Stop cleanly, brokers first, so that they unregister."""
        for process in self.processes:
            process.stop()

    def dispose(self) -> None:
        """End a test. Ours must stop cleanly; Apache's is killed, because a clean stop takes half a minute."""
        if self.kind.startswith("apache"):
            self.kill()
        else:
            self.stop()

    def kill(self) -> None:
        for process in self.processes:
            process.kill()


def start(directory: Path, settings: Mapping[str, str] | None = None, kind: str = TARGET) -> Cluster:
    """Start a name server and a broker of the kind under test."""
    if kind not in APART:
        raise ValueError(f"the kind of server under test is {kind!r}; it can be {' or '.join(APART)}")
    if kind == "firearrow":
        return start_firearrow(directory, settings or {})
    return start_apart(directory, settings or {}, kind)


def start_apart(directory: Path, settings: Mapping[str, str], kind: str = TARGET, port: int | None = None) -> Cluster:
    """Start both as processes with property files. The broker opens an existing directory/store."""
    start_namesrv, start_broker = APART[kind]
    namesrv_process, namesrv = start_namesrv(directory)
    broker_process, broker = start_broker(directory, namesrv, settings, port)
    return Cluster(kind, namesrv, broker, directory / "store", [broker_process, namesrv_process])


def start_firearrow(directory: Path, settings: Mapping[str, str]) -> Cluster:
    ready_file = directory / "ready.json"
    ready_file.unlink(missing_ok=True)
    words = [
        "up",
        "--data",
        str(directory / "data"),
        "--namesrv-port",
        "0",
        "--broker-port",
        "0",
        "--ready-file",
        str(ready_file),
    ]
    process = _firearrow(words, {**SMALL_FILES, **settings}, directory)
    ready = _ready(process, ready_file)
    return Cluster("firearrow", ready["namesrv"], ready["brokers"][0], directory / "data", [process])


def start_firearrow_namesrv(directory: Path) -> tuple[Process, str]:
    port = reserve_port()
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "namesrv.conf"
    config.write_text(f"listenPort={port}\nbindAddress=127.0.0.1\nkvConfigPath={directory / 'kvConfig.json'}\n")
    process = Process([*firearrow_command(), "namesrv", "-c", str(config)], directory / "namesrv.log").start()
    address = f"127.0.0.1:{port}"
    process.wait_until(lambda: _accepts(address), "our name server")
    return process, address


def start_firearrow_broker(
    directory: Path, namesrv: str, settings: Mapping[str, str], port: int | None = None
) -> tuple[Process, str]:
    port = port or reserve_port(-2, 1)
    config = _broker_config(directory, port, settings)
    process = Process([*firearrow_command(), "broker", "-c", str(config), "-n", namesrv], directory / "broker.log").start()
    process.wait_until(lambda: all(_registered(ns, port) for ns in namesrv.split(";")), "our broker registers")
    return process, f"127.0.0.1:{port}"


def start_apache_namesrv(directory: Path, version: str = builds.SERVER_VERSION) -> tuple[Process, str]:
    port = reserve_port()
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "namesrv.conf"
    config.write_text(f"listenPort={port}\nkvConfigPath={directory / 'kvConfig.json'}\n")
    process = _apache("org.apache.rocketmq.namesrv.NamesrvStartup", ["-c", str(config)], directory, "namesrv.log", version)
    address = f"127.0.0.1:{port}"
    process.wait_until(lambda: _accepts(address), "Apache's name server")
    return process, address


def start_apache_broker(
    directory: Path,
    namesrv: str,
    settings: Mapping[str, str],
    port: int | None = None,
    version: str = builds.SERVER_VERSION,
) -> tuple[Process, str]:
    port = port or reserve_port(-2, 1)
    config = _broker_config(directory, port, settings)
    process = _apache(
        "org.apache.rocketmq.broker.BrokerStartup", ["-c", str(config), "-n", namesrv], directory, "broker.log", version
    )
    process.wait_until(lambda: all(_registered(ns, port) for ns in namesrv.split(";")), "Apache's broker registers")
    return process, f"127.0.0.1:{port}"


APART: dict[str, tuple[Callable[..., tuple[Process, str]], Callable[..., tuple[Process, str]]]] = {
    "firearrow": (start_firearrow_namesrv, start_firearrow_broker),
    "apache": (start_apache_namesrv, start_apache_broker),
    "apache-4.9": (
        partial(start_apache_namesrv, version=builds.OLD_SERVER_VERSION),
        partial(start_apache_broker, version=builds.OLD_SERVER_VERSION),
    ),
}


def firearrow_command() -> list[str]:
    return [str(Path(sys.executable).parent / "firearrow")]


def _firearrow(words: list[str], settings: Mapping[str, str], directory: Path) -> Process:
    options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    return Process([*firearrow_command(), *words, *options], directory / "firearrow.log").start()


def _ready(process: Process, ready_file: Path) -> dict[str, Any]:
    process.wait_until(ready_file.exists, "firearrow up")
    value: dict[str, Any] = json.loads(ready_file.read_text())
    return value


def _broker_config(directory: Path, port: int, settings: Mapping[str, str]) -> Path:
    store = directory / "store"
    values = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerId": "0",
        "brokerIP1": "127.0.0.1",
        "listenPort": str(port),
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
        **SMALL_FILES,
        **settings,
    }
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "broker.conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return config


def _apache(main_class: str, words: list[str], directory: Path, log: str, version: str = builds.SERVER_VERSION) -> Process:
    home = directory / "home"
    (home / "conf").mkdir(parents=True, exist_ok=True)
    # Older releases do not start without it.
    for server in ("broker", "namesrv"):
        (home / "conf" / f"logback_{server}.xml").write_text("<configuration/>\n")
    command = [
        "java",
        *SMALL_JVM,
        f"-Duser.home={home}",
        f"-Drocketmq.home.dir={home}",
        "-cp",
        builds.java_server(version),
        main_class,
        *words,
    ]
    return Process(command, directory / log, {"ROCKETMQ_HOME": str(home)}).start()


def _accepts(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def _registered(namesrv: str, port: int) -> bool:
    """Return whether the name server lists a broker at this port."""
    try:
        answer, body = rawcall.call(namesrv, 106)
    except OSError:
        return False
    return answer["code"] == 0 and f':{port}"'.encode() in body
