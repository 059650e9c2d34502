"""The store in which Horovod's ranks meet: PUT, GET and DELETE of /scope/key, raw bytes.

A scope is cleared when all its members have said DELETE /scope/<their rank>: the same ranks may
then meet again under the same names. The key of a scope whose size is not known is just deleted.

Horovod's protocol knows no password: it is bound to the node's own address, holds addresses of
ranks and nothing secret, and takes no more than fits.
"""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Set, Tuple

MAX_VALUE_BYTES = 16 << 20
MAX_TOTAL_BYTES = 256 << 20
_MAX_NAME = 1024
_MAX_CONNECTIONS = 512


class KeyValueStore:
    def __init__(self, sizes: Dict[str, int]) -> None:
        """`sizes`: how many members each scope has."""
        self._sizes = sizes
        self._lock = threading.Lock()
        self._values: Dict[str, Dict[str, bytes]] = {}
        self._left: Dict[str, Set[str]] = {}
        self._bytes = 0
        self._listener: Optional[socket.socket] = None
        self._places = threading.BoundedSemaphore(_MAX_CONNECTIONS)

    def serve(self, listener: int) -> None:
        """Answer on this listening socket, in a thread, until `stop`."""
        self._listener = socket.socket(fileno=listener)
        threading.Thread(target=self._accept, name="key-value", daemon=True).start()

    def stop(self) -> None:
        if self._listener is not None:
            try:
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes who waits in accept
            except OSError:
                pass
            self._listener.close()

    def get(self, scope: str, key: str) -> Optional[bytes]:
        with self._lock:
            return self._values.get(scope, {}).get(key)

    def put(self, scope: str, key: str, value: bytes) -> bool:
        """False when it does not fit any more."""
        with self._lock:
            known = self._values.get(scope, {}).get(key, b"")
            if self._bytes + len(value) - len(known) > MAX_TOTAL_BYTES:
                return False
            self._values.setdefault(scope, {})[key] = value
            self._bytes += len(value) - len(known)
            return True

    def delete(self, scope: str, key: str) -> None:
        """A member leaves a scope; of a scope that we do not know, the key goes."""
        with self._lock:
            size = self._sizes.get(scope)
            if size is None:
                self._forget(scope, key)
                return
            # A set: a member whose answer was lost on the way says it again.
            left = self._left.setdefault(scope, set())
            left.add(key)
            if len(left) >= size:
                del self._left[scope]
                for each in list(self._values.get(scope, ())):
                    self._forget(scope, each)

    def _forget(self, scope: str, key: str) -> None:
        values = self._values.get(scope, {})
        self._bytes -= len(values.pop(key, b""))
        if not values:
            self._values.pop(scope, None)

    def _accept(self) -> None:
        assert self._listener is not None
        while True:
            try:
                connection, address = self._listener.accept()
            except OSError:
                return
            self._places.acquire()
            threading.Thread(target=self._answer, args=(connection, address), daemon=True).start()

    def _answer(self, connection: socket.socket, address: Tuple[str, int]) -> None:
        try:
            _Handler(connection, address, self)
        except (OSError, ValueError):
            pass  # who asked went away, or did not speak HTTP
        finally:
            connection.close()
            self._places.release()


class _Handler(BaseHTTPRequestHandler):
    # One request for each connection, as Horovod's own server has it: its client reads to the end.
    protocol_version = "HTTP/1.0"
    timeout = 30

    def __init__(
        self, connection: socket.socket, address: Tuple[str, int], store: KeyValueStore
    ) -> None:
        self._store = store
        super().__init__(connection, address, None)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        place = self._place()
        if place is not None:
            value = self._store.get(*place)
            self._send(404 if value is None else 200, value or b"")

    def do_PUT(self) -> None:
        place = self._place()
        if place is None:
            return
        length = self.headers.get("Content-Length") or ""
        if not (length.isascii() and length.isdigit()):
            self._send(411)
        elif int(length) > MAX_VALUE_BYTES:
            self._send(413)
        else:
            value = self.rfile.read(int(length))
            if len(value) == int(length):
                self._send(200 if self._store.put(*place, value) else 507)

    def do_DELETE(self) -> None:
        place = self._place()
        if place is not None:
            self._store.delete(*place)
            self._send(200)

    def _place(self) -> Optional[Tuple[str, str]]:
        words = self.path.split("/")
        if len(words) != 3 or words[0] or not words[1] or not words[2]:
            self._send(400)
            return None
        if len(self.path) > _MAX_NAME:
            self._send(414)
            return None
        return words[1], words[2]

    def _send(self, status: int, content: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def version_string(self) -> str:
        return "windlass"

    def log_message(self, format: str, *words: Any) -> None:
        pass
