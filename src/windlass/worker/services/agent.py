"""Our remote shell, both ends of it. Laid beside a rank's files and run alone: it imports nothing
of ours.

    agent.py serve SOCKET NAME FILES LOG    what a member holds: runs the commands of its callers
    agent.py call FILES [OPTION…] HOST COMMAND…    what MPI's launcher takes for its `rsh`

The command runs in a shell, as below a real rsh, in the environment and cgroup of the member that
serves. Its output goes back as it comes, then its status. A call that breaks kills its command.

    serve → call   N  a number used once
    call → serve   R  {"command": …, "proof": HMAC-SHA256(key, number, NAME, command)}
    serve → call   O, E  output;  X  exit status;  D  denied

A frame is its kind (1 byte), its length (4 bytes, the high one first) and its content. The key
itself never travels, and a proof is good for one command, once.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Set, Tuple

_MAX_REQUEST = 1 << 20
_FILES = "@files@"
_READ = 1 << 16
_HANDSHAKE_SECONDS = 20.0
_CONNECT_SECONDS = 60.0
_KILL_SECONDS = 3.0
_DRAIN_SECONDS = 1.0
_MAX_CONNECTIONS = 256
_OPTIONS_WITH_VALUE = "bcDEeFIiJLlmOopQRSWw"
DENIED = 255


class Broken(Exception):
    """The other end went away or does not speak as it should."""


def proof(key: bytes, number: bytes, name: str, command: str) -> str:
    words = b"\0".join((number, name.encode(), command.encode("utf-8", "surrogateescape")))
    return hmac.new(key, words, hashlib.sha256).hexdigest()


def send(connection: socket.socket, kind: bytes, content: bytes = b"") -> None:
    connection.sendall(kind + len(content).to_bytes(4, "big") + content)


def receive(connection: socket.socket, most: int) -> Tuple[bytes, bytes]:
    head = _exactly(connection, 5)
    length = int.from_bytes(head[1:], "big")
    if length > most:
        raise Broken("a frame of %d bytes" % length)
    return head[:1], _exactly(connection, length)


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        piece = connection.recv(min(_READ, count - len(found)))
        if not piece:
            raise Broken("the connection was closed")
        found += piece
    return found


# -- the member that serves


class Agent:
    def __init__(
        self, listener: socket.socket, name: str, key: bytes, log: str, files: str
    ) -> None:
        self._listener = listener
        self._name = name
        self._key = key
        self._files = files
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        self._calls = 0
        self._running: Set[int] = set()
        self._ending = False

    def run(self) -> None:
        """Until SIGTERM; then every command is told to stop and waited for."""
        # A signal that comes just before a wait, or to another thread, ends no call of the system:
        # it writes here, and the wait is for that too.
        heard, told = os.pipe()
        for each in (heard, told):
            os.set_blocking(each, False)
        signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._terminated)
        self._listener.setblocking(False)
        selector = selectors.DefaultSelector()
        selector.register(heard, selectors.EVENT_READ)
        selector.register(self._listener, selectors.EVENT_READ)
        threads: List[threading.Thread] = []
        while not self._ending:
            selector.select()
            try:
                connection, address = self._listener.accept()
            except BlockingIOError:
                continue
            except OSError:
                break
            if not self._places.acquire(blocking=False):
                connection.close()
                continue
            thread = threading.Thread(target=self._serve, args=(connection, address[0]))
            thread.start()
            threads = [each for each in threads if each.is_alive()] + [thread]
        self._listener.close()
        for thread in threads:
            thread.join()

    def _terminated(self, number: int, frame: object) -> None:
        self._ending = True
        for group in list(self._running):
            _signal_group(group, signal.SIGTERM)

    def _serve(self, connection: socket.socket, caller: str) -> None:
        try:
            connection.settimeout(_HANDSHAKE_SECONDS)
            command = self._admit(connection, caller)
            if command is not None:
                connection.settimeout(None)
                self._execute(connection, caller, command)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, Broken) as err:
            self._write("broken call of %s: %s" % (caller, err))
        finally:
            connection.close()
            self._places.release()

    def _admit(self, connection: socket.socket, caller: str) -> Any:
        """The command, when whoever calls has the key; else None."""
        number = os.urandom(32)
        send(connection, b"N", number)
        kind, content = receive(connection, _MAX_REQUEST)
        if kind != b"R":
            raise Broken("a frame %r" % kind)
        asked = json.loads(content.decode())
        command: str = asked["command"]
        expected = proof(self._key, number, self._name, command)
        if not hmac.compare_digest(expected.encode(), str(asked["proof"]).encode()):
            self._write("refused a call of %s: wrong key" % caller)
            send(connection, b"D", b"the key is not that of this attempt")
            return None
        return command

    def _execute(self, connection: socket.socket, caller: str, command: str) -> None:
        with self._lock:
            self._calls += 1
            call = self._calls
        self._write("call %d of %s: %s" % (call, caller, command.strip()[:60]))
        process = subprocess.Popen(
            ["/bin/sh", "-c", command.replace(_FILES, self._files)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._running.add(process.pid)
        try:
            if self._ending:
                _signal_group(process.pid, signal.SIGTERM)
            whole = _carry(connection, process)
            if not whole:
                self._write("call %d was cut: its command is killed" % call)
                _kill(process)
        finally:
            self._running.discard(process.pid)
            for pipe in (process.stdout, process.stderr):
                assert pipe is not None
                pipe.close()
        status = process.wait()
        status = status if status >= 0 else 128 - status
        self._write("call %d ended with %d" % (call, status))
        if whole:
            send(connection, b"X", str(status).encode())

    def _write(self, words: str) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = "%s %s %s\n" % (at, self._name, " ".join(words.split()))
        os.write(self._log, line.encode("utf-8", "replace"))


def _carry(connection: socket.socket, process: subprocess.Popen[bytes]) -> bool:
    """Send the output of a command as it comes, until it has ended; False: the caller has gone."""
    selector = selectors.DefaultSelector()
    selector.register(connection, selectors.EVENT_READ, b"")
    for pipe, kind in ((process.stdout, b"O"), (process.stderr, b"E")):
        assert pipe is not None
        selector.register(pipe, selectors.EVENT_READ, kind)
    ended = 0.0
    # One entry is the connection itself. What a command leaves running may keep its pipes open.
    while len(selector.get_map()) > 1:
        ready = selector.select(0.1)
        for key, _ in ready:
            try:
                piece = os.read(key.fd, _READ)
                if key.data and piece:
                    send(connection, key.data, piece)
            except OSError:
                piece = b""
                if key.data:
                    return False
            if not piece:
                if not key.data:
                    return False
                selector.unregister(key.fileobj)
        if process.poll() is not None:
            ended = ended or time.monotonic()
            if not ready or time.monotonic() - ended > _DRAIN_SECONDS:
                return True
    process.wait()
    return True


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The command with all that it started, also what left its session. A warning first: MPI's
    daemons end their own ranks."""
    below = _descendants(process.pid)
    _signal_group(process.pid, signal.SIGTERM)
    try:
        process.wait(_KILL_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    below |= _descendants(process.pid)
    _signal_group(process.pid, signal.SIGKILL)
    for pid, start in below:
        if _stat(pid)[1] == start:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
    process.wait()


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except OSError:
        pass


def _descendants(root: int) -> Set[Tuple[int, str]]:
    """(pid, start time) of all below a process, where /proc tells."""
    children: Dict[int, List[Tuple[int, str]]] = {}
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return set()
    for name in names:
        parent, start = _stat(int(name))
        children.setdefault(parent, []).append((int(name), start))
    found: Set[Tuple[int, str]] = set()
    waiting = [root]
    while waiting:
        for each in children.get(waiting.pop(), ()):
            found.add(each)
            waiting.append(each[0])
    return found


def _stat(pid: int) -> Tuple[int, str]:
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            words = file.read().rpartition(b")")[2].split()
        return int(words[1]), words[19].decode()
    except (OSError, IndexError):
        return -1, ""


# -- the launcher that calls


def call(files: str, words: List[str]) -> int:
    """Run a command on a member; its exit status. 255, as ssh has it, when there was no way."""
    host, command = target(words)
    # What lies among our files lies among those of each member, but there at another path.
    command = command.replace(files, _FILES)
    with open(os.path.join(files, "agent-hosts.json")) as file:
        hosts = json.load(file)
    with open(os.path.join(files, "agent.key"), "rb") as key_file:
        key = key_file.read()
    if host not in hosts:
        known = ", ".join(sorted(hosts)) or "none"
        print(
            "windlass rsh: no member %r in this gang; known: %s" % (host, known), file=sys.stderr
        )
        return DENIED
    try:
        connection = _connect(hosts[host][0], hosts[host][1])
        with connection:
            connection.settimeout(_HANDSHAKE_SECONDS)
            _, number = receive(connection, 64)
            asked = {"command": command, "proof": proof(key, number, host, command)}
            send(connection, b"R", json.dumps(asked).encode())
            connection.settimeout(None)
            return _listen(connection)
    except (OSError, Broken) as err:
        print("windlass rsh: %s: %s" % (host, err), file=sys.stderr)
        return DENIED


def target(words: List[str]) -> Tuple[str, str]:
    """The host and the command, options of a real rsh or ssh passed over."""
    position = 0
    while position < len(words) and words[position].startswith("-"):
        option = words[position]
        position += 2 if len(option) == 2 and option[1] in _OPTIONS_WITH_VALUE else 1
    if position >= len(words):
        raise SystemExit("windlass rsh: no host given")
    return words[position].rpartition("@")[2], " ".join(words[position + 1 :])


def _connect(host: str, port: int) -> socket.socket:
    """A worker listens once it knows its gang to be whole: a moment sooner or later than ours."""
    deadline = time.monotonic() + _CONNECT_SECONDS
    while True:
        try:
            return socket.create_connection((host, port), timeout=10)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _listen(connection: socket.socket) -> int:
    streams = {b"O": sys.stdout.buffer, b"E": sys.stderr.buffer}
    while True:
        kind, content = receive(connection, _READ)
        if kind == b"X":
            return int(content)
        if kind not in streams:
            raise Broken(content.decode("utf-8", "replace"))
        streams[kind].write(content)
        streams[kind].flush()


def main(words: List[str]) -> int:
    if words[0] == "call":
        return call(words[1], words[2:])
    number, name, files, log = words[1:5]
    with open(os.path.join(files, "agent.key"), "rb") as file:
        key = file.read()
    listener = socket.socket(fileno=int(number))
    # Not for the commands that we start.
    listener.set_inheritable(False)
    Agent(listener, name, key, log, files).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
