"""The server's address inside a job without a network: the worker passes its calls on.

The job's own loopback is all it has. There the worker listens where the server would be, and
copies each connection to the real one, which it looks up each time: it may have moved.
"""

from __future__ import annotations

import json
import select
import socket
import threading

from windlass.worker.launch import Launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Optional, Tuple

MAX_CONNECTIONS = 64
_PIECE = 1 << 16
_LOOPBACK = ("127.0.0.1", "localhost", "0.0.0.0", "::1", "::")


class Relay:
    """Listens from the first moment; ends with the process."""

    def __init__(
        self,
        launch: Launch,
        sockets: Callable[[Callable[[], List[socket.socket]]], List[socket.socket]],
    ) -> None:
        """`sockets` makes sockets in the job's network. Raises OSError."""
        self._launch = launch
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._places = _places(launch)
        wanted = self._places[0][1] if self._places else 0
        (self._listener,) = sockets(lambda: [_listen(wanted)])
        self.port: int = self._listener.getsockname()[1]

    def start(self) -> None:
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    def url_inside(self, url: str) -> str:
        """What this address of the server is called inside."""
        place = _place(url)
        if place is not None and place[0] in _LOOPBACK and place[1] == self.port:
            return url
        return "http://127.0.0.1:%d" % self.port

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            if not self._slots.acquire(blocking=False):
                caller.close()
                continue
            threading.Thread(target=self._pass_on, args=(caller,), daemon=True).start()

    def _pass_on(self, caller: socket.socket) -> None:
        try:
            server = self._connect()
            if server is not None:
                with server:
                    _copy_both_ways(caller, server)
        except OSError:
            pass
        finally:
            caller.close()
            self._slots.release()

    def _connect(self) -> Optional[socket.socket]:
        places = list(self._places)
        moved = _moved(self._launch.server_file)
        if moved is not None and moved not in places:
            places.insert(0, moved)
        for place in places:
            try:
                opened = socket.create_connection(place, 10.0)
            except OSError:
                continue
            opened.settimeout(None)
            return opened
        return None


def _copy_both_ways(one: socket.socket, other: socket.socket) -> None:
    """Until both have ended; the end of one side is passed on, so that the other hears it."""
    across = {one: other, other: one}
    while across:
        ready, _, _ = select.select(list(across), [], [], 600.0)
        if not ready:
            return
        for each in ready:
            piece = each.recv(_PIECE)
            if piece:
                across[each].sendall(piece)
            else:
                across.pop(each).shutdown(socket.SHUT_WR)


def _listen(port: int) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(("127.0.0.1", port))
        opened.listen(MAX_CONNECTIONS)
    except OSError:
        opened.close()
        raise
    return opened


def _places(launch: Launch) -> List[Tuple[str, int]]:
    found = (_place(url) for url in launch.urls)
    return [place for place in found if place is not None]


def _place(url: str) -> Optional[Tuple[str, int]]:
    scheme, _, rest = url.partition("://")
    host, _, port = rest.partition("/")[0].rpartition(":")
    if not host:
        host, port = rest.partition("/")[0], "443" if scheme == "https" else "80"
    return (host.strip("[]"), int(port)) if port.isdigit() else None


def _moved(path: Optional[str]) -> Optional[Tuple[str, int]]:
    """Where the server's own file says that it is."""
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            url = json.loads(file.read()).get("url")
    except (OSError, ValueError, AttributeError):
        return None
    return _place(url) if isinstance(url, str) else None
