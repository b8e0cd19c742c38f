"""One member of an elected group with its files: opens them, and carries out what the state machine asks for, in its order.

Still without sockets, threads and clocks: bytes that arrived go in at `received`, bytes to send come out of `outbox`, and whoever
drives it calls `tick`, `sync` (or, from a flusher of its own, `synced`) soon after `sync_wanted` is set, and `pump` while
`raft.lagging` is.

Opening. The table loses entries that begin behind the end of the log: their bytes were never durable. A member is in doubt
(raft_vote.py) when its log lost bytes that had been durable, when it has a log but no vote, or when it was in doubt before. A log
that is not empty without a table is not a group's: the member does not start.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import replace

from firearrow.ha.raft import epochs as epochs_file
from firearrow.ha.raft import hard_state as hard_state_file
from firearrow.ha.raft.epochs import EpochTable, load_epochs, save_epochs
from firearrow.ha.raft.hard_state import HardState, load_vote, save_vote
from firearrow.ha.raft.interfaces import RaftLog, Ready
from firearrow.ha.raft.messages import Codec, Hello, Message
from firearrow.ha.raft.raft import Options, Raft, Role
from firearrow.store.errors import StoreError
from firearrow.store.filesystem import Disk


class RaftNode:
    """`outbox`: (receiver, bytes), for the driver to take. `notes`: lines for the operator, likewise."""

    def __init__(
        self,
        group: str,
        members: Sequence[str],
        me: str,
        *,
        disk: Disk,
        directory: str,
        log: RaftLog,
        options: Options,
        rng: random.Random,
        now_ms: int,
    ) -> None:
        self.codec = Codec(group, members, me)
        self._disk = disk
        self._log = log
        self._vote_path = os.path.join(directory, hard_state_file.FILE_NAME)
        self._epochs_path = os.path.join(directory, epochs_file.FILE_NAME)
        self.outbox: list[tuple[str, bytes]] = []
        self.notes: list[str] = []
        self.sync_wanted = False
        hard_state, epochs, fresh = self._load(me, directory)
        self.raft = Raft(me, members, log, hard_state, epochs, options=options, rng=rng, now_ms=now_ms, fresh=fresh)

    def _load(self, me: str, directory: str) -> tuple[HardState, EpochTable, bool]:
        saved_vote, saved_epochs = load_vote(self._disk, self._vote_path), load_epochs(self._disk, self._epochs_path)
        hard_state, saved_epochs = saved_vote or HardState(), saved_epochs or EpochTable()
        fresh = saved_vote is None and not saved_epochs.entries and self._log.end_offset == 0
        reasons = {
            "bytes of its log that had been durable are gone or damaged": self._log.lost,
            "it has a log and no vote": saved_vote is None and not fresh,
        }
        why = [reason for reason, holds in reasons.items() if holds]
        if why:
            hard_state = replace(hard_state, doubtful=True)
            save_vote(self._disk, self._vote_path, hard_state)
            self.notes.append(f"{me} does not vote until it has caught up: {', '.join(why)}")
        if self._log.end_offset > self._log.min_offset and not saved_epochs.entries and not hard_state.doubtful:
            raise StoreError(
                f"{directory}: a log up to {self._log.end_offset} without {epochs_file.FILE_NAME} is not an elected group's. "
                "Put the table back, or move the directory away and start again: the member fetches everything from the others"
            )
        epochs = saved_epochs.up_to(self._log.end_offset)
        if epochs != saved_epochs:
            save_epochs(self._disk, self._epochs_path, epochs)
        return hard_state, epochs, fresh

    # Events

    def received(self, data: bytes, now_ms: int) -> None:
        """ProtocolError when the bytes come from no member of this group."""
        sender, message = self.codec.decode(data)
        if not isinstance(message, Hello):
            self.step(sender, message, now_ms)

    def step(self, sender: str, message: Message, now_ms: int) -> None:
        self._carry_out(self.raft.step(sender, message, now_ms))

    def connected(self, peer: str, now_ms: int) -> None:
        self._carry_out(self.raft.connected(peer, now_ms))

    def disconnected(self, peer: str, now_ms: int) -> None:
        self._carry_out(self.raft.disconnected(peer, now_ms))

    def tick(self, now_ms: int) -> None:
        self._carry_out(self.raft.tick(now_ms))

    def appended(self, now_ms: int) -> None:
        """The leader's broker wrote records at the end of the log."""
        self._carry_out(self.raft.appended(self._log.end_offset, now_ms))

    def pump(self, now_ms: int) -> None:
        self._carry_out(self.raft.pump(now_ms))

    def sync(self, now_ms: int) -> None:
        """Makes the log durable here and now."""
        self.sync_wanted = False
        if self.raft.role is Role.OUT:
            return
        try:
            end = self._log.sync()
        except (OSError, StoreError) as error:
            self.failed(error)
            return
        self.synced(end, self.raft.cuts, now_ms)

    def synced(self, offset: int, cuts: int, now_ms: int) -> None:
        """A flusher made the log durable up to `offset`; `cuts` is what raft.cuts was when it began."""
        self._carry_out(self.raft.synced(offset, cuts, now_ms))

    def transfer(self, to: str, now_ms: int) -> None:
        self._carry_out(self.raft.transfer(to, now_ms))

    def failed(self, error: OSError | StoreError) -> None:
        """An append, a read or a sync of the log failed."""
        self._carry_out(self.raft.fail(f"{error}. Start this member again when its disk is well"))

    def _hard_state(self) -> HardState:
        return HardState(self.raft.term, self.raft.voted_for, self.raft.doubtful)

    # What came of it

    def _carry_out(self, ready: Ready) -> None:
        self.notes += ready.notes
        try:
            if ready.hard_state is not None:
                save_vote(self._disk, self._vote_path, ready.hard_state)
            if ready.reset_to is not None:
                save_vote(self._disk, self._vote_path, replace(self._hard_state(), doubtful=True))
                save_epochs(self._disk, self._epochs_path, EpochTable())
                self._log.reset(ready.reset_to)
            if ready.truncate_to is not None:
                self._log.truncate(ready.truncate_to)
            if ready.epochs is not None:
                save_epochs(self._disk, self._epochs_path, ready.epochs)
            if ready.reset_to is not None:
                save_vote(self._disk, self._vote_path, self._hard_state())
            for offset, data in ready.writes:
                self._log.append(offset, data)
        except (OSError, StoreError) as error:
            self.failed(error)
            return
        self.sync_wanted |= ready.sync
        encode = self.codec.encode
        self.outbox += [(to, encode(to, message)) for to, message in ready.messages]
