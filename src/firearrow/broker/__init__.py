"""The message broker.

    server.py, context.py    lifecycle; the objects shared by the request handlers
    registration.py          registration with the name servers
    message.py               carrier of a message between handler and commit log
    requests/                request dispatch, responses, flow control, calls to clients
    send/                    sends: validation, append, group commit, internal messages
    dedup/                   recognition of repeated sends
    pull/                    pulls, long polling, subscriptions
    sql92/                   SQL92 filter expressions
    deferred/                delay levels, retries and dead letters; routing of deferred messages
    timer/                   timer messages: delivery at an arbitrary time, recall
    transaction/             transactional messages
    tables/                  topics, groups, consumer offsets, clients, queue locks and their persistence
    admin/                   administrative requests
    observability/           statistics, Prometheus metrics, event log
    roles/                   master and slave roles, services of the master
    query.py                 queries by key, id and time
    request_reply.py         replies of request-reply messaging

tests/test_layers.py lists which of these packages may import which others. Replication (`ha`) is handed in through
roles/replication.py.
"""
