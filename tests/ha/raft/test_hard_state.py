"""The hard state file."""

from __future__ import annotations

import random

import pytest

from firearrow.ha.raft.hard_state import HardState, load_hard_state, save_hard_state
from tests.store.simdisk import SimulatedDisk


def test_encoding_is_exact() -> None:
    assert HardState(7, "n0", True).encode() == b"currTerm=7\nvoteLeader=n0\ndoubtful=true\ncrc=2059424857\n"


@pytest.mark.parametrize("state", [HardState(), HardState(3), HardState(2**31 - 1, "n12"), HardState(4, None, True)])
def test_round_trip(state: HardState) -> None:
    assert HardState.decode(state.encode()) == state


def test_every_flipped_bit_is_detected() -> None:
    text = HardState(7, "n0").encode()
    for at in range(len(text) - 1):  # the last newline says nothing
        for bit in range(8):
            with pytest.raises(ValueError, match="vote file"):
                HardState.decode(text[:at] + bytes([text[at] ^ 1 << bit]) + text[at + 1 :])


@pytest.mark.parametrize("text", [b"", b"currTerm=1\n", HardState(3).encode()[:-4], b"crc=0\n"])
def test_truncated_file_is_detected(text: bytes) -> None:
    with pytest.raises(ValueError, match="vote file"):
        HardState.decode(text)


@pytest.mark.parametrize("seed", range(40))
def test_power_cut_during_save_leaves_the_old_or_the_new_state(seed: int) -> None:
    class Dark(BaseException):
        pass

    rng = random.Random(seed)
    disk = SimulatedDisk()
    disk.mkdirs("/store")
    save_hard_state(disk, "/store/currterm", HardState(1, "n1"))
    left = rng.randint(0, 8)
    check = disk.check

    def counted(operation: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Dark
        check(operation, path)

    disk.check = counted  # type: ignore[method-assign]
    saved = True
    try:
        save_hard_state(disk, "/store/currterm", HardState(2, "n2"))
    except Dark:
        saved = False
    found = load_hard_state(disk.power_cut(rng), "/store/currterm")
    assert found in ((HardState(2, "n2"),) if saved else (HardState(1, "n1"), HardState(2, "n2")))
