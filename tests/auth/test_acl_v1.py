"""Migration of ACL 1.0's accounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from firearrow.auth.acl_v1 import read_accounts
from firearrow.config.fields import SettingError, apply
from firearrow.namesrv.settings import NamesrvSettings
from firearrow.wire.bodies.auth import PolicyInfo

PLAIN = """
globalWhiteRemoteAddresses:
- 10.10.103.*
accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress: 192.168.1.*
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms: ["topicA=DENY", "topicB=PUB|SUB", "topicC=SUB"]
  groupPerms:
  - groupA=DENY
  - groupB=FLY
- accessKey: rocketmq2
  secretKey: abcdefgh
  admin: true
dataVersion: [{counter: 1, timestamp: 1684290520350}]
"""


def settings_for(home: Path | None) -> NamesrvSettings:
    settings = NamesrvSettings()
    if home is not None:
        apply([settings], {"rocketmqHome": str(home)})
    return settings


def write(home: Path, name: str, text: str) -> None:
    path = home / "conf" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def shown(policy: PolicyInfo) -> list[str]:
    return [f"{entry.decision} {','.join(entry.actions or ())} {entry.resource}" for entry in policy.entries]


def test_accounts_become_users_with_policies(tmp_path: Path) -> None:
    write(tmp_path, "plain_acl.yml", PLAIN)
    (normal, acl), (admin, _) = read_accounts(settings_for(tmp_path))
    assert (normal.name, normal.password.reveal(), normal.is_super) == ("RocketMQ", "12345678", False)
    assert (admin.name, admin.is_super) == ("rocketmq2", True)
    assert acl is not None
    custom, default = acl.info().policies
    assert shown(custom) == [
        "Deny All Topic:topicA",
        "Allow Pub,Sub Topic:topicB",
        "Allow Sub Topic:topicC",
        "Deny All Group:groupA",
        "Deny All Group:groupB",  # Apache allows everything for an unknown word
    ]
    assert shown(default) == ["Deny All Topic:*", "Allow Sub Group:*"]


def test_first_of_several_files_wins(tmp_path: Path) -> None:
    write(tmp_path, "plain_acl.yml", PLAIN)
    write(
        tmp_path,
        "acl/more/b.yaml",
        "accounts: [{accessKey: rocketmq2, secretKey: other678}, {accessKey: rocketmq3, secretKey: abcdefgh}]",
    )
    write(tmp_path, "tools.yml", "accessKey: rocketmq4\nsecretKey: 12345678\n")
    found = {user.name: user.password.reveal() for user, _ in read_accounts(settings_for(tmp_path))}
    assert found == {"RocketMQ": "12345678", "rocketmq2": "abcdefgh", "rocketmq3": "abcdefgh"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("accounts: [", "cannot be read"),
        ("accounts: {a: b}", "not a list of objects"),
        ("accounts: [{accessKey: short, secretKey: 12345678}]", "fewer than 7 characters"),
        ("accounts: [{accessKey: RocketMQ, secretKey: 12345678, topicPerms: [x]}]", "not name=permission"),
        ("accounts: [{accessKey: RocketMQ, secretKey: 12345678, topicPerms: x}]", "lists of name=permission"),
    ],
)
def test_unreadable_file_stops_the_start(tmp_path: Path, text: str, problem: str) -> None:
    write(tmp_path, "plain_acl.yml", text)
    with pytest.raises(SettingError, match=problem) as caught:
        read_accounts(settings_for(tmp_path))
    assert "12345678" not in str(caught.value)


def test_missing_files_stop_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    with pytest.raises(SettingError, match="rocketmqHome"):
        read_accounts(settings_for(None))
    with pytest.raises(SettingError, match=r"conf/plain_acl\.yml"):
        read_accounts(settings_for(tmp_path))
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    write(tmp_path, "plain_acl.yml", "")
    assert read_accounts(settings_for(None)) == []
