from __future__ import annotations

from firearrow.admin.doctor.elected import parse_members


def test_members_are_parsed_with_their_addresses() -> None:
    assert parse_members("n0-127.0.0.1:10914; n1-h:1;") == {"n0": "127.0.0.1:10914", "n1": "h:1"}
    assert parse_members("") == {}
