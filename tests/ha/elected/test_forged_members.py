"""A stranger on the Raft port of an authenticated group changes nothing, whatever it sends."""

from __future__ import annotations

from pathlib import Path

import pytest

from firearrow.broker.server import Broker
from firearrow.ha.elected.links import PURPOSE
from firearrow.ha.peers.handshake import LinkIdentity
from tests.broker.running import client
from tests.ha.elected.test_member_in_process import group, leader_of, member_of
from tests.ha.pairs import log_bytes
from tests.ha.peers.forgery import GROUP, MEMBERS, forged_messages, frame, send_after_failed_handshake, send_raw, write_secret
from tests.support.waiting import run, until


def in_step(brokers: list[Broker]) -> bool:
    return len({(broker.context.store.max_offset, broker.context.store.confirm_offset) for broker in brokers}) == 1


def test_forged_messages_change_nothing_in_an_authenticated_group(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with group(tmp_path, peer_secret_file=write_secret(tmp_path)) as brokers:
            leader = leader_of(brokers)
            assert leader is not None
            async with client(leader) as sender:
                assert (await sender.send("T", b"before")).code == 0
            await until(lambda: in_step(brokers))
            raft = member_of(leader).raft
            before = (raft.term, leader.context.store.max_offset, [log_bytes(broker) for broker in brokers])
            leader_addresses = [member_of(broker).leader_address() for broker in brokers]
            for broker in brokers:
                here = member_of(broker).peers.me
                for sender_name in MEMBERS:
                    if sender_name == here:
                        continue
                    for message in forged_messages(raft.term, leader.context.store.max_offset):
                        assert await send_raw(member_of(broker).peers.addresses[here], frame(sender_name, here, message)) == b""
                    identity = LinkIdentity(PURPOSE, "DefaultCluster", GROUP, sender_name, here)
                    forged = frame(sender_name, here, forged_messages(raft.term, 0)[1])
                    await send_after_failed_handshake(
                        member_of(broker).peers.addresses[here], identity, b"a guess of the secret", forged
                    )
            assert leader_of(brokers) is leader
            assert (raft.term, leader.context.store.max_offset, [log_bytes(broker) for broker in brokers]) == before
            assert [member_of(broker).leader_address() for broker in brokers] == leader_addresses
            for broker in brokers:  # followers still forward to the leader
                async with client(broker) as sender:
                    assert (await sender.send("T", b"after")).code == 0

    run(scenario())
    assert "rejected a connection from 127.0.0.1:" in caplog.text
    assert "it does not authenticate" in caplog.text
    assert "it does not know the secret of this group" in caplog.text
