"""Replication progress of a follower."""

from __future__ import annotations

from firearrow.ha.raft.progress import Progress


def test_bytes_between_acked_and_next_are_in_flight() -> None:
    progress = Progress(last_heard_ms=0)
    progress.start_streaming(100, now_ms=10)
    progress.acked = 100
    progress.next = 250
    assert progress.in_flight == 150
    progress.acked = 300
    assert progress.in_flight == 0


def test_probing_voids_earlier_acknowledgements() -> None:
    progress = Progress(last_heard_ms=0, probing=False, next=250, acked=200, match=200)
    progress.start_probing()
    assert (progress.probing, progress.match, progress.acked) == (True, -1, 0)


def test_gap_rewinds_once_per_pause() -> None:
    progress = Progress(last_heard_ms=0, probing=False, next=500)
    progress.rewind(100, now_ms=1000, pause_ms=200)
    assert progress.next == 100
    progress.next = 400
    progress.rewind(100, now_ms=1100, pause_ms=200)
    assert progress.next == 400
    progress.rewind(100, now_ms=1200, pause_ms=200)
    assert progress.next == 100
