"""`cluster.json` in the data directory: the form of the cluster and the state of its members.

    {"form": "2m-2s-sync", "pid": 4711, "namesrv": "127.0.0.1:9876", "members": [
        {"name": "broker-a", "role": "SYNC_MASTER", "broker": "broker-a", "state": "running", "pid": 4712,
         "address": "127.0.0.1:10911", "data": "/srv/x/broker-a"}, ...]}

It is rewritten atomically at every change. It remains when the cluster is stopped (pid null): the directory belongs to its form.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from firearrow.atomic_file import replace_file
from firearrow.cli.arguments import did_you_mean

FILE: Final = "cluster.json"


class ClusterError(ValueError):
    """The directory contains no cluster, the cluster does not run, or it rejects a request."""


def unknown_member(name: str, members: Sequence[str]) -> ClusterError:
    close = did_you_mean(name, members)
    return ClusterError(f"no such member {name!r}; {f'{close} ' if close else ''}the members are {', '.join(members)}")


@dataclass
class MemberState:
    """A member as `cluster status` shows it."""

    name: str
    role: str
    broker: str
    state: str  # running, or the reason why not
    pid: int | None
    address: str
    data: str


@dataclass
class ClusterState:
    """The content of the file."""

    form: str
    pid: int | None
    namesrv: str
    members: list[MemberState]

    def member(self, name: str) -> MemberState:
        found = next((member for member in self.members if member.name == name), None)
        if found is None:
            raise unknown_member(name, [member.name for member in self.members])
        return found

    def write(self, data: Path) -> None:
        replace_file(data / FILE, json.dumps(asdict(self), indent=1).encode() + b"\n", durable=False)


def read(data: Path) -> ClusterState:
    path = data / FILE
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        members = [MemberState(**member) for member in value.pop("members")]
        return ClusterState(members=members, **value)
    except FileNotFoundError:
        raise ClusterError(
            f"no cluster in {data}: start one with `firearrow up --cluster 2m --data {data}`, or give its directory with --data"
        ) from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ClusterError(f"{path} is not a cluster state file ({error}); stop the cluster and remove the file") from None


def form_of(data: Path) -> str | None:
    """Return the form of the cluster in a directory; None if it has no cluster."""
    return read(data).form if (data / FILE).exists() else None
