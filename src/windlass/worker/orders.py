"""The server's orders: a thread that waits for them, and passes each on once, in order."""

from __future__ import annotations

import threading
import time

from windlass.worker.launch import Launch, Refused
from windlass.worker.server import Fenced, Gone, Server

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List

WAIT_SECONDS = 60


class Orders:
    def __init__(
        self,
        launch: Launch,
        server: Server,
        on_order: Callable[[Dict[str, Any]], None],
        on_fenced: Callable[[str], None],
    ) -> None:
        self._node = launch.node
        self._server = server
        self._on_order = on_order
        self._on_fenced = on_fenced
        self._last = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="orders", daemon=True)
        self._started = False

    def start(self) -> None:
        if not self._started:
            self._started = True
            self._thread.start()

    def take(self, orders: List[Dict[str, Any]]) -> None:
        """Orders from an answer or a beat; each id counts once."""
        for order in orders:
            with self._lock:
                if int(order["id"]) <= self._last:
                    continue
                self._last = int(order["id"])
            self._on_order(order)

    def _run(self) -> None:
        while True:
            path = "/api/v1/worker/orders?node=%s&after=%d&wait=%d" % (
                self._node,
                self._last,
                WAIT_SECONDS,
            )
            asked = time.monotonic()
            try:
                answer = self._server.call("GET", path, timeout=WAIT_SECONDS + 30)
                self.take(answer.get("orders") or [])
            except Fenced as err:
                self._on_fenced(str(err))
                return
            except Gone:
                return
            except Refused:
                # An old server without this call: the beats bring orders too.
                time.sleep(5)
                continue
            if time.monotonic() - asked < 0.05:
                # A server that does not wait must not be asked in a tight loop.
                time.sleep(0.2)
