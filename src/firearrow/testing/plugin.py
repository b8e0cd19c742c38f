"""The pytest plugin, which costs nothing until a test uses one of its fixtures.

firearrow_broker    a cluster of one broker, new for each test, with a virtual clock
firearrow_cluster   a factory for clusters: `firearrow_cluster(brokers=2, sockets=True)`; they stop at the end of the test
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from firearrow.testing.sync import Cluster


@pytest.fixture
def firearrow_broker() -> Iterator[Cluster]:
    """A broker and its name server in this process, for one test."""
    from firearrow.testing.sync import Cluster

    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def firearrow_cluster() -> Iterator[Callable[..., Cluster]]:
    """A factory for started clusters, with the parameters of `firearrow.testing.Cluster`."""
    from firearrow.testing.sync import Cluster

    with ExitStack() as clusters:

        def make(**options: Any) -> Cluster:
            return clusters.enter_context(Cluster(**options))

        yield make
