"""Ports of benchmark processes."""

from __future__ import annotations

from bench.process import free_base_port


def test_base_port_leaves_room_for_adjacent_ports() -> None:
    assert free_base_port() % 10 == 0
