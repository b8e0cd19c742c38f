"""Following: the log becomes a beginning of the leader's, takes its bytes and says how far they are durable; doubt ends here."""

from __future__ import annotations

from firearrow.ha.raft.epochs import EpochTable
from firearrow.ha.raft.messages import Ack, Append, Probe, Verdict
from firearrow.ha.raft.raft_state import RaftState, Role


def on_probe(raft: RaftState, sender: str, message: Probe) -> None:
    if not _follow(raft, sender):
        return
    if raft.leader_epochs is None:
        if raft.fresh and message.end > 0:
            raft.begin_doubt("it has no files, and its group has a history")
        raft.fresh = False
        if not _agree(raft, message):
            return
        raft.leader_epochs = message.epochs
    learn_commit(raft, message.commit)
    ack(raft, sender)


def _agree(raft: RaftState, message: Probe) -> bool:
    """Makes the log a beginning of the leader's; False when that would cost something confirmed."""
    point = raft.epochs.agreement(message.epochs, raft.end)
    kept = point or 0
    if raft.commit > max(kept, message.min_offset):
        raft.go_out(
            f"the leader of term {raft.term} ({raft.leader}) shares this log only up to {kept}, and it is confirmed up to "
            f"{raft.commit}: nothing was cut off. Compare the store directories of the group before you go on"
        )
        return False
    if kept < max(message.min_offset, raft.log.min_offset):
        _start_anew_at(raft, message)
    elif kept < raft.end:
        raft.note(f"{raft.me} cuts its log from {raft.end} to {kept}: the leader of term {raft.term} has something else there")
        raft.ready.truncate_to = kept
        raft.end = kept
        raft.durable = min(raft.durable, kept)
        raft.cuts += 1
    raft.set_epochs(message.epochs.up_to(raft.end))
    return True


def _start_anew_at(raft: RaftState, message: Probe) -> None:
    """The leader no longer has what would follow our end: the log begins anew where the leader's begins."""
    start = message.min_offset
    raft.note(f"{raft.me} begins its log anew at {start}: it ended at {raft.end} and the leader's begins at {start}")
    raft.ready.reset_to = start
    raft.epochs = EpochTable()
    raft.end = raft.durable = start
    raft.commit = max(raft.commit, start)
    raft.cuts += 1


def on_append(raft: RaftState, sender: str, message: Append) -> None:
    if not _follow(raft, sender):
        return
    if raft.leader_epochs is None:
        ack(raft, sender, Verdict.PROBE)
        return
    if message.echo and message.echo == raft.doubt and raft.doubt_ends_at is None:
        raft.doubt_ends_at = message.end
    if message.offset > raft.end:
        ack(raft, sender, Verdict.GAP)
        return
    data = message.data[raft.end - message.offset :]
    if data:
        raft.ready.writes.append((raft.end, data))
        raft.ready.sync = True
        raft.end += len(data)
        raft.set_epochs(raft.leader_epochs.up_to(raft.end))
    learn_commit(raft, message.commit)
    end_doubt(raft)
    if not data:
        ack(raft, sender)


def _follow(raft: RaftState, leader: str) -> bool:
    """The sender leads our term. Two leaders of one term would mean that a vote was given twice."""
    if raft.role is Role.LEADER or raft.leader not in (None, leader):
        raft.go_out(
            f"{leader} and {raft.leader} both lead term {raft.term}: do two members have the same id or a copied directory?"
        )
        return False
    raft.role = Role.FOLLOWER
    raft.leader = leader
    raft.heard_ms = raft.now_ms
    raft.wait_for_election()
    return True


def learn_commit(raft: RaftState, commit: int) -> None:
    raft.leader_commit = max(raft.leader_commit, commit)
    raft.commit = max(raft.commit, min(raft.leader_commit, raft.durable))


def ack(raft: RaftState, leader: str, verdict: Verdict = Verdict.OK) -> None:
    raft.send(leader, Ack(raft.term, raft.durable, raft.end, raft.epochs.last, verdict, raft.doubt))


def end_doubt(raft: RaftState) -> None:
    if raft.doubt_ends_at is not None and raft.durable >= raft.doubt_ends_at and raft.epochs.last == raft.term:
        raft.doubtful = False
        raft.doubt = 0
        raft.doubt_ends_at = None
        raft.persist_vote()
        raft.note(f"{raft.me} has caught up at {raft.durable} and votes again")
