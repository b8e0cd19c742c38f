"""Replication with the roles that the settings give: `brokerRole` ASYNC_MASTER, SYNC_MASTER or SLAVE."""

from __future__ import annotations

from firearrow.broker.replication import Replicated, Replication
from firearrow.ha.master import HaMaster
from firearrow.ha.slave import HaSlave


def static_replication(broker: Replicated) -> Replication:
    return HaSlave(broker) if broker.parts.settings.is_slave else HaMaster(broker)
