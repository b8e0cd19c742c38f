"""The number of kills per crash test.

Ordinary runs have two rounds; the slow variants have FIREARROW_CRASH_ROUNDS (5; 30 for a full run). FIREARROW_CRASH_SEED
repeats a run as far as the machine allows.
"""

from __future__ import annotations

import os
import random

import pytest

SEED = int(os.environ.get("FIREARROW_CRASH_SEED", str(random.randrange(10**6))))
_MANY = int(os.environ.get("FIREARROW_CRASH_ROUNDS", "5"))
TIMEOUT_S = 120 + 40 * _MANY
ROUNDS = pytest.mark.parametrize("rounds", [2, pytest.param(_MANY, marks=pytest.mark.slow)])
