"""Elections: pre-votes, votes, who is believed to lead, and how a term begins."""

from __future__ import annotations

from firearrow.ha.raft import raft_leading as leading
from firearrow.ha.raft.epochs import MAX_EPOCH
from firearrow.ha.raft.messages import Ack, Append, Message, Probe, Verdict, Vote, VoteReply
from firearrow.ha.raft.progress import Progress
from firearrow.ha.raft.raft_state import RaftState, Role


def takes_newer_term(raft: RaftState, sender: str, message: Message) -> bool:
    """Goes to the message's term where that is right; False when the message is done with."""
    match message:
        case Vote() if not message.transfer and raft.has_leader():
            return False  # a member that was cut off for a while does not unseat a leader that others hear
        case Vote(pre=True):
            return True
        case VoteReply(granted=True, pre=True):
            return raft.role is Role.PRE_CANDIDATE
        case Probe() | Append():
            raft.become_follower(message.term, sender)
        case _:
            raft.become_follower(message.term, None)
    return True


def answer_older_term(raft: RaftState, sender: str, message: Message) -> None:
    match message:
        case Vote():
            raft.send(sender, VoteReply(raft.term, False, message.pre))
        case Probe() | Append():
            raft.send(sender, Ack(raft.term, 0, 0, 0, Verdict.STALE))
        case _:
            pass


def campaign_before(raft: RaftState) -> None:
    """Would they vote for me? The term stays as it is."""
    if raft.term >= MAX_EPOCH:
        return
    raft.role = Role.PRE_CANDIDATE
    raft.leader = None
    raft.votes = {raft.me}
    if len(raft.votes) >= raft.majority:
        campaign(raft)
        return
    for peer in raft.peers:
        raft.send(peer, Vote(raft.term + 1, raft.epochs.last, raft.end, pre=True))


def campaign(raft: RaftState, *, transfer: bool = False) -> None:
    raft.role = Role.CANDIDATE
    raft.leader = None
    raft.term += 1
    raft.voted_for = raft.me
    raft.leader_epochs = None
    raft.leader_commit = 0
    raft.fresh = False
    raft.persist_vote()
    raft.wait_for_votes()
    raft.votes = {raft.me}
    if len(raft.votes) >= raft.majority:
        _become_leader(raft)
        return
    for peer in raft.peers:
        raft.send(peer, Vote(raft.term, raft.epochs.last, raft.end, transfer=transfer))


def on_vote(raft: RaftState, sender: str, message: Vote) -> None:
    if raft.fresh and message.last_epoch:
        raft.begin_doubt("it has no files, and its group has a history")
    current = (message.last_epoch, message.end) >= (raft.epochs.last, raft.end)
    if message.pre:
        granted = current and not raft.doubtful and not raft.has_leader() and message.term > raft.term
        raft.send(sender, VoteReply(message.term if granted else raft.term, granted, pre=True))
        return
    free = raft.voted_for == sender or (raft.voted_for is None and raft.leader is None)
    granted = current and free and not raft.doubtful
    if granted:
        raft.fresh = False
        if raft.voted_for is None:
            raft.voted_for = sender
            raft.persist_vote()
        raft.wait_for_election()
    raft.send(sender, VoteReply(raft.term, granted))


def on_vote_reply(raft: RaftState, sender: str, message: VoteReply) -> None:
    wanted = (Role.PRE_CANDIDATE, raft.term + 1) if message.pre else (Role.CANDIDATE, raft.term)
    if not message.granted or (raft.role, message.term) != wanted:
        return
    raft.votes.add(sender)
    if len(raft.votes) >= raft.majority:
        if message.pre:
            campaign(raft)
        else:
            _become_leader(raft)


def _become_leader(raft: RaftState) -> None:
    assert not raft.doubtful, "a member in doubt was elected"
    assert raft.epochs.last < raft.term, f"epoch {raft.epochs.last} is in the table before term {raft.term} has begun"
    raft.role = Role.LEADER
    raft.leader = raft.me
    raft.term_start = raft.end
    raft.set_epochs(raft.epochs.begun(raft.term, raft.end, raft.log.min_offset))
    raft.ready.sync = True
    raft.preferred_check_ms = raft.now_ms + raft.options.preferred_check_ms
    raft.progress = {peer: Progress(raft.now_ms) for peer in raft.peers}
    raft.note(f"{raft.me} leads term {raft.term} from offset {raft.end}")
    for peer in raft.peers:
        leading.send_probe(raft, peer)
    leading.advance_commit(raft)
