"""Announcement that all ports are open: a line for people and a JSON object for programs.

    firearrow ready  namesrv 127.0.0.1:9876  broker-a 127.0.0.1:10911  data /var/lib/x  flush SYNC_FLUSH (...)

    {"namesrv": "127.0.0.1:9876", "brokers": ["127.0.0.1:10911"], "names": ["broker-a"], "data": "/var/lib/x",
     "flush": "SYNC_FLUSH", "pid": 4711}

The file is written atomically.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firearrow.atomic_file import replace_file


@dataclass
class ServerReady:
    """The addresses of the servers that this process started."""

    namesrv: str | None = None
    brokers: list[tuple[str, str]] = field(default_factory=list)  # (name, advertised address)
    data: str | None = None
    flush: str | None = None  # the mode and what a crash may lose
    cluster: str | None = None  # the form of `up --cluster`

    def line(self) -> str:
        parts = ["firearrow ready"]
        if self.cluster is not None:
            parts.append(f"cluster {self.cluster}")
        if self.namesrv is not None:
            parts.append(f"namesrv {self.namesrv}")
        parts += [f"{name} {address}" for name, address in self.brokers]
        if self.data is not None:
            parts.append(f"data {self.data}")
        if self.flush is not None:
            parts.append(f"flush {self.flush}")
        return "  ".join(parts)

    def to_json(self) -> dict[str, Any]:
        return {
            **({"cluster": self.cluster} if self.cluster is not None else {}),
            "namesrv": self.namesrv,
            "brokers": [address for _, address in self.brokers],
            "names": [name for name, _ in self.brokers],
            "data": self.data,
            "flush": self.flush.split(" ")[0] if self.flush else None,
            "pid": os.getpid(),
        }


def announce(ready: ServerReady, ready_file: str | None) -> None:
    """Print the line and write the file; `-` prints the JSON object instead of the line."""
    if ready_file == "-":
        print(json.dumps(ready.to_json()), flush=True)
        return
    if ready_file is not None:
        path = Path(ready_file)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        replace_file(path, json.dumps(ready.to_json()).encode() + b"\n", temporary=temporary, durable=False)
    print(ready.line(), flush=True)
