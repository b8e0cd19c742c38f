"""Driver of the Raft core: opens a member's files and carries out each `Ready` in order.

It has no sockets, threads or clocks either. Received bytes go into `received`, bytes to send come out of `outbox`. The owner
calls `tick` regularly, `sync` (or `synced`, with a flusher of its own) soon after `sync_wanted` is set, and `send_backlog`
while `raft.has_backlog`.

Opening. Entries of the epoch table that start behind the end of the log are dropped: their bytes were never durable. A member is
quarantined (hard_state.py) if its log lost durable bytes, if it has a log but no vote file, or if it was quarantined before. A
non-empty log without an epoch table does not belong to an elected group: the member does not start. Neither does it start with
the directory of another group or member.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import replace

from firearrow.ha.raft.epochs import EpochTable
from firearrow.ha.raft.hard_state import (
    EPOCH_FILE,
    HARD_STATE_FILE,
    HardState,
    LogIdentity,
    id_of_unidentified_group,
    load_epochs,
    load_hard_state,
    new_id,
    save_epochs,
    save_hard_state,
)
from firearrow.ha.raft.interfaces import RaftLog, Ready
from firearrow.ha.raft.messages import Codec, Hello, Message
from firearrow.ha.raft.raft import Options, Raft, Role
from firearrow.store.errors import StoreError
from firearrow.store.filesystem import Disk


class RaftNode:
    """A member with its files.

    The owner drains `outbox`, pairs of (receiver, bytes), and `log_lines`, messages for the operator.
    """

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
        commit: int = 0,
    ) -> None:
        self.codec = Codec(group, members, me)
        self._disk = disk
        self._log = log
        self._hard_state_path = os.path.join(directory, HARD_STATE_FILE)
        self._epochs_path = os.path.join(directory, EPOCH_FILE)
        self.outbox: list[tuple[str, bytes]] = []
        self.log_lines: list[str] = []
        self.sync_wanted = False
        hard_state, epochs, uninitialised = self._load(group, me, directory, rng)
        self.raft = Raft(
            me,
            members,
            log,
            hard_state,
            epochs,
            options=options,
            rng=rng,
            now_ms=now_ms,
            uninitialised=uninitialised,
            commit=commit,
        )

    def _load(self, group: str, me: str, directory: str, rng: random.Random) -> tuple[HardState, EpochTable, bool]:
        saved_state = load_hard_state(self._disk, self._hard_state_path)
        saved_epochs = load_epochs(self._disk, self._epochs_path) or EpochTable()
        is_empty = not saved_epochs.entries and self._log.end_offset == 0
        identity = self._identify(saved_state, LogIdentity(group, me), directory, rng, is_empty=is_empty)
        hard_state = replace(saved_state or HardState(), identity=identity)
        uninitialised = is_empty and not identity.group_id and not hard_state.quarantined
        reasons = {
            "durable bytes of its log are missing or damaged": self._log.lost,
            "it has a log but no vote file": saved_state is None and not is_empty,
        }
        causes = [reason for reason, holds in reasons.items() if holds]
        if causes:
            hard_state = replace(hard_state, quarantined=True)
            self.log_lines.append(f"{me} does not vote until it has caught up: {', '.join(causes)}")
        if causes or (saved_state is not None and saved_state.identity != identity):
            save_hard_state(self._disk, self._hard_state_path, hard_state)
        if self._log.end_offset > self._log.min_offset and not saved_epochs.entries and not hard_state.quarantined:
            raise StoreError(
                f"{directory}: a log up to {self._log.end_offset} without {EPOCH_FILE} does not belong to an elected group. "
                "Restore the file, or move the directory away and start again: the member then copies everything from the others"
            )
        epochs = saved_epochs.up_to(self._log.end_offset)
        if epochs != saved_epochs:
            save_epochs(self._disk, self._epochs_path, epochs)
        return hard_state, epochs, uninitialised

    def _identify(
        self, saved: HardState | None, expected: LogIdentity, directory: str, rng: random.Random, *, is_empty: bool
    ) -> LogIdentity:
        """Return the identity of the directory. StoreError if it belongs to another group or member."""
        if saved is None:
            return replace(expected, log_id=new_id(rng))
        found = saved.identity
        if not found.member:
            group_id = 0 if is_empty and not saved.term else id_of_unidentified_group(expected.group)
            identity = replace(expected, group_id=group_id, log_id=new_id(rng))
            if group_id:
                self.log_lines.append(
                    f"{directory} was written by a version without ids: it is now log {identity.log_id:016x} of "
                    f"{expected.member} in group {expected.group} ({group_id:016x})"
                )
            return identity
        if (found.group, found.member) != (expected.group, expected.member):
            raise StoreError(
                f"{directory} belongs to member {found.member} of group {found.group}, not to member {expected.member} of group "
                f"{expected.group}. Nothing was changed. Check storePathRootDir, dLegerGroup and dLegerSelfId"
            )
        return found

    # Events

    def received(self, data: bytes, now_ms: int) -> None:
        """Handle an encoded message. Raises ProtocolError if it does not come from a member of this group."""
        sender, message = self.codec.decode(data)
        if not isinstance(message, Hello):
            self.step(sender, message, now_ms)

    def step(self, sender: str, message: Message, now_ms: int) -> None:
        self._apply(self.raft.step(sender, message, now_ms))

    def connected(self, peer: str, now_ms: int) -> None:
        self._apply(self.raft.connected(peer, now_ms))

    def greeted(self, peer: str, group_id: int) -> None:
        self._apply(self.raft.greeted(peer, group_id))

    def disconnected(self, peer: str, now_ms: int) -> None:
        self._apply(self.raft.disconnected(peer, now_ms))

    def tick(self, now_ms: int, late_ms: int = 0) -> None:
        self._apply(self.raft.tick(now_ms, late_ms))

    def appended(self, now_ms: int) -> None:
        """Handle records that the leader's broker has appended to the log."""
        self._apply(self.raft.appended(self._log.end_offset, now_ms))

    def send_backlog(self, now_ms: int) -> None:
        self._apply(self.raft.send_backlog(now_ms))

    def take_sync_request(self) -> bool:
        """Return whether the log must become durable, and reset `sync_wanted`."""
        wanted, self.sync_wanted = self.sync_wanted, False
        return wanted

    def sync(self, now_ms: int) -> None:
        """Make the log durable in the calling thread."""
        self.sync_wanted = False
        if self.raft.role is Role.HALTED:
            return
        try:
            end = self._log.sync()
        except (OSError, StoreError) as error:
            self.failed(error)
            return
        self.synced(end, self.raft.truncations, now_ms)

    def synced(self, offset: int, truncations: int, now_ms: int) -> None:
        """Handle a completed flush up to `offset`; `truncations` is the value of `raft.truncations` when it began."""
        self._apply(self.raft.synced(offset, truncations, now_ms))

    def transfer_leadership(self, to: str, now_ms: int) -> None:
        self._apply(self.raft.transfer_leadership(to, now_ms))

    def failed(self, error: OSError | StoreError) -> None:
        """Halt after a failed append, read or sync of the log."""
        self._apply(self.raft.halt(f"{error}. Restart this member when its disk is repaired"))

    def _apply(self, ready: Ready) -> None:
        self.log_lines += ready.log_lines
        try:
            if ready.hard_state is not None:
                save_hard_state(self._disk, self._hard_state_path, ready.hard_state)
            if ready.reset_to is not None:
                save_hard_state(self._disk, self._hard_state_path, replace(self.raft.hard_state, quarantined=True))
                save_epochs(self._disk, self._epochs_path, EpochTable())
                self._log.reset(ready.reset_to)
            if ready.truncate_to is not None:
                self._log.truncate(ready.truncate_to)
            if ready.epochs is not None:
                save_epochs(self._disk, self._epochs_path, ready.epochs)
            if ready.reset_to is not None:
                save_hard_state(self._disk, self._hard_state_path, self.raft.hard_state)
            for offset, data in ready.writes:
                self._log.append(offset, data)
        except (OSError, StoreError) as error:
            self.failed(error)
            return
        self.sync_wanted |= ready.sync
        encode, group_id = self.codec.encode, self.raft.identity.group_id
        self.outbox += [(to, encode(to, message, group_id)) for to, message in ready.messages]
