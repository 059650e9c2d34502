"""Work that touches what user code has written, done as the job itself would: in its room, as its
user. So a link, a name or a device planted there opens nothing that the job could not open.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time

from windlass.worker.confinement import Confinement

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List

_PIECE = 1 << 16


def call(confinement: Confinement, work: Callable[[], Any], seconds: float) -> Any:
    """What `work` returns, through JSON. Where nothing is confined it is simply called. Raises
    OSError when it fails inside or takes longer."""
    if confinement.uid is None:
        return work()
    read, write = os.pipe()
    parent = os.getpid()
    pid = confinement.fork()
    if pid == 0:
        status = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)
            confinement.confine(parent)
            text = json.dumps(work()).encode()
            while text:
                text = text[os.write(write, text) :]
            status = 0
        except BaseException as err:
            os.write(2, ("inside the room: %r\n" % err).encode("utf-8", "replace"))
        finally:
            os._exit(status)
    os.close(write)
    try:
        text = _read(read, time.monotonic() + seconds)
    finally:
        os.close(read)
        _end(pid)
    try:
        return json.loads(text)
    except ValueError as err:
        raise OSError("what the job left cannot be read as its user") from err


def sockets(
    confinement: Confinement, make: Callable[[], List[socket.socket]]
) -> List[socket.socket]:
    """Sockets made by `make` in the room's network, for use out here. Raises OSError."""
    room = confinement.room
    if room is None:
        return make()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    pid = os.fork()
    if pid == 0:
        try:
            room.enter_network()
            made = make()
            for each in made:
                fds = each.fileno().to_bytes(4, "little", signed=True)
                theirs.sendmsg([b"!"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        except BaseException as err:
            os.write(2, ("inside the room: %r\n" % err).encode("utf-8", "replace"))
        finally:
            os._exit(0)
    theirs.close()
    found: List[socket.socket] = []
    try:
        while True:
            text, attached, _, _ = ours.recvmsg(4, socket.CMSG_SPACE(4))
            if not text:
                break
            for level, kind, content in attached:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    number = int.from_bytes(content[:4], "little", signed=True)
                    os.set_inheritable(number, False)
                    found.append(socket.socket(fileno=number))
    finally:
        ours.close()
        _end(pid)
    return found


def _read(opened: int, deadline: float) -> bytes:
    text = b""
    while True:
        ready, _, _ = select.select([opened], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return b""
        piece = os.read(opened, _PIECE)
        if not piece:
            return text
        text += piece


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
    try:
        os.waitpid(pid, 0)
    except OSError:
        pass
