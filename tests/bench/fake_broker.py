"""A minimal broker that keeps only queue lengths, for tests of the load program; it can be made to misbehave."""

from __future__ import annotations

import json
import socketserver
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from types import TracebackType
from typing import Any

RECORD_HEAD = struct.Struct(">iiiiiqqiq8sq8siqi")
HALF_STEP = 1_000  # bytes of log from one half message to the next
Header = dict[str, Any]
Queue = tuple[str, int]
Misbehave = Callable[[Header, bytes, list[bytes]], list[bytes]]


class FakeBroker:
    """Answers 310, 320, 11, 30 and 37. `misbehave(header, body, answers)` returns what is sent in place of the right answers.

    A message with a delay is in its queue `delay_s` after it came, half a transaction when it is committed.
    """

    def __init__(self, misbehave: Misbehave | None = None, delay_s: float = 1.0) -> None:
        self.requests: list[tuple[Header, bytes]] = []
        self.queue_lengths: dict[Queue, int] = defaultdict(int)
        self.halves: list[Queue | None] = []  # by half offset: where it will go, None when it was committed
        self._delayed: list[tuple[float, Queue]] = []
        self._delay_s = delay_s
        self._misbehave = misbehave
        self._lock = threading.Lock()
        broker = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while prefix := self.rfile.read(8):
                    length, header_length = struct.unpack(">ii", prefix)
                    header = json.loads(self.rfile.read(header_length))
                    body = self.rfile.read(length - 4 - header_length)
                    for answer in broker._answers(header, body):
                        self.wfile.write(answer)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            request_queue_size = 128

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> FakeBroker:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answers(self, header: Header, body: bytes) -> list[bytes]:
        with self._lock:
            self.requests.append((header, body))
            answers = [self._answer(header, body)]
        return self._misbehave(header, body, answers) if self._misbehave else answers

    def _answer(self, header: Header, body: bytes) -> bytes:
        match header["code"]:
            case 11:
                return self._pull(header)
            case 30:
                return self._max_offset(header)
            case 37:
                return self._commit(header)
        return self._send(header, body)

    def _send(self, header: Header, body: bytes) -> bytes:
        fields = header["extFields"]
        queue = (fields["b"], int(fields["e"]))
        if "DELAY\x011\x02" in fields["i"]:
            self._delayed.append((time.monotonic() + self._delay_s, queue))
            return encode(header, 0, {"queueId": fields["e"], "queueOffset": str(len(self._delayed) - 1), "msgId": "0"})
        if "TRAN_MSG\x01true\x02" in fields["i"]:
            self.halves.append(queue)
            half = len(self.halves) - 1
            msg_id = f"7F00000100002A9F{half * HALF_STEP:016X}"
            return encode(header, 0, {"queueId": fields["e"], "queueOffset": str(half), "msgId": msg_id})
        offset = self.queue_lengths[queue]
        self.queue_lengths[queue] += len(sub_messages(body)) if header["code"] == 320 else 1
        return encode(header, 0, {"queueId": fields["e"], "queueOffset": str(offset), "msgId": "0"})

    def _commit(self, header: Header) -> bytes:
        fields = header["extFields"]
        half = int(fields["tranStateTableOffset"])
        queue = self.halves[half]
        told = (fields["commitOrRollback"], fields["commitLogOffset"], fields["producerGroup"])
        if queue is None or told != ("8", str(half * HALF_STEP), "bench-producer") or fields["topic"] != queue[0]:
            return encode(header, 1, {})
        self.halves[half] = None
        self.queue_lengths[queue] += 1
        return encode(header, 0, {})

    def _max_offset(self, header: Header) -> bytes:
        queue = (header["extFields"]["topic"], int(header["extFields"]["queueId"]))
        come = sum(1 for due, other in self._delayed if other == queue and due <= time.monotonic())
        return encode(header, 0, {"offset": str(self.queue_lengths[queue] + come)})

    def _pull(self, header: Header) -> bytes:
        fields = header["extFields"]
        length = self.queue_lengths[(fields["topic"], int(fields["queueId"]))]
        begin = int(fields["queueOffset"])
        end = min(length, begin + int(fields["maxMsgNums"]))
        body = b"".join(record(offset) for offset in range(begin, end))
        ext = {"nextBeginOffset": str(end), "minOffset": "0", "maxOffset": str(length), "suggestWhichBrokerId": "0"}
        return encode(header, 0 if body else 19, ext, body)


def encode(request: Header, code: int, ext: dict[str, str], body: bytes = b"") -> bytes:
    header = {"code": code, "extFields": ext, "flag": 1, "language": "JAVA", "opaque": request["opaque"], "version": 513}
    text = json.dumps(header).encode()
    return struct.pack(">ii", 4 + len(text) + len(body), len(text)) + text + body


def record(queue_offset: int, body: bytes = b"x" * 10) -> bytes:
    size = 88 + len(body) + 3
    head = RECORD_HEAD.pack(size, -626843481, 0, 0, 0, queue_offset, 0, 0, 0, bytes(8), 0, bytes(8), 0, 0, len(body))
    return head + body + b"\0" + struct.pack(">h", 0)


def sub_messages(body: bytes) -> list[bytes]:
    """Split a batch body into its messages, each with its length field."""
    messages = []
    while body:
        size = struct.unpack_from(">i", body)[0]
        messages.append(body[:size])
        body = body[size:]
    return messages
