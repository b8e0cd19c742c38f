"""Changes of users in the log of an elected group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from firearrow.broker.tables.change_log import MetadataChangeLog
from tests.auth.kit import Users
from tests.broker.kit import Kit


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    kit = Kit(tmp_path)
    yield kit
    kit.close()


def test_new_leader_applies_the_changes_of_users(kit: Kit) -> None:
    leader, successor = Users(), Users()
    MetadataChangeLog(replace(kit.context, auth=leader.table), lambda: True, lambda: kit.now)
    leader.add("alice")
    leader.add("bob")
    leader.allow("alice", "Topic:a Pub")
    leader.table.delete_user("bob")
    written = kit.store.write_out()
    assert written is not None
    kit.store.confirm(written.end_offset)
    MetadataChangeLog(replace(kit.context, auth=successor.table), lambda: False, lambda: kit.now).apply()
    for part in ("users", "acls"):
        assert successor.table.to_json()[part] == leader.table.to_json()[part]
