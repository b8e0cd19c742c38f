"""What an operator can do, as functions.

Every function takes the client instance first (`client.instance.acquire`), asks name servers and brokers, and returns plain
values. Names of topics and groups are those on the brokers: with a namespace, `namespace%name`. All of it is Apache RocketMQ's
own protocol, so that it works on Apache's servers as well.

`firearrow.admin.aio.Admin` has all of them as coroutines of one object, `firearrow.admin.sync.Admin` as methods that wait.
"""
