"""Our broker as a user starts it: `firearrow up`, with name server and broker in one process."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path

from bench.process import BenchError, Process, free_base_port
from bench.targets import Running, await_ports

NAMESRV_STEP = 2  # from the port of the broker to that of the name server


class Firearrow:
    """The broker of this environment, or of another checkout with a virtual environment of its own."""

    def __init__(self, checkout: Path | None = None) -> None:
        self.name = "Firearrow" if checkout is None else f"Firearrow ({checkout})"
        directory = Path(sys.executable).parent if checkout is None else checkout.absolute() / ".venv" / "bin"
        self.command = directory / "firearrow"

    def prepare(self) -> None:
        if not self.command.exists():
            raise BenchError(f"{self.command} does not exist: install the package there, for example with `make up`")

    def start(self, store: Path, settings: Mapping[str, str], *, max_files: int | None = None) -> Running:
        """Start on `store`, with at most `max_files` open files. The name server listens two ports above the broker."""
        store.mkdir(parents=True, exist_ok=True)
        port = free_base_port()
        namesrv_port = port + NAMESRV_STEP
        command = [str(self.command), "up", "--data", str(store / "data"), "--host", "127.0.0.1"]
        command += ["--namesrv-port", str(namesrv_port), "--broker-port", str(port), "--ready-file", str(store / "ready.json")]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        if max_files is not None:
            command = ["/bin/sh", "-c", f'ulimit -n {max_files}; exec "$@"', "sh", *command]
        began = time.monotonic()
        process = Process(command, store / "firearrow.out")
        ready_s = await_ports([namesrv_port, port, port - 2], [process], began, self.name)
        return Running(process, [], port, ready_s)
