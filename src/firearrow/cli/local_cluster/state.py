"""`cluster.json` in the data directory: which cluster this is, and how its members are.

    {"form": "2m-2s-sync", "pid": 4711, "namesrv": "127.0.0.1:9876", "members": [
        {"name": "broker-a", "role": "SYNC_MASTER", "broker": "broker-a", "state": "running", "pid": 4712,
         "address": "127.0.0.1:10911", "data": "/srv/x/broker-a"}, ...]}

It is written anew at every change, complete or not at all, and stays when the cluster is stopped (pid null): the directory
belongs to its form.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from firearrow.atomic_file import replace_file
from firearrow.cli.words import did_you_mean

FILE: Final = "cluster.json"


class NoClusterError(ValueError):
    """There is no cluster where it was looked for; the text says what to do."""


class UnknownMemberError(ValueError):
    def __init__(self, name: str, members: Sequence[str]) -> None:
        super().__init__(f"there is no member {name!r}; {did_you_mean(name, members)}the members are {', '.join(members)}")


@dataclass
class MemberState:
    name: str
    role: str
    broker: str
    state: str  # running, or how it ended
    pid: int | None
    address: str
    data: str


@dataclass
class ClusterState:
    form: str
    pid: int | None
    namesrv: str
    members: list[MemberState]

    def member(self, name: str) -> MemberState:
        found = next((member for member in self.members if member.name == name), None)
        if found is None:
            raise UnknownMemberError(name, [member.name for member in self.members])
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
        raise NoClusterError(
            f"there is no cluster in {data}: start one with `firearrow up --cluster 2m --data {data}`, or say where it is: --data"
        ) from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NoClusterError(f"{path} is not the state of a cluster ({error}); stop the cluster and remove that file") from None


def form_of(data: Path) -> str | None:
    """The form that a directory belongs to, if it belongs to any."""
    try:
        return read(data).form
    except NoClusterError:
        if (data / FILE).exists():
            raise
        return None
