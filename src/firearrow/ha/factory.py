"""Choice of the replication: a member of an elected group, or `brokerRole` ASYNC_MASTER, SYNC_MASTER or SLAVE."""

from __future__ import annotations

from firearrow.broker.roles.replication import Replication, ReplicationHost
from firearrow.ha.elected.member import QuorumReplica
from firearrow.ha.static.master import HaMaster
from firearrow.ha.static.slave import HaSlave


def create_replication(broker: ReplicationHost) -> Replication:
    """Create the replication that the settings select."""
    if broker.context.settings.enable_d_leger_commit_log:
        return QuorumReplica(broker)
    return HaSlave(broker) if broker.context.role.is_slave else HaMaster(broker)
