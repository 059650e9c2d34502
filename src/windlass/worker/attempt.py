"""The story of one attempt on one node, from the bundle to the exit record.

    prepare → register → (wait for the gang) → start the ranks → watch → end → record → goodbye

One thread decides: this one. Signals, the server's orders, the reporter and the hang watch only
put events into its queue and wake it. So what the worker does follows from events, in order.
"""

from __future__ import annotations

import os
import sys
import threading
import time

from windlass.worker import (
    bundle,
    cgroups,
    checkpoints,
    cpus,
    debug,
    ending,
    handed,
    hooks,
    needs,
    probes,
    processes,
    scratch,
    spawn,
    starting,
    verdict,
)
from windlass.worker import record as records
from windlass.worker.beats import Beats
from windlass.worker.comebacks import Comebacks
from windlass.worker.disk import DiskWatch
from windlass.worker.ending import Ending
from windlass.worker.environment import in_own_time
from windlass.worker.events import Events
from windlass.worker.inspection import Inspector
from windlass.worker.isolation import Isolation
from windlass.worker.launch import Launch, Refused
from windlass.worker.masking import MaskedText, Masker, masker_of
from windlass.worker.noticing import Noticing
from windlass.worker.orders import Orders
from windlass.worker.pickup.watch import Watch
from windlass.worker.ports import HeldPorts
from windlass.worker.pump import Pump
from windlass.worker.ranks import Rank
from windlass.worker.relay import Relay
from windlass.worker.reporter import Reporter
from windlass.worker.server import Fenced, Gone, Server
from windlass.worker.services.port import ServicePort
from windlass.worker.services.running import Services

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from windlass.worker.mirror.sending import Mirror


COUNT_SECONDS = 2.0
FENCE_SECONDS = 2.0
ROOM_SECONDS = 1.0
"""So often a full disk is asked whether it takes the record now."""
"""So soon a worker under a lease sees that its engine has given it up."""


