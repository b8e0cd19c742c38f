"""The broker: requests, messages in and out, deferred delivery, tables, roles.

    server.py       assembly and lifecycle              requests/       dispatch, responses, flow control
    context.py      the parts that handlers use         send/           sends, group commit, acknowledgement
    settings.py     broker.properties                   pull/           pulls and long polling
    registration.py registration at name servers        deferred/       delay levels, retries
    query.py        lookup of messages and offsets      timer/          timer messages
    request_reply.py request/reply messages             transaction/    transactional messages
    message.py      the carrier of a message            dedup/          recognition of repeated sends
    tables/         topics, groups, clients, offsets    sql92/          SQL92 filters
    roles/          master and slave                    admin/          operators' requests
    observability/  statistics, metrics, event log

Allowed imports: wire, store, net, config, clock, procfs.
"""
