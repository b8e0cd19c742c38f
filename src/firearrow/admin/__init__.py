"""Administration of clusters, as functions.

Every function takes the client instance first (`client.connection.instance.acquire`), sends requests to name servers and
brokers, and returns plain values. Names of topics and groups are those on the brokers: with a namespace, `namespace%name`. All
requests are Apache RocketMQ's own, so that the functions work with Apache's servers too.

`firearrow.admin.aio.Admin` has them as coroutine methods, `firearrow.admin.sync.Admin` as blocking methods.

May import wire, net, client and config.
"""
