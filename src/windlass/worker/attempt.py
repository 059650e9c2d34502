"""The story of one attempt on one node, from the bundle to the exit record.

    prepare → register → (wait for the gang) → start the ranks → watch → end → record → goodbye

One thread decides: this one. Signals, the server's orders, the reporter and the hang watch only
put events into its queue and wake it. So what the worker does follows from events, in order.
"""

from __future__ import annotations

import collections
import os
import select
import signal
import threading
import time

from windlass.worker import (
    bundle,
    cgroups,
    checkpoints,
    debug,
    ending,
    environment,
    hooks,
    probes,
    processes,
    scratch,
    spawn,
    verdict,
)
from windlass.worker import record as records
from windlass.worker.ending import Ending
from windlass.worker.inspection import Inspector
from windlass.worker.launch import Launch, Member, Refused
from windlass.worker.logs import Stream
from windlass.worker.orders import Orders
from windlass.worker.ports import HeldPorts
from windlass.worker.pump import Channel, Pump
from windlass.worker.ranks import Rank
from windlass.worker.reporter import Reporter
from windlass.worker.server import Fenced, Gone, Server
from windlass.worker.services.port import ServicePort
from windlass.worker.services.running import Services

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Deque, Dict, List, Optional, Set, Tuple


class Attempt:
    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._spawner = spawn.Spawner()
        self._spawner.become_subreaper()
        self._events: Deque[Tuple[str, Any]] = collections.deque()
        self._wake_read, self._wake_write = os.pipe()
        for each in (self._wake_read, self._wake_write):
            os.set_blocking(each, False)
        self._ranks: List[Rank] = []
        self._ports: List[HeldPorts] = []
        self._nodes = 1
        self._ending: Optional[Ending] = None
        self._decided = False
        self._told_dropped: Set[int] = set()
        self._cgroups: Optional[cgroups.Cgroups] = None
        self._services: Optional[Services] = None
        self._pump = Pump(launch.retry_log_patterns)
        self._registering: Optional[List[Server]] = [Server(launch), Server(launch)]
        self._reporter = Reporter(
            launch,
            self._registering[0],
            ranks=self._beat_ranks,
            on_step=self._saw_step,
            on_orders=lambda orders: self._orders.take(orders),
            on_fenced=lambda why: self._tell("fenced", why),
        )
        self._inspector = Inspector(
            launch, self._pump, self._reporter, on_hung=lambda why: self._tell("hung", why)
        )
        self._orders = Orders(
            launch,
            Server(launch),
            on_order=lambda order: self._tell("order", order),
            on_fenced=lambda why: self._tell("fenced", why),
        )

    def run(self) -> None:
        """The whole story. When it returns, `exit.json` is there. Raises OSError when the disk
        would not take it; the server was told all the same."""
        self._listen_to_signals()
        try:
            self._begin()
            self._watch()
        except Refused as err:
            self._ending = Ending("refused", str(err), 0)
        except Fenced as err:
            self._ending = Ending("lost", "fenced: %s" % err, 0)
        except Gone:
            self._ending = Ending("cancelled", "the worker was told to stop", 0)
        except OSError as err:
            self._ending = Ending("lost", "the node failed the worker: %s" % err, 0)
        except Exception as err:
            import traceback

            traceback.print_exc()
            words = "a fault in the worker: %s: %s" % (type(err).__name__, err)
            self._ending = Ending("lost", words, 0)
        self._finish()

    # -- the beginning

    def _begin(self) -> None:
        launch = self._launch
        for name in ("run", "out", "logs", "debug", "files"):
            os.makedirs(launch.path(name), 0o700, exist_ok=True)
        self._tmp = scratch.make(launch.directory)
        assert self._registering is not None
        server = self._registering[1]
        bundle.lay_out(launch, server)
        self._hook = debug.lay_hook(launch)
        self._cgroups = cgroups.Cgroups(launch)
        self._remember()
        if launch.checkpoint_dir:
            os.makedirs(launch.checkpoint_dir, 0o700, exist_ok=True)
            checkpoints.sweep(launch.checkpoint_dir, launch.attempt)
        ledger = os.path.join(launch.cache_dir, "ports") if launch.cache_dir else None
        self._ports = [HeldPorts(member.nproc, ledger) for member in launch.members]
        service_ports = {each.name: ServicePort(launch.host, ledger) for each in launch.members}
        self._services = Services(launch, service_ports)
        answer = self._register(self._ports, service_ports)
        self._registering = None
        if not answer.get("whole"):
            waited = self._wait_for_gang(server)
            if waited is None:
                return
            answer = waited
        rendezvous = answer["rendezvous"]
        extras = self._prepare_framework(rendezvous)
        self._services.start(rendezvous)
        if not rendezvous.get("ports_stay_held"):
            for each in self._ports:
                each.release()
        self._start_ranks(rendezvous, extras)

    def _register(
        self, ports: List[HeldPorts], service_ports: Dict[str, ServicePort]
    ) -> Dict[str, Any]:
        launch = self._launch
        assert self._cgroups is not None
        body: Dict[str, Any] = {
            "host": launch.host,
            "boot_id": processes.boot_id(),
            "pid": os.getpid(),
            "members": [
                {
                    "role": member.role,
                    "index": member.index,
                    "ports": held.numbers,
                    "service_port": service_ports[member.name].number,
                }
                for member, held in zip(launch.members, ports)  # noqa: B905 (Python 3.8)
            ],
            "isolation": {**self._cgroups.report(), "ifname": launch.ifname},
        }
        if launch.resume and launch.checkpoint_dir:
            offered = checkpoints.found(launch.checkpoint_dir)[:16]
            if offered:
                body["checkpoints"] = offered
        answer: Dict[str, Any] = self._reporter.call("/api/v1/worker/register", body)
        return answer

    def _wait_for_gang(self, server: Server) -> Optional[Dict[str, Any]]:
        """The answer once all have registered; None when we were told to end before."""
        self._reporter.start()
        self._orders.start()

        def ask() -> None:
            path = "/api/v1/worker/rendezvous?node=%s&wait=30" % self._launch.node
            try:
                answer: Dict[str, Any] = {}
                while not answer.get("whole"):
                    asked = time.monotonic()
                    answer = server.call("GET", path, timeout=60)
                    if not answer.get("whole") and time.monotonic() - asked < 0.05:
                        time.sleep(0.2)
                self._tell("whole", answer)
            except Fenced as err:
                self._tell("fenced", str(err))
            except Refused as err:
                self._tell("refused", str(err))
            except Gone:
                pass

        threading.Thread(target=ask, name="rendezvous", daemon=True).start()
        while self._ending is None:
            self._check_lease()
            self._sleep(1.0)
            while self._events:
                kind, found = self._events.popleft()
                if kind == "whole":
                    whole: Dict[str, Any] = found
                    return whole
                self._handle(kind, found)
        server.stop()
        return None

    def _prepare_framework(self, rendezvous: Dict[str, Any]) -> Dict[str, str]:
        """Lay out its hooks, ask its probes; the variables that follow, which yield to all others.
        While our ports are still held: the job's Python takes its time to answer."""
        hooks.lay(self._hook, rendezvous.get("hooks") or ())
        variables: Dict[str, str] = {}
        asked = rendezvous.get("probes") or ()
        if asked:
            variables, there, absent = probes.answer(self._launch, asked, os.environ)
            ranks = [rank["rank"] for told in rendezvous["members"] for rank in told["ranks"]]
            # Good news is the same on every node: the first one tells it.
            for text in [*(there if 0 in ranks else ()), *absent]:
                self._reporter.note({"kind": "note", "text": text})
        return variables

    def _start_ranks(self, rendezvous: Dict[str, Any], extras: Dict[str, str]) -> None:
        launch = self._launch
        assert self._cgroups is not None
        resume, notes = checkpoints.choose(rendezvous.get("resume_from"), launch.checkpoint_dir)
        rendezvous = {**rendezvous, "resume_from": resume}
        for note in notes:
            self._reporter.note(note)
        self._nodes = rendezvous.get("nodes", 1)
        members = {(member.role, member.index): member for member in launch.members}
        troubles = []
        for told in rendezvous["members"]:
            member = members[(told["role"], told["index"])]
            finish = rendezvous.get("finish", {}).get(member.role) or member.finish
            for local_rank, told_rank in enumerate(told["ranks"]):
                rank = Rank(member, local_rank, told_rank["rank"], finish)
                self._ranks.append(rank)
                folders = {
                    "tmp": self._tmp,
                    "hook": self._hook,
                    "files": self._files_of(rank, told_rank.get("files") or {}),
                }
                devices = environment.devices_of(
                    member, told.get("gpus", "rank"), local_rank, len(told["ranks"])
                )
                variables = environment.of_rank(
                    launch, member, rendezvous, told_rank, folders, devices, os.environ
                )
                variables = {**extras, **variables}
                command, inherited = self._command_of(member, told_rank, folders["files"])
                trouble = self._start_rank(rank, command, variables, inherited)
                troubles.append((command, trouble))
        self._remember()
        self._pump.start()
        for command, trouble in troubles:
            reason = spawn.trouble_of(command, trouble)
            if reason:
                raise Refused(reason)
        self._reporter.post(
            "/api/v1/worker/started",
            {"ranks": [{**rank.place(), "pid": rank.pid} for rank in self._ranks]},
        )
        self._reporter.start()
        self._orders.start()

    def _command_of(
        self, member: Member, told: Dict[str, Any], files: str
    ) -> Tuple[List[str], Optional[int]]:
        """What one process runs: the member's command, or a service of ours in its place, which
        inherits the socket of its port."""
        assert self._services is not None
        if told.get("instead"):
            return self._services.stand_in(told["instead"], member, files)
        command = environment.command_of(member, self._launch.python)
        return [*(told.get("prefix") or ()), *command], None

    def _start_rank(
        self,
        rank: Rank,
        command: List[str],
        variables: Dict[str, str],
        inherited: Optional[int] = None,
    ) -> int:
        assert self._cgroups is not None
        if inherited is not None:
            os.set_inheritable(inherited, True)
        rank.started_ms = int(time.time() * 1000)
        rank.pid, out, err, trouble = self._spawner.start(
            command,
            variables,
            self._launch.path("work"),
            self._cgroups.member_files(rank.member),
        )
        if inherited is not None:
            os.close(inherited)
        rank.start_time = processes.start_time(rank.pid)
        for stream, pipe in (("out", out), ("err", err)):
            name = "%s.%s" % (rank.name, stream)
            log = Stream(self._launch.path("logs"), name, self._launch.log_rate)
            self._pump.add(Channel(rank.number, pipe, log, keep_tail=stream == "err"))
        return trouble

    def _files_of(self, rank: Rank, files: Dict[str, str]) -> str:
        folder = self._launch.path("files", str(rank.number))
        os.makedirs(folder, 0o700, exist_ok=True)
        for name, text in files.items():
            with open(os.path.join(folder, os.path.basename(name)), "w") as file:
                file.write(text)
        assert self._services is not None
        self._services.lay(folder)
        return folder

    def _remember(self) -> None:
        """What `reap` needs when we die without a word."""
        assert self._cgroups is not None
        content = {
            "cgroups": self._cgroups.paths,
            "ranks": [
                {"pid": rank.pid, "start_time": rank.start_time}
                for rank in self._ranks
                if rank.pid
            ],
        }
        records.write_json(self._launch.path("processes.json"), content)

    # -- the middle

    def _watch(self) -> None:
        while True:
            self._collect()
            while self._events:
                self._handle(*self._events.popleft())
            now = time.monotonic()
            if self._ending is None:
                word, failed = verdict.judge(self._ranks, self._nodes)
                if word == verdict.FAILED:
                    assert failed is not None
                    outcome = verdict.outcome_of(failed)
                    self._end(outcome, failed.sentence(), self._launch.grace_seconds, failed)
                elif word == verdict.OVER:
                    # What a rank left behind when it ended well has no claim to a warning.
                    serving = any(rank.running for rank in self._ranks)
                    grace = self._launch.grace_seconds if serving else 0
                    self._end("succeeded", "all ranks ended well", grace)
                elif word == verdict.DECIDED and not self._decided:
                    self._decided = True
                    self._reporter.note({"kind": "decided"})
                self._check_lease()
                self._inspector.check_hang(self._ranks, self._nodes, now)
            if self._ending is not None:
                if now >= self._ending.kill_at or not ending.groups_live(self._ranks):
                    return
                self._sleep(min(0.5, self._ending.kill_at - now))
            else:
                self._sleep(self._patience(now))

    def _patience(self, now: float) -> float:
        """How long nothing but an event can change what we think."""
        wait = 60.0
        wait = min(wait, max(0.01, self._inspector.next_look - now))
        if self._launch.lease_seconds is not None:
            until = self._reporter.last_good + self._launch.lease_seconds
            wait = min(wait, max(0.01, until - now))
        return wait

    def _handle(self, kind: str, found: Any) -> None:
        if kind == "fenced":
            self._end("lost", "fenced: %s" % found, 0)
        elif kind == "refused":
            self._end("refused", found, 0)
        elif kind == "terminated":
            if self._ending is not None:
                self._ending.hurry(0)
            self._end("cancelled", "the worker was told to stop", self._launch.grace_seconds)
        elif kind == "hung":
            self._end("hung", found, self._launch.grace_seconds)
        elif kind == "order":
            self._obey(found)

    def _obey(self, order: Dict[str, Any]) -> None:
        kind = order["kind"]
        if kind == "end":
            grace = order.get("grace_ms")
            seconds = self._launch.grace_seconds if grace is None else grace / 1000
            self._end(order.get("outcome") or "cancelled", order.get("reason") or "", seconds)
        elif kind == "signal":
            running = [rank.pid for rank in self._ranks if rank.running]
            processes.kill_groups(running, int(order["number"]))
            self._inspector.answer(order, True, {"ranks": len(running)})
        else:
            self._inspector.obey(order, self._ranks)

    def _end(
        self, outcome: str, reason: str, grace_seconds: float, failure: Optional[Rank] = None
    ) -> None:
        """The first reason to end stays the reason; a later one can only hurry it."""
        if self._ending is not None:
            self._ending.hurry(grace_seconds)
            return
        self._ending = Ending(outcome, reason, grace_seconds, failure)
        if grace_seconds > 0:
            ending.warn(self._ranks)

    def _check_lease(self) -> None:
        """Our own clock, from the moment the last good report was *sent*: never later than the
        server may think."""
        lease = self._launch.lease_seconds
        if lease is None or self._ending is not None:
            return
        if time.monotonic() - self._reporter.last_good >= lease:
            self._end(
                "lost",
                "no word from the server for %g s: the lease is over" % lease,
                self._launch.grace_seconds,
            )

    def _beat_ranks(self) -> List[Dict[str, Any]]:
        usage = processes.tree_usage([rank.pid for rank in self._ranks if rank.running])
        found = []
        for rank in self._ranks:
            dropped = self._pump.dropped(rank.number)
            if dropped and rank.number not in self._told_dropped:
                self._told_dropped.add(rank.number)
                note = {"kind": "dropped", "rank": rank.number, "bytes": dropped}
                self._reporter.note(note)
            cpu_ms, rss_bytes = usage.get(rank.pid, (0, 0))
            entry: Dict[str, Any] = {
                "rank": rank.number,
                "pid": rank.pid,
                "output_bytes": self._pump.received(rank.number),
                "step": rank.step,
                "cpu_ms": cpu_ms,
                "rss_bytes": rss_bytes,
            }
            if rank.ended_ms is not None:
                entry["exit"] = rank.exit if rank.signal is None else -rank.signal
            found.append(entry)
        return found

    def _saw_step(self, number: int, step: int) -> None:
        for rank in self._ranks:
            if rank.number == number:
                rank.step = step

    def _collect(self) -> None:
        """Take the status of every child that ended; orphans that became ours among them."""
        ranks = {rank.pid: rank for rank in self._ranks if rank.running}
        for pid, status, usage in ending.reap_orphans():
            rank = ranks.get(pid)
            if rank is not None:
                rank.ended(status, usage, self._ending.outcome if self._ending else None)
                if self._cgroups is not None and rank.exit != 0:
                    rank.oom = self._cgroups.out_of_memory(rank.member)
                if rank.exit == 0 and any(each.running for each in self._ranks):
                    ended = {**rank.place(), "exit": 0, "signal": None}
                    self._reporter.note({"kind": "rank-ended", **ended})

    # -- the end

    def _finish(self) -> None:
        assert self._ending is not None
        launch = self._launch
        groups = self._cgroups.paths if self._cgroups is not None else []
        running = {rank.pid: rank for rank in self._ranks if rank.running}
        processes.kill(running)
        deadline = time.monotonic() + ending.KILL_SECONDS
        while any(rank.running for rank in running.values()) and time.monotonic() < deadline:
            self._collect()
            self._sleep(0.01)
        survivors = ending.kill_everything(groups, self._ranks)
        if self._services is not None:
            self._services.stop()
        cgroups.remove(groups)
        self._pump.finish(2.0)
        record = records.make(
            launch.attempt_id,
            launch.attempt,
            launch.node,
            self._ending.outcome,
            self._ending.reason,
            [records.of_rank(rank, self._pump) for rank in self._ranks if rank.pid],
            records.failure_of(self._ending.failure) if self._ending.failure else None,
            survivors,
        )
        scratch.remove(launch.directory)
        try:
            records.write(launch.directory, record)
        finally:
            if not self._ending.reason.startswith("fenced"):
                self._reporter.goodbye(record)

    # -- events

    def _listen_to_signals(self) -> None:
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, lambda number, frame: self._terminated())
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def _terminated(self) -> None:
        self._tell("terminated", None)
        # Before the gang is known nobody reads events: the call under way must end instead.
        for server in self._registering or ():
            server.stop()

    def _tell(self, kind: str, found: Any) -> None:
        """From any thread or signal handler."""
        self._events.append((kind, found))
        try:
            os.write(self._wake_write, b"!")
        except OSError:
            pass

    def _sleep(self, seconds: float) -> None:
        """Until an event, or for so long."""
        if self._events:
            return
        select.select([self._wake_read], [], [], max(0.0, seconds))
        try:
            while os.read(self._wake_read, 4096):
                pass
        except BlockingIOError:
            pass
