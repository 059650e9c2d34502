"""The services of one attempt on one node: started before its ranks, ended after them."""

from __future__ import annotations

import os
import sys

from windlass.worker.launch import Launch, Member, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    from windlass.worker.services.key_value import KeyValueStore
    from windlass.worker.services.meeting_place import MeetingPlace
    from windlass.worker.services.port import ServicePort

KEY_VALUE_STORE = "horovod-kv"
AGENT = "mpi-agent"
GATHERING = "gathering"
_KNOWN = (KEY_VALUE_STORE, AGENT, GATHERING)
_SCOPES_FILE = "horovod-scopes.json"


class Services:
    def __init__(self, launch: Launch, ports: Dict[str, ServicePort]) -> None:
        """`ports` by the member's name."""
        self._launch = launch
        self._ports = ports
        self._names: List[str] = []
        self._store: Optional[KeyValueStore] = None
        self._meeting_place: Optional[MeetingPlace] = None

    def start(self, rendezvous: Dict[str, Any]) -> None:
        """All that `services` names and this node has a part in. Raises Refused."""
        self._names = list(rendezvous.get("services") or ())
        unknown = [name for name in self._names if name not in _KNOWN]
        if unknown:
            raise Refused(
                "this worker has no service %s; known: %s"
                % (", ".join(unknown), ", ".join(_KNOWN))
            )
        first = _first(rendezvous)
        if first is not None:
            self._start_beside_rank_0(*first, rendezvous.get("tracking_token") or "")
        if AGENT not in self._names:
            for port in self._ports.values():
                port.turn_away()

    def lay(self, folder: str) -> None:
        """Put what the services give to a rank among that rank's files."""
        if AGENT in self._names:
            _lay_agent(folder, _key(self._launch))

    def stand_in(self, name: str, member: Member, folder: str) -> Tuple[List[str], int]:
        """The command of a process that is itself a service, and the socket that it inherits."""
        if name != AGENT:
            raise Refused("this worker has no program %r to run in %s" % (name, member.name))
        listener = self._ports[member.name].take()
        command = [sys.executable, "-I", "-S", os.path.join(folder, "agent.py"), "serve"]
        command += [
            str(listener),
            member.name,
            folder,
            self._launch.path("debug", "ranks", "agent.log"),
        ]
        return command, listener

    def stop(self) -> None:
        if self._store is not None:
            self._store.stop()
        if self._meeting_place is not None:
            self._meeting_place.stop()
        for port in self._ports.values():
            port.close()

    def _start_beside_rank_0(self, name: str, files: Dict[str, str], token: str) -> None:
        if KEY_VALUE_STORE in self._names:
            import json

            from windlass.worker.services.key_value import KeyValueStore

            self._store = KeyValueStore(json.loads(files.get(_SCOPES_FILE) or "{}"))
            self._store.serve(self._ports[name].take())
        if GATHERING in self._names:
            from windlass.worker.services.meeting_place import MeetingPlace

            self._meeting_place = MeetingPlace(self._ports[name].take(), token)


def _first(rendezvous: Dict[str, Any]) -> Optional[Tuple[str, Dict[str, str]]]:
    """The member of rank 0 and that rank's files, when it is on this node."""
    for told in rendezvous["members"]:
        for rank in told["ranks"]:
            if rank["rank"] == 0:
                return "%s-%d" % (told["role"], told["index"]), rank.get("files") or {}
    return None


def _key(launch: Launch) -> bytes:
    """The secret between the launcher's remote shell and the agents of this attempt. All its
    workers hold the same token, so each finds the key by itself; from the key, which user code of
    this job can read, there is no way back to the token."""
    import hashlib
    import hmac

    words = "mpi-agent:%s:%d" % (launch.attempt_id, launch.attempt)
    return hmac.new(launch.token.encode(), words.encode(), hashlib.sha256).hexdigest().encode()


def _lay_agent(folder: str, key: bytes) -> None:
    program = os.path.join(folder, "agent.py")
    # Through the loader, since our own source may lie inside a zipapp.
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "agent.py")
    loader: Any = __spec__.loader
    shell = '#!/bin/sh\nexec %s -I -S %s call %s "$@"\n' % tuple(
        "'%s'" % each.replace("'", "'\\''") for each in (sys.executable, program, folder)
    )
    for path, content, mode in (
        (program, loader.get_data(source), 0o600),
        (os.path.join(folder, "agent.key"), key, 0o600),
        (os.path.join(folder, "rsh"), shell.encode(), 0o700),
    ):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(opened, "wb") as file:
            file.write(content)
