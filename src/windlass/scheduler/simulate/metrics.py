"""What a run is measured by. Counting is in integers while it runs; floats appear in `result`.

Who held how much for how long is added up at every change (an integral, so nothing is sampled);
a job that is over leaves one row of numbers. Only fragmentation and the curves of the report are
samples, taken at even distances, at most 96 of them.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from windlass.scheduler.events import Need, Offer, Quota
from windlass.scheduler.simulate.fragments import Demand, fragmented
from windlass.scheduler.simulate.workload import (
    Job,
    capacity,
    main_resource,
    member,
    offered,
)

if TYPE_CHECKING:
    from windlass.scheduler.simulate.live import Live

DONE, FAILED, KILLED, CANCELLED = range(4)
OUTCOMES = ("done", "failed", "killed", "cancelled")
SAMPLES = 96
BOUND_MS = 10_000
"""Jobs shorter than this count as this long in the slowdown."""


class Account:
    """One tenant: what it holds, what it waits for, and the integrals of both."""

    __slots__ = (
        "name", "number", "entitled", "used", "waiting", "last_ms", "area", "wanted_ms",
        "wanted_area", "preemptions", "jobs", "rejected", "nominal", "holds", "wishes", "since_ms",
        "unserved_ms", "dirty", "each", "wanted",
    )  # fmt: skip

    def __init__(self, name: str, number: int, entitled: float, nominal: Mapping[str, int]):
        self.name, self.number, self.entitled = name, number, entitled
        self.used = self.waiting = self.last_ms = self.area = 0
        self.wanted_ms = self.wanted_area = self.preemptions = self.jobs = self.rejected = 0
        self.nominal = tuple((r, n) for r, n in nominal.items() if ":" not in r)
        self.holds = [0] * len(self.nominal)
        self.wishes: dict[tuple[int, ...], int] = {}
        self.since_ms = -1
        self.unserved_ms = 0
        self.dirty = False
        self.each: dict[int, tuple[int, ...]] = {}
        """What one member takes of each resource of `nominal`, by the identity of its needs."""
        self.wanted: dict[int, tuple[int, ...]] = {}
        """What the gang takes at its smallest, likewise."""

    def know(self, needs: tuple[Need, ...]) -> None:
        """Work out once what members of this shape take: half a million jobs share a few
        hundred shapes, and each is one object."""
        need = needs[0]
        each = tuple(member(need, resource) for resource, _ in self.nominal)
        self.each[id(needs)] = each
        self.wanted[id(needs)] = tuple(part * (need.minimum or need.count) for part in each)

    def touch(self, now: int) -> None:
        passed = now - self.last_ms
        if passed:
            self.area += self.used * passed
            if self.waiting:
                self.wanted_ms += passed
                self.wanted_area += self.used * passed
            self.last_ms = now

    def look(self, now: int) -> None:
        """Whether something waits that would fit what the tenant owns."""
        self.dirty = False
        entitled = bool(self.wishes) and self._entitled()
        if entitled and self.since_ms < 0:
            self.since_ms = now
        elif not entitled and self.since_ms >= 0:
            self.unserved_ms = max(self.unserved_ms, now - self.since_ms)
            self.since_ms = -1

    def _entitled(self) -> bool:
        room = [n - used for (_, n), used in zip(self.nominal, self.holds, strict=True)]
        if len(room) == 1:
            return min(self.wishes)[0] <= room[0]
        return any(
            all(part <= left for part, left in zip(wish, room, strict=True))
            for wish in self.wishes
        )


class Ledger:
    """Everything that is counted during a run."""

    def __init__(
        self, jobs: Sequence[Job], offers: Sequence[Offer], quotas: Sequence[Quota]
    ) -> None:
        self.jobs = jobs
        self.offers = list(offers)
        self.resource = main_resource(offers)
        self.capacity = capacity(offers, self.resource)
        self._quotas = {quota.name: quota for quota in quotas}
        self.accounts: dict[str, Account] = {}
        self.pending = self.running = self.allocated = 0
        self.first_ms = self.last_ms = jobs[0].submit_ms if jobs else 0
        self.end_ms = self.first_ms
        self.pending_area = self.allocated_area = self.capacity_area = self.useful = 0
        self.pending_most = 0
        self.preemptions = self.resizes = self.starts = 0
        self.lost = 0
        self.slips = 0
        self.slip_ms = 0
        self._dirty: list[Account] = []
        self._rows = {name: array("q") for name in ("number", "first", "waited", "end", "ran")}
        self._add_row = [column.append for column in self._rows.values()]
        self._main: dict[int, int] = {}
        """What one member takes of the main resource, by the identity of its needs."""
        self._fates = array("b")
        self._demand = Demand(jobs, self.resource)
        span = (jobs[-1].submit_ms - jobs[0].submit_ms) if jobs else 0
        self._step = max(1, span // (SAMPLES // 2))
        self._due = self.first_ms
        self.samples: list[tuple[int, int, int, int, int, float]] = []
        """(time, pending area, allocated area, capacity area, pending, fragmentation)"""

    # While it runs

    def advance(self, now: int) -> None:
        """Time passes up to `now`."""
        passed = now - self.last_ms
        if passed > 0:
            self.pending_area += self.pending * passed
            self.allocated_area += self.allocated * passed
            self.capacity_area += self.capacity * passed
            self.last_ms = now

    def settle(self, now: int, holders: Callable[[], Sequence[Live]]) -> None:
        """A tick is over. `holders` gives those that hold seats, for a sample."""
        if self._dirty:
            for account in self._dirty:
                account.look(now)
            self._dirty = []
        if self.pending > self.pending_most:
            self.pending_most = self.pending
        if now >= self._due:
            self.sample(now, holders())

    def sample(self, now: int, holders: Sequence[Live]) -> None:
        self._due = now + self._step
        lost = fragmented(self._demand, self.offers, holders)
        areas = (self.pending_area, self.allocated_area, self.capacity_area)
        self.samples.append((now, *areas, self.pending, lost))
        if len(self.samples) >= SAMPLES:
            self.samples = self.samples[::2]
            self._step *= 2

    def waiting(self, live: Live, now: int) -> None:
        job = live.job
        account = self.accounts.get(job.tenant) or self._account(job.tenant)
        live.account = account
        account.touch(now)
        account.waiting += 1
        self.pending += 1
        if account.nominal:
            needs = id(job.needs)
            if needs not in account.wanted:
                account.know(job.needs)
            wish = account.wanted[needs]
            account.wishes[wish] = account.wishes.get(wish, 0) + 1
            if not account.dirty:
                self._mark(account)

    def withdrawn(self, live: Live, now: int) -> None:
        account = live.account
        account.touch(now)
        account.waiting -= 1
        self.pending -= 1
        if account.nominal:
            wishes = account.wishes
            wish = account.wanted[id(live.job.needs)]
            wishes[wish] -= 1
            if not wishes[wish]:
                del wishes[wish]
            if not account.dirty:
                self._mark(account)

    def started(self, live: Live, now: int) -> None:
        self.withdrawn(live, now)
        self.running += 1
        self.starts += 1
        self.resized(live, live.held, now)

    def resized(self, live: Live, members: int, now: int) -> None:
        """It holds so many members more (or fewer)."""
        account = live.account
        account.touch(now)
        amount = self._each(live.job) * members
        account.used += amount
        self.allocated += amount
        if account.nominal:
            holds = account.holds
            for at, each in enumerate(account.each[id(live.job.needs)]):
                holds[at] += each * members
            if not account.dirty:
                self._mark(account)

    def stopped(self, live: Live, now: int, lost: int) -> None:
        """It holds nothing any more; of its work in this attempt, `lost` was in vain."""
        self.running -= 1
        self.resized(live, -live.held, now)
        each = self._each(live.job)
        self.useful += (live.done - lost) * each // 1000
        self.lost += lost * each // 1000
        self.end_ms = now

    def preempted(self, live: Live) -> None:
        self.preemptions += 1
        live.account.preemptions += 1

    def over(self, live: Live, now: int, fate: int) -> None:
        number, first, waited, end, ran = self._add_row
        number(live.number)
        first(live.first_ms)
        waited(live.waited_ms)
        end(now)
        ran(live.ran_ms)
        self._fates.append(fate)

    def node(self, offer: Offer, *, up: bool) -> None:
        self.capacity += offered(offer, self.resource) * (1 if up else -1)

    def rejected(self, job: Job) -> None:
        self._account(job.tenant).rejected += 1

    def promised(self, live: Live, start_ms: int, slipped: str) -> None:
        """A reservation was told. One that is later than before, without a reason that excuses
        it, has slipped."""
        if live.promised_ms < 0 or slipped or start_ms < live.promised_ms:
            live.promised_ms = start_ms
        elif start_ms > live.promised_ms:
            self._slip(start_ms - live.promised_ms)
            live.promised_ms = start_ms

    def kept(self, live: Live, now: int) -> None:
        """A job that had a reservation starts."""
        if 0 <= live.promised_ms < now:
            self._slip(now - live.promised_ms)
        live.promised_ms = -1

    def _slip(self, late_ms: int) -> None:
        self.slips += 1
        self.slip_ms = max(self.slip_ms, late_ms)

    def _account(self, tenant: str) -> Account:
        found = self.accounts.get(tenant)
        if found is None:
            quota = self._quotas.get(tenant)
            weight = quota.weight_milli / 1000 if quota else 1.0
            nominal = quota.nominal if quota else {}
            owned = nominal.get(self.resource, 0)
            found = Account(tenant, len(self.accounts), float(owned) or weight, nominal)
            self.accounts[tenant] = found
        return found

    def _mark(self, account: Account) -> None:
        account.dirty = True
        self._dirty.append(account)

    def _each(self, job: Job) -> int:
        found = self._main.get(id(job.needs))
        if found is None:
            found = self._main[id(job.needs)] = member(job.needs[0], self.resource)
        return found

    # At the end

    def result(self, *, ticks_ns: array[int], decisions: int, violations: int) -> dict[str, Any]:
        """The figures of the run, in the fixed order; seconds and shares."""
        now = self.last_ms
        for account in self.accounts.values():
            account.touch(now)
            if account.since_ms >= 0:
                account.unserved_ms = max(account.unserved_ms, now - account.since_ms)
        numbers = np.frombuffer(self._rows["number"], dtype=np.int64)
        fates = np.frombuffer(self._fates, dtype=np.int8)
        ran = fates != CANCELLED
        columns = {name: np.frombuffer(rows, dtype=np.int64) for name, rows in self._rows.items()}
        submitted = np.array([self.jobs[at].submit_ms for at in numbers], dtype=np.int64)
        waited = columns["waited"][ran] / 1000
        spent = (columns["end"] - submitted)[ran]
        slowdown = np.maximum(1.0, spent / np.maximum(columns["ran"][ran], BOUND_MS))
        core_s = sum(ticks_ns) / 1e9
        ticks = np.frombuffer(ticks_ns, dtype=np.int64) / 1e6
        used = self.capacity_area or 1
        rejected = sum(account.rejected for account in self.accounts.values())
        return {
            "jobs": len(self.jobs),
            "finished": int(ran.sum()),
            "makespan_s": (self.end_ms - self.first_ms) / 1000,
            "wait_s": spread(waited),
            "jct_s": spread(spent / 1000),
            "slowdown": spread(slowdown),
            "utilisation": {
                "allocated": _share(self.allocated_area, used),
                "useful": _share(self.useful, used),
            },
            "fragmentation": self._fragmentation(),
            "fairness": {
                "jain": jain(
                    [
                        account.wanted_area / account.wanted_ms / account.entitled
                        for account in self.accounts.values()
                        if account.wanted_ms
                    ]
                ),
                "unserved_nominal_s": max(
                    (account.unserved_ms for account in self.accounts.values()), default=0
                )
                / 1000,
            },
            "preemptions": self.preemptions,
            "reservation_slip_s": self.slip_ms / 1000,
            "decisions": decisions,
            "decisions_per_s": _round(decisions / core_s if core_s > 0 else 0.0),
            "tick_ms": {
                "p50": _quantile(ticks, 0.5),
                "p99": _quantile(ticks, 0.99),
                "max": _quantile(ticks, 1.0),
            },
            "peak_rss_mb": peak_rss_mb(),
            "by_tenant": self._by_tenant(numbers[ran], waited, spent / 1000),
            "invariant_violations": violations,
            "rejected": rejected,
            "details": self._details(fates, columns["waited"], core_s),
        }

    def rows(self) -> dict[str, NDArray[np.int64]]:
        """One number per job that is over: its number, when it first started (-1: never), how
        long it waited, when it ended, how long it ran; all in ms."""
        return {name: np.array(rows, dtype=np.int64) for name, rows in self._rows.items()}

    def _fragmentation(self) -> float:
        known = [lost for *_, lost in self.samples if lost >= 0]
        return _round(sum(known) / len(known)) if known else 0.0

    def _by_tenant(
        self, numbers: NDArray[np.int64], waited: NDArray[Any], spent: NDArray[Any]
    ) -> dict[str, Any]:
        owner = np.array(
            [self.accounts[self.jobs[at].tenant].number for at in numbers], dtype=np.int64
        )
        asked = Counter(job.tenant for job in self.jobs)
        unit = 3_600_000 * (2**30 if self.resource == "memory" else 1000)
        found = {}
        for name, account in sorted(self.accounts.items()):
            own = owner == account.number
            found[name] = {
                "jobs": asked[name],
                "finished": int(own.sum()),
                "rejected": account.rejected,
                "wait_s": spread(waited[own]),
                "jct_s": spread(spent[own]),
                f"{self.resource}_hours": _round(account.area / unit),
                "preemptions": account.preemptions,
                "unserved_nominal_s": account.unserved_ms / 1000,
            }
        return found

    def _details(
        self, fates: NDArray[np.int8], waited: NDArray[np.int64], core_s: float
    ) -> dict[str, Any]:
        span = max(1, self.last_ms - self.first_ms)
        count = max(1, len(waited))
        unit = 3_600_000 * (2**30 if self.resource == "memory" else 1000)
        return {
            "resource": self.resource,
            "outcomes": {word: int((fates == at).sum()) for at, word in enumerate(OUTCOMES)},
            "unfinished": self.pending + self.running,
            "resizes": self.resizes,
            "slips": self.slips,
            f"lost_{self.resource}_hours": _round(self.lost / unit),
            "pending_mean": _round(self.pending_area / span),
            "pending_max": self.pending_most,
            # Little's law: the mean queue is the rate of arrival times the mean wait.
            "arrivals_per_s": _round(count * 1000 / span),
            "wait_all_s": _round(float(waited.sum()) / count / 1000),
            "core_s": _round(core_s),
        }

    def curves(self) -> dict[str, list[tuple[float, float]]]:
        """What the report draws: means between samples, over hours."""
        points: dict[str, list[tuple[float, float]]] = {
            "pending": [],
            "utilisation": [],
            "fragmentation": [],
        }
        for old, new in zip(self.samples, self.samples[1:], strict=False):
            passed = new[0] - old[0]
            if passed <= 0:
                continue
            hours = (new[0] - self.first_ms) / 3_600_000
            points["pending"].append((hours, (new[1] - old[1]) / passed))
            if new[3] > old[3]:
                points["utilisation"].append((hours, (new[2] - old[2]) / (new[3] - old[3])))
            if new[5] >= 0:
                points["fragmentation"].append((hours, new[5]))
        return points


def spread(values: NDArray[Any]) -> dict[str, float]:
    """mean, p50, p90, p99, max; zeros where there is nothing."""
    if not len(values):
        return {"mean": 0.0, "p50": 0.0, "p90": 0.0, "p99": 0.0, "max": 0.0}
    return {
        "mean": _round(float(values.mean())),
        "p50": _quantile(values, 0.5),
        "p90": _quantile(values, 0.9),
        "p99": _quantile(values, 0.99),
        "max": _quantile(values, 1.0),
    }


def jain(values: Sequence[float]) -> float:
    """1 when all have the same, 1/n when one has everything."""
    squares = sum(value * value for value in values)
    return _round(sum(values) ** 2 / (len(values) * squares)) if squares else 1.0


def peak_rss_mb() -> float:
    """The most memory this process has had."""
    try:
        import resource
    except ImportError:  # Windows
        import psutil

        return _round(psutil.Process().memory_info().rss / 2**20)
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return _round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit)


def _quantile(values: NDArray[Any], share: float) -> float:
    """A value that was really there, no mean of two."""
    if not len(values):
        return 0.0
    return _round(float(np.quantile(values, share, method="inverted_cdf")))


def _share(part: int, whole: int) -> float:
    return _round(part / whole)


def _round(value: float) -> float:
    return round(value, 6)
