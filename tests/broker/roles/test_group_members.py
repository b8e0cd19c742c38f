"""Members of an elected group: parsing and validation of the settings."""

from __future__ import annotations

from typing import Any

import pytest

from firearrow.broker.roles.group_members import parse_peers
from firearrow.broker.settings import BrokerSettings
from firearrow.config.fields import SettingError

PEERS = "n0-h0:1;n1-h1:2;n2-h2:3"


def test_members_are_parsed() -> None:
    peers = parse_peers("G", PEERS, "n1", None)
    assert (peers.me, peers.others, peers.own_broker_id) == ("n1", ["n0", "n2"], 2)
    assert peers.addresses["n2"] == "h2:3"


@pytest.mark.parametrize(
    ("peers", "me", "preferred", "key", "text"),
    [
        ("", "n0", None, "dLegerPeers", "the members, like"),
        ("n0", "n0", None, "dLegerPeers", "id-host:port"),
        ("0-h:1", "0", None, "dLegerPeers", "a letter with a number"),
        ("n0-h:port", "n0", None, "dLegerPeers", "port"),
        ("n0-h:1;n0-h:2", "n0", None, "dLegerPeers", "n0 appears twice"),
        ("n0-h:1;n1-h:1", "n0", None, "dLegerPeers", "h:1 appears twice"),
        ("n0-h:1;m0-h:2", "n0", None, "dLegerPeers", "different numbers"),
        (";".join(f"n{i}-h:{i + 1}" for i in range(10)), "n0", None, "dLegerPeers", "at most 9"),
        (PEERS, "n3", None, "dLegerSelfId", "n0, n1, n2"),
        (PEERS, None, None, "dLegerSelfId", "n0, n1, n2"),
        (PEERS, "n0", "n7", "preferredLeaderId", "n0, n1, n2"),
    ],
)
def test_inconsistent_peer_settings_are_rejected(peers: str, me: str | None, preferred: str | None, key: str, text: str) -> None:
    with pytest.raises(SettingError, match=key) as refused:
        parse_peers("G", peers, me, preferred)
    assert text in str(refused.value)


def test_role_of_a_member_cannot_be_set() -> None:
    elected: dict[str, Any] = {"enable_d_leger_commit_log": True, "d_leger_peers": PEERS, "d_leger_self_id": "n1"}
    BrokerSettings(**elected, allow_unauthenticated_peers=True).check()
    with pytest.raises(SettingError, match="the group elects its master"):
        BrokerSettings(broker_role="SYNC_MASTER", **elected).check()