class Attempt:
    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._spawner = spawn.Spawner()
        self._events = Events()
        self._ranks: List[Rank] = []
        self._ports: List[HeldPorts] = []
        self._nodes = 1
        self._ending: Optional[Ending] = None
        self._decided = False
        self._next_count = 0.0
        self._unremembered = False
        self._isolation: Optional[Isolation] = None
        self._services: Optional[Services] = None
        self._relay: Optional[Relay] = None
        self._masker: Optional[Masker] = None
        self._pickup: Optional[Watch] = None
        self._noticing: Optional[Noticing] = None
        self._pump = Pump(launch.retry_log_patterns, launch.respawn is not None)
        beats = self._beats = Beats(self._pump)
        self._mirror: Optional[Mirror] = None
        if launch.mirror:
            # Here and below, not at the top: other workers need not load it.
            from windlass.worker.mirror.sending import Mirror

            self._mirror = Mirror(launch, lambda why: self._events.tell("fenced", why))
        self._registering: Optional[List[Server]] = [Server(launch), Server(launch)]
        self._reporter = Reporter(
            launch,
            self._registering[0],
            ranks=lambda: beats.of(self._ranks, self._reporter.note),
            on_step=self._saw_step,
            on_orders=lambda orders: self._orders.take(orders),
            on_fenced=lambda why: self._events.tell("fenced", why),
        )
        self._comebacks = Comebacks(launch, self._pump, self._reporter)
        self._inspector = Inspector(
            launch, self._pump, self._reporter, on_hung=lambda why: self._events.tell("hung", why)
        )
        folders = [launch.directory, *([launch.checkpoint_dir] if launch.checkpoint_dir else [])]
        self._disk = DiskWatch(
            folders, launch.max_disk_bytes, lambda words: self._events.tell("over", words)
        )
        self._orders = Orders(
            launch,
            Server(launch),
            on_order=lambda order: self._events.tell("order", order),
            on_fenced=lambda why: self._events.tell("fenced", why),
        )

    def run(self) -> None:
        """The whole story. When it returns, `exit.json` is there, or the server has the record
        from us."""
        self._events.listen(self._terminated)
        if self._mirror is not None:
            self._mirror.start()
        try:
            self._begin()
            self._watch()
        except Exception as err:
            self._ending = ending.after(err, self._launch.directory)
        self._finish()

    # -- the beginning

    def _begin(self) -> None:
        launch = self._launch
        for name in ("run", "out", "logs", "debug", "files"):
            os.makedirs(launch.path(name), 0o700, exist_ok=True)
        assert self._registering is not None
        server = self._registering[1]
        bundle.lay_out(launch, server)
        self._hook = debug.lay_hook(launch)
        if launch.checkpoint_dir:
            os.makedirs(launch.checkpoint_dir, 0o700, exist_ok=True)
        isolation = self._isolation = Isolation(launch, self._spawner.system)
        self._remember()
        if launch.checkpoint_dir:
            folder, number = launch.checkpoint_dir, launch.attempt
            isolation.call(lambda: checkpoints.sweep(folder, number))
        if launch.git and not self._fetch(isolation):
            return
        ledger = os.path.join(launch.cache_dir, "ports") if launch.cache_dir else None
        sockets = isolation.sockets
        if sockets is not None:
            # Before the ports: it wants one of its own choice.
            self._relay = Relay(launch, sockets)
            self._relay.start()
        self._ports = [HeldPorts(member.nproc, ledger, sockets) for member in launch.members]
        service_ports = {
            each.name: ServicePort(launch.host, ledger, sockets) for each in launch.members
        }
        self._services = Services(launch, service_ports)
        answer = self._register(self._ports, service_ports)
        self._registering = None
        if not answer.get("whole"):
            waited = self._wait_for_gang(server)
            if waited is None:
                return
            answer = waited
        rendezvous = in_own_time(answer["rendezvous"])
        self._hide(rendezvous)
        extras = self._prepare_framework(rendezvous)
        self._services.start(rendezvous)
        if not rendezvous.get("ports_stay_held"):
            for each in self._ports:
                each.release()
        self._start_ranks(rendezvous, extras)

    def _hide(self, rendezvous: Dict[str, Any]) -> None:
        """From here on nothing that leaves this process, but the ranks' environment, holds one of
        the attempt's secrets. Raises Refused when one that the job names is gone, or does
        not open."""
        gone = rendezvous.get("secrets_gone") or ()
        if gone:
            raise Refused("the secret %s was removed" % ", ".join(gone))
        if rendezvous.get("secrets_closed"):
            raise Refused("; ".join(rendezvous["secrets_closed"]))
        self._masker = masker_of(rendezvous.get("secrets"))
        if self._masker is not None:
            self._reporter.masker = self._masker
            sys.stderr = MaskedText(sys.stderr, self._masker)

    def _fetch(self, isolation: Isolation) -> bool:
        """The code out of its repository; False when we were told to end before it was here."""
        # Here, not at the top: other workers need not load it.
        from windlass.worker.repository import Repository

        self._orders.start()
        repository = Repository(self._launch, isolation, self._spawner, self._told_to_end)
        try:
            repository.lay_out(self._agree)
        except Gone:
            if not self._told_to_end():
                raise
            return False
        return True

    def _told_to_end(self) -> bool:
        for kind, found in self._events.take():
            self._handle(kind, found)
        return self._ending is not None

    def _agree(self, commit: str) -> str:
        """Which commit the job runs: what was reported first, by whichever of its nodes."""
        answer = self._reporter.call("/api/v1/worker/code", {"commit": commit})
        return str(answer["commit"])

    def _register(
        self, ports: List[HeldPorts], service_ports: Dict[str, ServicePort]
    ) -> Dict[str, Any]:
        launch = self._launch
        assert self._isolation is not None
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
            "isolation": {
                **self._isolation.report(bool(self._spawner.mark)),
                "ifname": launch.ifname,
                **cpus.look(),
            },
        }
        if launch.resume and launch.checkpoint_dir and not launch.mirror:
            folder = launch.checkpoint_dir
            offered = self._isolation.call(lambda: checkpoints.found(folder)[:16])
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
                self._events.tell("whole", answer)
            except Fenced as err:
                self._events.tell("fenced", str(err))
            except Refused as err:
                self._events.tell("refused", str(err))
            except Gone:
                pass

        threading.Thread(target=ask, name="rendezvous", daemon=True).start()
        while self._ending is None:
            self._check_lease()
            self._events.sleep(1.0)
            for kind, found in self._events.take():
                if kind == "whole":
                    whole: Dict[str, Any] = found
                    return whole
                self._handle(kind, found)
        server.stop()
        return None

    def _prepare_framework(self, rendezvous: Dict[str, Any]) -> Dict[str, str]:
        """Lay out its hooks, ask its probes; the variables that follow, which yield to all others.
        While our ports are still held: the job's Python takes its time to answer."""
        own_hooks = ("tracking",) if self._launch.pickup else ()
        rendezvous["hooks"] = [*(rendezvous.get("hooks") or ()), *own_hooks]
        hooks.lay(self._hook, rendezvous["hooks"])
        variables: Dict[str, str] = {}
        asked = rendezvous.get("probes") or ()
        if asked:
            assert self._isolation is not None
            own = self._isolation.variables(os.environ)
            launch, call = self._launch, self._isolation.call
            variables, there, absent = call(lambda: probes.answer(launch, asked, own))
            ranks = [rank["rank"] for told in rendezvous["members"] for rank in told["ranks"]]
            # Good news is the same on every node: the first one tells it.
            for text in [*(there if 0 in ranks else ()), *absent]:
                self._reporter.note({"kind": "note", "text": text})
        return variables

    def _start_ranks(self, rendezvous: Dict[str, Any], extras: Dict[str, str]) -> None:
        launch, isolation = self._launch, self._isolation
        assert isolation is not None and self._services is not None
        wanted, folder = rendezvous.get("resume_from"), launch.checkpoint_dir
        server = Server(launch)
        self._registering = [server]  # a signal ends what is being fetched
        notes: List[Dict[str, str]] = []
        if launch.mirror and folder:
            from windlass.worker.mirror.checkpoints import fetched

            wanted, notes = fetched(launch, server, wanted)
            isolation.give(folder)
        resume, bad = isolation.call(lambda: checkpoints.choose(wanted, folder), 3600.0)
        notes += [{**note, "path": launch.at_home(note["path"])} for note in bad]
        if resume is not None:
            path = launch.at_home(resume["path"])
            notes.append({"kind": "checkpoint-verified", "path": path})
        start = handed.laid(launch, isolation, server, rendezvous.get("start_from"), resume)
        self._registering = None
        rendezvous = {**rendezvous, **start}
        if self._relay is not None:
            url = rendezvous.get("url") or (launch.urls or [""])[0]
            rendezvous["url"] = self._relay.url_inside(url)
        for note in notes:
            self._reporter.note(note)
        self._nodes = rendezvous.get("nodes", 1)
        watch = self._pickup = Watch(launch, self._ranks, isolation.uid)
        self._reporter.usage = watch.kept
        self._noticing = Noticing(
            launch, self._ranks, self._note_checkpoint, isolation.uid, self._nodes
        )
        starter = self._comebacks.starter = starting.Starter(
            launch, isolation, self._spawner, self._services, self._pump, self._hook,
            self._masker, watch,
        )  # fmt: skip
        try:
            self._beats.began = time.monotonic()
            troubles = starter.start(rendezvous, extras, self._ranks)
        finally:
            self._remember()
        self._pump.start()
        self._pickup.start()
        self._noticing.start()
        self._disk.start()
        starting.check(troubles)
        self._reporter.post(
            "/api/v1/worker/started",
            {"ranks": [{**rank.place(), "pid": rank.pid, "ran_ms": 0} for rank in self._ranks]},
        )
        self._reporter.start()
        self._orders.start()

    def _note_checkpoint(self, note: Dict[str, Any]) -> None:
        """Of a script's own files. Mirrored ones count when the server has them, not before."""
        if not self._launch.mirror:
            self._reporter.note(note)

    def _remember(self) -> None:
        """What `reap` needs when we die without a word. Raises OSError."""
        assert self._isolation is not None
        content = {
            "cgroups": self._isolation.cgroups.paths,
            "mark": self._spawner.mark,
            "ranks": [
                {"pid": rank.pid, "start_time": rank.start_time}
                for rank in self._ranks
                if rank.pid
            ],
        }
        records.write_json(self._launch.path("processes.json"), content)

    def _remember_in_time(self) -> None:
        """While the ranks run: a disk that is full is tried again, `reap` has other traces too."""
        try:
            self._remember()
            self._unremembered = False
        except OSError:
            pass

    # -- the middle

    def _watch(self) -> None:
        while True:
            self._collect()
            for kind, found in self._events.take():
                self._handle(kind, found)
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
                    outcome, why, failed = verdict.at_the_end(self._ranks)
                    self._end(outcome, why, grace, failed)
                elif word == verdict.DECIDED and not self._decided:
                    self._decided = True
                    self._reporter.note({"kind": "decided"})
                elif self._comebacks.start_due(self._ranks, now):
                    self._unremembered = True
                if self._unremembered:
                    self._remember_in_time()
                self._check_lease()
                self._check_processes(now)
                self._check_hang(now)
            if self._ending is not None:
                if now >= self._ending.kill_at or not ending.groups_live(self._ranks):
                    return
                self._events.sleep(min(0.5, self._ending.kill_at - now))
            else:
                self._events.sleep(self._patience(now))

    def _patience(self, now: float) -> float:
        """How long nothing but an event can change what we think."""
        next_look = min(self._inspector.next_look, self._comebacks.next_at(self._ranks))
        wait = max(0.01, min(60.0, next_look - now, self._next_count - now))
        if self._launch.lease_seconds is not None:
            until = self._reporter.last_good + self._launch.lease_seconds
            wait = min(wait, max(0.01, until - now), FENCE_SECONDS)
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
        elif kind == "over":
            self._end("failed", found, min(2.0, self._launch.grace_seconds))
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
        if os.path.exists(self._launch.path("fence")):
            self._end("lost", "fenced: its node was given up", 0)
            return
        if time.monotonic() - self._reporter.last_good >= lease:
            self._end(
                "lost",
                "no word from the server for %g s: the lease is over" % lease,
                self._launch.grace_seconds,
            )

    def _check_processes(self, now: float) -> None:
        """One that forks without end would go on at its limit for ever, to nobody's use."""
        if self._isolation is None or now < self._next_count:
            return
        self._next_count = now + COUNT_SECONDS
        for member in self._launch.members:
            words = self._isolation.cgroups.too_many_processes(member)
            if words:
                self._end("failed", words, min(2.0, self._launch.grace_seconds))

    def _check_hang(self, now: float) -> None:
        try:
            self._inspector.check_hang(self._ranks, self._nodes, now)
        except (OSError, RuntimeError, MemoryError) as err:
            if not needs.of(err):
                raise
            # The node has too little left to look: nothing is known, so nothing hangs.

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
                if self._isolation is not None and rank.exit != 0:
                    rank.oom, rank.limit = self._isolation.cgroups.exceeded(rank.member)
                if rank.exit == 0 and any(each.lives for each in self._ranks):
                    ended = {**rank.place(), "exit": 0, "signal": None}
                    self._reporter.note({"kind": "rank-ended", **ended})
                elif rank.failed and self._ending is None:
                    self._comebacks.lose(rank)

    # -- the end

    def _finish(self) -> None:
        assert self._ending is not None
        launch = self._launch
        if self._noticing is not None:
            ending.tried(self._noticing.stop)
        groups = self._isolation.cgroups.paths if self._isolation is not None else []
        running = {rank.pid: rank for rank in self._ranks if rank.running}
        processes.kill(running)
        deadline = time.monotonic() + ending.KILL_SECONDS
        while any(rank.running for rank in running.values()) and time.monotonic() < deadline:
            self._collect()
            self._events.sleep(0.01)
        survivors = ending.kill_everything(groups, self._ranks)
        if self._services is not None:
            ending.tried(self._services.stop)
        cgroups.remove(groups)
        if self._noticing is not None:
            ending.tried(self._noticing.finish)
        if self._isolation is not None:
            ending.tried(self._isolation.close)
        self._pump.finish(10.0)
        if self._pickup is not None:
            self._pickup.stop()
        record = records.make(
            launch.attempt_id,
            launch.attempt,
            launch.node,
            self._ending.outcome,
            self._ending.reason,
            [records.of_rank(rank, self._pump) for rank in self._ranks if rank.pid],
            records.failure_of(self._ending.failure) if self._ending.failure else None,
            survivors,
            self._ending.need,
        )
        if self._ending.advice:
            record["advice"] = self._ending.advice
        if self._masker is not None:
            record = self._masker.value(record)
        ending.tried(lambda: scratch.remove(launch.directory))
        if self._ending.need and not any(rank.pid for rank in self._ranks):
            # Nothing of the job ever ran, and what was laid out may be what fills the disk.
            ending.tried(lambda: scratch.remove_work(launch.directory))
        self._leave(record)

    def _leave(self, record: Dict[str, Any]) -> None:
        """The record on disk, and told. A disk that does not take it is waited for, with our lock
        held, so that nobody takes us for dead, unless the server has the record from us."""
        assert self._ending is not None
        fenced = self._ending.reason.startswith("fenced")
        written = ending.tried(lambda: records.write(self._launch.directory, record))
        if not fenced:
            ending.tried(lambda: self._say_goodbye(record))
        while not (written or fenced or self._reporter.told_of_end):
            time.sleep(ROOM_SECONDS)
            written = ending.tried(lambda: records.write(self._launch.directory, record))
            self._reporter.tell_of_end(record, Server(self._launch))

    def _say_goodbye(self, record: Dict[str, Any]) -> None:
        if self._mirror is None:
            self._reporter.goodbye(record)
            return
        # A beat at once: the server then knows that only files are still to come.
        self._reporter.note({"kind": "delivering"})
        if self._mirror.deliver(record, self._launch.deliver_seconds):
            # There is no shared folder in which the server would find what was not said.
            self._reporter.goodbye(record, self._launch.deliver_seconds)
        else:
            self._reporter.goodbye(record)

    # -- events

    def _terminated(self) -> None:
        self._events.tell("terminated", None)
        # Before the gang is known nobody reads events: the call under way must end instead.
        for server in self._registering or ():
            server.stop()
