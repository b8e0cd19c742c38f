"""Timeouts of elections, adapted to the delays that a member observes.

On a starved machine a heartbeat, a vote or an acknowledgement may take longer than the configured timeout. Members that kept to
it would start the next election before the votes of the last one arrive, and new leaders would step down before their followers
answer. So the timeouts grow with the delays of the recent past: late timers of this process, gaps between a leader's messages,
and the duration of an election. The growth is bounded, and halves every ten seconds without such delays.
"""

from __future__ import annotations

import random

_HALF_LIFE_MS = 10_000
_FACTOR = 2  # a delay as long as the longest one seen must not exhaust the timeout
_MOST = 8  # times the configured timeout


class ElectionPacing:
    """Timeouts of one member. `election_ms` is the timeout without delays."""

    def __init__(self, election_ms: int, rng: random.Random, now_ms: int) -> None:
        self._election_ms = election_ms
        self._rng = rng
        self._delay_ms = 0.0
        self._decayed_ms = now_ms

    def observe(self, delay_ms: int, now_ms: int) -> None:
        """Take a delay into account. 0 only lets time pass."""
        elapsed_ms = max(now_ms - self._decayed_ms, 0)
        self._decayed_ms = now_ms
        self._delay_ms = max(self._delay_ms * 0.5 ** (elapsed_ms / _HALF_LIFE_MS), delay_ms)

    @property
    def window_ms(self) -> int:
        """The silence after which a member counts as lost."""
        return min(self._election_ms + int(_FACTOR * self._delay_ms), _MOST * self._election_ms)

    def election_timeout_ms(self) -> int:
        """Return a random time without a leader after which a member campaigns."""
        return self.window_ms + self._rng.randrange(self.window_ms)

    def campaign_timeout_ms(self) -> int:
        """Return a shorter random time after which a campaign is repeated: no leader exists that it could disturb."""
        base_ms = self.window_ms // 2
        return base_ms + self._rng.randrange(base_ms)
