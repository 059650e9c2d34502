"""A small HTTP/1.1 client: one connection that is kept, JSON in and out.

Why not `http.client`: importing it (email, ssl) costs 40 ms and 7 MB, and the first call stands
between `windlass run` and the user's first line. `ssl` is imported only for an https address.
"""

from __future__ import annotations

import os
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Optional, Tuple

_MAX_HEADER = 65536
_MAX_BODY = 64 * 2**20


class Unreachable(Exception):
    """No answer: the server is away, or what came was not HTTP."""


class NotTaken(Exception):
    """What came could not be put where it should go: `trouble` says why."""

    def __init__(self, trouble: OSError) -> None:
        super().__init__(str(trouble))
        self.trouble = trouble


class Connection:
    """One connection to one address. Not for more than one thread, except `close`."""

    def __init__(self, url: str, token: str) -> None:
        scheme, _, rest = url.partition("://")
        place, _, prefix = rest.partition("/")
        self.url = url
        self._tls = scheme == "https"
        self._prefix = "/" + prefix.strip("/") if prefix.strip("/") else ""
        host, colon, port = place.rpartition(":")
        if not colon or place.endswith("]"):
            host, port = place, "443" if self._tls else "80"
        self._address = (host.strip("[]"), int(port))
        self._head = "Host: %s\r\nAuthorization: Bearer %s\r\n" % (place, token)
        self._socket: Optional[socket.socket] = None
        self._buffer = b""

    def request(
        self,
        method: str,
        path: str,
        body: Optional[bytes] = None,
        timeout: float = 15.0,
        sink: Optional[Callable[[bytes], object]] = None,
        kind: str = "application/json",
    ) -> Tuple[int, bytes]:
        """(status, body); with `sink` a good answer's body goes there. Raises Unreachable, and
        NotTaken when the sink fails.

        A kept connection that the server closed meanwhile is opened again once: every call
        may be repeated by its `seq` or its digest.
        """
        kept = self._socket is not None
        try:
            return self._exchange(method, path, body, timeout, sink, kind)
        except NotTaken:
            self.close()
            raise
        except _Closed as err:
            self.close()
            if not kept:
                raise Unreachable("%s closed the connection" % self.url) from err
        except (OSError, ValueError) as err:
            self.close()
            raise Unreachable("%s: %s" % (self.url, err)) from err
        try:
            return self._exchange(method, path, body, timeout, sink, kind)
        except NotTaken:
            self.close()
            raise
        except (OSError, ValueError, _Closed) as err:
            self.close()
            raise Unreachable("%s: %s" % (self.url, err)) from err

    def close(self) -> None:
        """Safe from another thread: a call under way fails as Unreachable."""
        opened, self._socket = self._socket, None
        self._buffer = b""
        if opened is not None:
            try:
                opened.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            opened.close()

    def _exchange(
        self,
        method: str,
        path: str,
        body: Optional[bytes],
        timeout: float,
        sink: Optional[Callable[[bytes], object]],
        kind: str,
    ) -> Tuple[int, bytes]:
        opened = self._open()
        opened.settimeout(timeout)
        head = "%s %s%s HTTP/1.1\r\n%s" % (method, self._prefix, path, self._head)
        if body is not None:
            head += "Content-Type: %s\r\nContent-Length: %d\r\n" % (kind, len(body))
        try:
            opened.sendall(head.encode("ascii") + b"\r\n" + (body or b""))
        except (BrokenPipeError, ConnectionResetError) as err:
            raise _Closed() from err
        status, headers = self._read_head()
        good = 200 <= status < 300
        answer = self._read_body(headers, sink if good else None)
        if headers.get("connection", "").lower() == "close":
            self.close()
        return status, answer

    def _open(self) -> socket.socket:
        if self._socket is None:
            opened = socket.create_connection(self._address, timeout=5)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls:
                import ssl

                context = ssl.create_default_context(cafile=os.environ.get("SSL_CERT_FILE"))
                opened = context.wrap_socket(opened, server_hostname=self._address[0])
            self._socket = opened
        return self._socket

    def _read_head(self) -> Tuple[int, Dict[str, str]]:
        while b"\r\n\r\n" not in self._buffer:
            if len(self._buffer) > _MAX_HEADER:
                raise ValueError("the answer's header is too long")
            first = not self._buffer
            try:
                found = self._receive()
            except ConnectionResetError as err:
                raise _Closed() from err
            if not found:
                if first:
                    raise _Closed()
                raise ValueError("the answer broke off")
            self._buffer += found
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ", 2)
        if not words[0].startswith("HTTP/1.") or len(words) < 2:
            raise ValueError("not an HTTP answer: %r" % lines[0][:80])
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        return int(words[1]), headers

    def _read_body(
        self, headers: Dict[str, str], sink: Optional[Callable[[bytes], object]]
    ) -> bytes:
        kept = bytearray()

        def take(piece: bytes) -> None:
            if sink is not None:
                try:
                    sink(piece)
                except OSError as err:
                    raise NotTaken(err) from err
                return
            if len(kept) + len(piece) > _MAX_BODY:
                raise ValueError("the answer is too long")
            kept.extend(piece)

        if headers.get("transfer-encoding", "").lower() == "chunked":
            while True:
                size = int(self._line().split(b";", 1)[0], 16)
                self._take(size, take)
                self._line()
                if size == 0:
                    break
        else:
            self._take(int(headers.get("content-length", "0")), take)
        return bytes(kept)

    def _line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            found = self._receive()
            if not found or len(self._buffer) > _MAX_HEADER:
                raise ValueError("the answer broke off")
            self._buffer += found
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    def _take(self, size: int, take: Callable[[bytes], None]) -> None:
        while size > 0:
            piece = self._buffer[:size] or self._receive()
            if not piece:
                raise ValueError("the answer broke off")
            if self._buffer:
                self._buffer = self._buffer[len(piece) :]
            elif len(piece) > size:
                piece, self._buffer = piece[:size], piece[size:]
            size -= len(piece)
            take(piece)

    def _receive(self) -> bytes:
        opened = self._socket
        if opened is None:
            raise OSError("the connection was closed")
        return opened.recv(65536)


class _Closed(Exception):
    """The server closed a kept connection before it answered anything."""
