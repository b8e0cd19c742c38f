"""Members of an elected group: parsing and validation of `dLegerPeers`.

    dLegerPeers=n0-10.0.0.1:40911;n1-10.0.0.2:40911;n2-10.0.0.3:40911      dLegerSelfId=n0

An id is a letter with a number. The number gives a follower its brokerId (the number + 1; the leader has 0).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from firearrow.config.fields import SettingError
from firearrow.net.address import parse_address

_ID = re.compile(r"[A-Za-z]([0-9]{1,8})")
_GROUP = re.compile(r"[A-Za-z0-9_%|-]{1,127}")
MAX_MEMBERS = 9


@dataclass(frozen=True, slots=True)
class Peers:
    group: str
    me: str
    addresses: Mapping[str, str]  # id: host:port, all members

    @property
    def others(self) -> list[str]:
        return [member for member in self.addresses if member != self.me]

    @property
    def own_broker_id(self) -> int:
        """The broker id of this member while it is a follower."""
        return int(self.me[1:]) + 1


def parse_peers(group: str | None, peers: str | None, me: str | None, preferred: str | None) -> Peers:
    """Parse and validate the members. Raises SettingError."""
    if not group or not _GROUP.fullmatch(group):
        raise SettingError("dLegerGroup", group or "", "the group's name, 1 to 127 of the characters a-z A-Z 0-9 _ - % |")
    addresses: dict[str, str] = {}
    for part in (peers or "").split(";"):
        if part.strip():
            member, address = _parse_member(part.strip(), peers or "")
            if member in addresses:
                raise SettingError("dLegerPeers", peers, f"every id once; {member} appears twice")
            if address in addresses.values():
                raise SettingError("dLegerPeers", peers, f"an address of its own for every member; {address} appears twice")
            addresses[member] = address
    if not addresses:
        raise SettingError("dLegerPeers", peers or "", "the members, like n0-host0:40911;n1-host1:40911;n2-host2:40911")
    if len(addresses) > MAX_MEMBERS:
        raise SettingError("dLegerPeers", peers, f"at most {MAX_MEMBERS} members; 3 or 5 are usual")
    numbers = {_ID.fullmatch(member)[1].lstrip("0") for member in addresses}  # type: ignore[index]  # they were parsed above
    if len(numbers) < len(addresses):
        raise SettingError("dLegerPeers", peers, "ids with different numbers: they become the followers' broker ids")
    if not me or me not in addresses:
        raise SettingError("dLegerSelfId", me or "", f"the id of this member in dLegerPeers: {', '.join(addresses)}")
    if preferred and preferred not in addresses:
        raise SettingError("preferredLeaderId", preferred, f"one of the ids in dLegerPeers: {', '.join(addresses)}")
    return Peers(group, me, addresses)


def _parse_member(text: str, peers: str) -> tuple[str, str]:
    member, dash, address = text.partition("-")
    if not dash or not _ID.fullmatch(member):
        raise SettingError("dLegerPeers", peers, f"members as id-host:port, the id a letter with a number, not {text!r}")
    try:
        parse_address(address)
    except ValueError as error:
        raise SettingError("dLegerPeers", peers, f"members as id-host:port: {error}") from None
    return member, address
