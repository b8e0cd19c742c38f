"""Message ids of producers."""

from __future__ import annotations

from firearrow.client.producer import message_ids
from tests.client.sync.test_derive import in_child


def test_ids_are_unique_and_hexadecimal() -> None:
    next_id = message_ids.id_generator("10.0.0.1")
    ids = {next_id(1_700_000_000_000) for _ in range(1_000)}
    assert len(ids) == 1_000
    assert all(len(one) == 32 and int(one, 16) for one in ids)


def test_forked_process_makes_other_ids() -> None:
    ours = message_ids.next_key("10.0.0.1")
    theirs = in_child(lambda: message_ids.next_key("10.0.0.1"))
    assert theirs[:8] == ours[:8], "the same address"
    assert theirs[8:16] != ours[8:16], "another process"
