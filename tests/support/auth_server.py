"""Servers that manage users and access control lists as Apache's brokers do, for tests of the tools. They check no signature."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Any

from firearrow.net.server import Connection, Listener, serve
from firearrow.wire import fastjson
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command, encode_response


class AuthServer:
    """A broker with users and access control lists. The first one is also the name server."""

    def __init__(self) -> None:
        self.users: dict[str, dict[str, Any]] = {}
        self.acls: dict[str, list[dict[str, Any]]] = {}
        self.seen: list[Command] = []
        self.brokers: dict[str, dict[str, str]] = {}
        self.listener: Listener | None = None

    @property
    def address(self) -> str:
        assert self.listener is not None
        return f"127.0.0.1:{self.listener.port}"

    def connected(self, conn: Connection) -> None: ...

    def disconnected(self, conn: Connection) -> None: ...

    def received(self, conn: Connection, commands: list[Command]) -> None:
        for command in commands:
            self.seen.append(command)
            code, remark, value = self.answer(command)
            body = b"" if value is None else fastjson.dumps(value)
            conn.write(encode_response(command, code, remark, {}, body))

    def answer(self, command: Command) -> tuple[int, str | None, Any]:
        name, given = command.ext.get("username", ""), fastjson.loads(command.body) if command.body else {}
        if command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            tables = {
                name: {"brokerAddrs": addresses, "brokerName": name, "cluster": "C"} for name, addresses in self.brokers.items()
            }
            return 0, None, {"brokerAddrTable": tables, "clusterAddrTable": {"C": list(self.brokers)}}
        if command.code == RequestCode.AUTH_CREATE_USER:
            if name in self.users:
                return ResponseCode.NO_PERMISSION, "The user is existed", None
            self.users[name] = {"username": name, "userStatus": "enable", "userType": "Normal"} | given
        elif command.code == RequestCode.AUTH_UPDATE_USER:
            if name not in self.users:
                return ResponseCode.NO_PERMISSION, "The user is not exist", None
            self.users[name] |= given
        elif command.code == RequestCode.AUTH_DELETE_USER:
            self.users.pop(name, None)
        elif command.code == RequestCode.AUTH_GET_USER:
            return 0, None, self.users.get(name)
        elif command.code == RequestCode.AUTH_LIST_USER:
            return 0, None, [user for user in self.users.values() if command.ext.get("filter", "") in user["username"]] or None
        else:
            return self._answer_acl(command, given)
        return 0, None, None

    def _answer_acl(self, command: Command, given: Any) -> tuple[int, str | None, Any]:
        subject = command.ext.get("subject", "")
        if command.code in (RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_UPDATE_ACL):
            entries = [entry for policy in given["policies"] for entry in policy["entries"]]
            resources = {entry["resource"] for entry in entries}
            kept = [entry for entry in self.acls.get(subject, []) if entry["resource"] not in resources]
            self.acls[subject] = kept + entries
        elif command.code == RequestCode.AUTH_DELETE_ACL:
            resource = command.ext.get("resource")
            self.acls[subject] = [one for one in self.acls.get(subject, []) if resource and one["resource"] != resource]
        elif command.code == RequestCode.AUTH_GET_ACL:
            return 0, None, self._acl(subject) if self.acls.get(subject) else None
        elif command.code == RequestCode.AUTH_LIST_ACL:
            wanted = command.ext.get("subjectFilter", "")
            return 0, None, [self._acl(one) for one in self.acls if wanted in one and self.acls[one]] or None
        return 0, None, None

    def _acl(self, subject: str) -> dict[str, Any]:
        return {"subject": subject, "policies": [{"policyType": "Custom", "entries": self.acls[subject]}]}


class AuthCluster:
    """A master and its slave in a thread of their own."""

    def __init__(self) -> None:
        self.master, self.slave = AuthServer(), AuthServer()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def name_server(self) -> str:
        return self.master.address

    def __enter__(self) -> AuthCluster:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(60)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    async def _start(self) -> None:
        for server in (self.master, self.slave):
            server.listener = await serve(server)
        self.master.brokers = {"broker-a": {"0": self.master.address, "1": self.slave.address}}

    async def _stop(self) -> None:
        for server in (self.master, self.slave):
            if server.listener is not None:
                await server.listener.close()
