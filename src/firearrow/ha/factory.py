"""Choice of the replication: a member of an elected group, or `brokerRole` ASYNC_MASTER, SYNC_MASTER or SLAVE."""

from __future__ import annotations

from firearrow.broker.roles.replication import Replication, ReplicationHost


def create_replication(broker: ReplicationHost) -> Replication:
    """Create the replication that the settings select. Only its modules are imported: the others take 10 ms of a start."""
    if broker.context.settings.enable_d_leger_commit_log:
        from firearrow.ha.elected.member import QuorumReplica

        return QuorumReplica(broker)
    if broker.context.role.is_slave:
        from firearrow.ha.static.slave import HaSlave

        return HaSlave(broker)
    from firearrow.ha.static.master import HaMaster

    return HaMaster(broker)
