"""The pytest plugin; it comes with the package and costs nothing until a test asks for one of its fixtures.

firearrow_broker    a cluster of one broker, new for each test, with a clock that the test moves
firearrow_cluster   makes clusters to order: `firearrow_cluster(brokers=2, sockets=True)`; they end with the test
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
    """A broker (and its name server) in this process, for this test alone."""
    from firearrow.testing.sync import Cluster

    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def firearrow_cluster() -> Iterator[Callable[..., Cluster]]:
    """Makes clusters, started; takes what `firearrow.testing.Cluster` takes."""
    from firearrow.testing.sync import Cluster

    with ExitStack() as clusters:

        def make(**options: Any) -> Cluster:
            return clusters.enter_context(Cluster(**options))

        yield make
