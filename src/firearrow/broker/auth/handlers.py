"""Handlers of the requests that manage users and policies (3001 to 3010)."""

from __future__ import annotations

from firearrow.auth.administration import AuthAdministration, AuthRefusal, Operation
from firearrow.broker.context import BrokerContext, Handler
from firearrow.broker.requests.responses import Refused
from firearrow.net.server import Connection
from firearrow.wire.codes import ResponseCode
from firearrow.wire.frame import Command, encode_response


def handlers(broker: BrokerContext) -> dict[int, Handler]:
    return {code: _handler(operation) for code, operation in AuthAdministration(broker.auth).operations().items()}


def _handler(operation: Operation) -> Handler:
    def handle(conn: Connection, request: Command, now_ms: int) -> bytes:
        try:
            answer = operation(request)
        except AuthRefusal as refusal:
            raise Refused(refusal.code, refusal.remark) from None
        return encode_response(request, ResponseCode.SUCCESS, ext=answer.ext, body=answer.body)

    return handle
