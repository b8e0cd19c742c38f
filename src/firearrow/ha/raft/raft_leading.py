"""Leading: bytes for every follower, the commit that their acknowledgements allow, handing over and stepping down."""

from __future__ import annotations

from firearrow.ha.raft.interfaces import LogDamagedError
from firearrow.ha.raft.messages import Ack, Append, Probe, TakeOver, Verdict
from firearrow.ha.raft.progress import Progress
from firearrow.ha.raft.raft_state import RaftState, Role


def on_ack(raft: RaftState, sender: str, message: Ack) -> None:
    progress = raft.progress.get(sender)
    if raft.role is not Role.LEADER or progress is None or message.verdict is Verdict.STALE:
        return
    progress.last_heard_ms = raft.now_ms
    progress.doubt = message.doubt
    if message.verdict is Verdict.PROBE or message.end < raft.log.min_offset:
        progress.begin_probing()
        send_probe(raft, sender)
        return
    if progress.probing:
        progress.begin_streaming(message.end, raft.now_ms)
    elif message.verdict is Verdict.GAP:
        progress.close_gap(message.end, raft.now_ms, raft.options.heartbeat_ms)
    if message.match > progress.acked:
        progress.acked = message.match
        progress.moved_ms = raft.now_ms
    progress.next = max(progress.next, progress.acked)
    if message.epoch == raft.term and message.match > progress.match:
        progress.match = message.match
        advance_commit(raft)
    send_bytes(raft, sender)
    _finish_transfer(raft)


def advance_commit(raft: RaftState) -> None:
    """Commit only what the majority holds within the current epoch."""
    own = raft.durable if raft.durable >= raft.term_start else -1
    offsets = sorted([own, *(progress.match for progress in raft.progress.values())], reverse=True)
    held = offsets[raft.majority - 1]
    if held >= raft.term_start and held > raft.commit:
        raft.commit = held


def counted(raft: RaftState, offset: int) -> bool:
    holders = sum(progress.match >= offset for progress in raft.progress.values())
    return holders + (raft.durable >= offset) >= raft.majority


def tick_leader(raft: RaftState) -> None:
    heard = sum(raft.now_ms - progress.last_heard_ms < raft.options.election_ms for progress in raft.progress.values())
    if heard + 1 < raft.majority:
        raft.note(f"{raft.me} steps down from term {raft.term}: it hears {heard} of {len(raft.peers)} others")
        raft.become_follower(raft.term, None)
        return
    if raft.transfer_to is not None and raft.now_ms >= raft.transfer_until_ms:
        raft.note(f"{raft.me} goes on leading: {raft.transfer_to} did not take over in time")
        raft.transfer_to = None
    _prefer(raft)
    for peer in raft.peers:
        progress = raft.progress[peer]
        if not progress.probing and progress.in_flight and raft.now_ms - progress.moved_ms >= raft.options.resend_ms:
            progress.next = progress.acked
            progress.moved_ms = raft.now_ms
            send_bytes(raft, peer)
        if raft.now_ms - progress.last_sent_ms >= raft.options.heartbeat_ms:
            if progress.probing:
                send_probe(raft, peer)
            else:
                send_bytes(raft, peer, heartbeat=True)
        if raft.role is not Role.LEADER:
            return


def _prefer(raft: RaftState) -> None:
    preferred = raft.progress.get(raft.options.preferred_leader or "")
    if preferred is None or raft.now_ms < raft.preferred_check_ms:
        return
    raft.preferred_check_ms = raft.now_ms + raft.options.preferred_check_ms
    lives = raft.now_ms - preferred.last_heard_ms < raft.options.election_ms and not preferred.doubt
    near = preferred.match >= raft.end - raft.options.preferred_lag_bytes
    if lives and near and preferred.match >= 0 and raft.transfer_to is None and raft.options.preferred_leader is not None:
        begin_transfer(raft, raft.options.preferred_leader)


def begin_transfer(raft: RaftState, to: str) -> None:
    raft.note(f"{raft.me} hands term {raft.term} over to {to}")
    raft.transfer_to = to
    raft.transfer_until_ms = raft.now_ms + raft.options.election_ms
    send_bytes(raft, to)
    _finish_transfer(raft)


def _finish_transfer(raft: RaftState) -> None:
    if raft.transfer_to is not None and raft.progress[raft.transfer_to].match >= raft.end:
        raft.send(raft.transfer_to, TakeOver(raft.term))


def send_probe(raft: RaftState, peer: str) -> None:
    raft.progress[peer].last_sent_ms = raft.now_ms
    raft.send(peer, Probe(raft.term, raft.log.min_offset, raft.end, raft.commit, raft.epochs))


def send_bytes(raft: RaftState, peer: str, *, heartbeat: bool = False) -> None:
    """What the peer lacks, as far as its window and one slice allow. A heartbeat when there is nothing."""
    progress = raft.progress[peer]
    if progress.probing:
        return
    limit = min(raft.end, progress.next + raft.options.slice_bytes)
    while progress.next < limit and progress.in_flight < raft.options.window_bytes:
        if progress.next < raft.log.min_offset:
            progress.begin_probing()
            send_probe(raft, peer)
            return
        data = _read(raft, progress.next)
        if data is None:
            return
        if not progress.in_flight:
            progress.moved_ms = raft.now_ms
        raft.send(peer, Append(raft.term, progress.next, raft.end, raft.commit, progress.doubt, data))
        progress.next += len(data)
        progress.last_sent_ms = raft.now_ms
        heartbeat = False
    if heartbeat:
        raft.send(peer, Append(raft.term, progress.next, raft.end, raft.commit, progress.doubt))
        progress.last_sent_ms = raft.now_ms


def may_send(raft: RaftState, progress: Progress) -> bool:
    return not progress.probing and progress.next < raft.end and progress.in_flight < raft.options.window_bytes


def _read(raft: RaftState, offset: int) -> bytes | None:
    try:
        return raft.log.read(offset, min(raft.options.batch_bytes, raft.end - offset))
    except (LogDamagedError, OSError) as error:
        raft.go_out(f"the log cannot be read at {offset}: {error}. Start this member again: it repairs from the others")
        return None
