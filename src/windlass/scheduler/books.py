"""What the core knows: nodes, quotas, who runs, who waits, what is kept for whom.

One object that all steps of a tick share. It keeps the books in step with each other (a charge
moves the tenant's place in the order, a job that queues up gets its day of starving) and decides
nothing.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Sequence

from windlass.scheduler.bars import Bars
from windlass.scheduler.entries import Entry, Stage
from windlass.scheduler.events import NEVER, Decision, Queue, Rules, Seat, Submit, Used
from windlass.scheduler.nodes import Nodes
from windlass.scheduler.pending import Key, Pending, Rank
from windlass.scheduler.quota import Amounts, Tree
from windlass.scheduler.reserve import Reservations
from windlass.scheduler.running import Running

_BY_HALF_LIFE = 1 << 16


class Books:
    rules: Rules
    tree: Tree
    pending: Pending

    def __init__(self, rules: Rules) -> None:
        self.nodes = Nodes()
        self.running = Running(self.nodes)
        self.reservations = Reservations()
        self.bars = Bars(self.nodes, self.reservations)
        self.waiting: dict[str, Entry] = {}
        """All that do not hold seats: in a lane, promised, set aside, or in a paused queue."""
        self.starving: list[tuple[int, int, str]] = []
        """When who will have waited for too long, as a heap."""
        self.starved: dict[str, list[tuple[Rank, Entry]]] = {}
        """By tenant: those that waited for too long and have nothing kept for them, in order."""
        self.now_ms = 0
        self.tick = 0
        self.decisions: list[Decision] = []
        self.started_now: dict[str, int] = {}
        """Jobs started in this tick, and where in the decisions."""
        self.stirred = 0
        """In how many ticks something was heard or decided."""
        self.hopes = 0
        """How often something ended whose end nobody knew, or a node came."""
        self.freed = False
        """Something may fit that did not fit before."""
        self.again = False
        """Something was given up while the waiting were looked at: another may be next."""
        self.reordered = False
        """Somebody's use fell while the waiting were looked at: whose turn it is is asked anew."""
        self.more = False
        """The tick stopped before it had looked at all."""
        self.work = 0
        """What was started and promised in this tick, by what it cost."""
        self._lately: dict[str, int] = {}
        self._used: dict[str, None] = {}
        """Those of whom it is another than was last asked for."""
        self._half_lives: int | None = None
        self._scaled_ms = -1
        self._scale = (0, _BY_HALF_LIFE)
        """As of then: the whole half-lives since the first, and what of the next has passed."""
        self.follow(rules)

    # Rules

    def follow(self, rules: Rules) -> None:
        """These rules hold from now on; nothing is charged yet, and nobody stands in a lane.
        Raises ValueError before anything is changed."""
        tree = Tree(rules.quotas, rules.caps)
        self.rules, self.tree = rules, tree
        self._scaled_ms = -1
        self.queues = {queue.name: queue for queue in rules.queues}
        self.by_user = any(cap.user for cap in rules.caps)
        self.members: dict[str, list[str]] = {}
        """The tenants of each cohort."""
        for tenant in tree.tenants():
            self.members.setdefault(tree.cohort(tenant), []).append(tenant)
        self.reclaims_any = {quota.name for quota in rules.quotas if quota.reclaim_any}
        self.models_metered = any(column.startswith("gpus:") for column in tree.columns)
        self.pending = Pending(self.key, tree.cohort, self.hopeless, self._floor)

    def count_capacity(self) -> None:
        """Shares are of what the cluster has; with it, everybody's place may change."""
        capacity = self.nodes.capacity
        self.tree.capacity(
            {
                "cpus": int(capacity.cpus.sum()),
                "memory": int(capacity.memory.sum()),
                "gpus": int(capacity.gpu.sum()),
            }
        )
        self.pending.resort()

    def queue(self, name: str) -> Queue:
        return self.queues.get(name) or Queue(name)

    # Who waits

    def entry(self, job: Submit) -> Entry:
        form = self.nodes.form(job.needs, job.level, job.required)
        return Entry(job, form, self.tree, self.tick)

    def queue_up(self, entry: Entry) -> None:
        """It stands in a lane, unless its queue is paused."""
        queue = self.queue(entry.told.queue)
        entry.stage = Stage.WAITING
        entry.turn = 0
        entry.paused = queue.paused
        if not queue.paused:
            self.pending.add(entry, strict=queue.policy == "strict", by_user=self.by_user)
            self.starves_after(entry, self.now_ms)

    def starves_after(self, entry: Entry, soonest_ms: int) -> None:
        """It is looked at when it will have waited for too long."""
        told = entry.told
        due = max(told.order_ms + self.rules.starving_ms, soonest_ms)
        heapq.heappush(self.starving, (due, told.number, told.job_id))

    def starves(self, entry: Entry) -> None:
        """It has waited for too long."""
        line = self.starved.setdefault(entry.told.tenant, [])
        at = bisect_left(line, entry.rank, key=lambda item: item[0])
        if at == len(line) or line[at][0] != entry.rank:
            line.insert(at, (entry.rank, entry))

    def starves_no_more(self, entry: Entry) -> None:
        """Something is kept for it, or it waits no longer: those behind it may be next."""
        line = self.starved.get(entry.told.tenant)
        if line is None:
            return
        at = bisect_left(line, entry.rank, key=lambda item: item[0])
        if at < len(line) and line[at][0] == entry.rank:
            del line[at]
            if not line:
                del self.starved[entry.told.tenant]
            self.pending.lowered(entry.told.tenant)
            if self.pending.wait_for_quota(entry.told.tenant):
                self.freed = True

    def no_longer_waits(self, entry: Entry) -> None:
        self.starves_no_more(entry)
        self.waiting.pop(entry.told.job_id, None)
        self.nodes.wanted(entry.form, -1)

    # Charging

    def charge(self, entry: Entry, amounts: Amounts) -> None:
        told = entry.told
        self.tree.charge(told.tenant, told.kind, told.user, amounts)
        self.pending.moved(told.tenant)

    def discharge(self, entry: Entry, amounts: Amounts, *, quiet: bool = False) -> None:
        """`quiet`: only to see what if, it is charged again at once."""
        told = entry.told
        self.tree.discharge(told.tenant, told.kind, told.user, amounts)
        self.pending.moved(told.tenant)
        if not quiet:
            self.pending.lowered(told.tenant)

    def charge_of(self, entry: Entry, seats: Sequence[Seat]) -> Amounts:
        """What these seats cost, by GPU model where models are metered."""
        if not self.models_metered and entry.elastic is None:
            return entry.amounts
        wants = {need.role: need for need in entry.told.needs}
        of: dict[str, int] = {"gpus": 0, "cpus": 0, "memory": 0}
        for seat in seats:
            need = wants[seat.role]
            gpus = need.gpus * 1000 + need.gpu_milli
            of["gpus"] += gpus
            of["cpus"] += need.cpus_milli
            of["memory"] += need.memory_bytes
            at = self.nodes.index.get(seat.node)
            if gpus and at is not None:
                model = "gpus:" + self.nodes.offers[at].gpu_model
                of[model] = of.get(model, 0) + gpus
        return self.tree.amounts(of)

    # Order

    def key(self, entry: Entry) -> Key:
        """Where it stands among all that wait: the least is next."""
        priority, order_ms, number = entry.rank
        if self.rules.order == "fifo":
            return (0, priority, 0, order_ms, number)
        tenant = entry.told.tenant
        standing = self.tree.standing(tenant, entry.amounts)
        return (standing, priority, self._lately.get(tenant, 0), order_ms, number)

    def use_lately(self, entry: Entry, ran_ms: int) -> None:
        """Count use so that older use weighs less, without ever touching what was counted: what
        is used later weighs more. A start counts like a minute."""
        if self.now_ms != self._scaled_ms:
            whole, part = divmod(self.now_ms, self.rules.half_life_ms)
            # Counted from the first: a date has thousands of half-lives behind it, and so many
            # bits.
            self._half_lives = whole if self._half_lives is None else self._half_lives
            scale = _BY_HALF_LIFE + part * _BY_HALF_LIFE // self.rules.half_life_ms
            self._scaled_ms, self._scale = self.now_ms, (max(0, whole - self._half_lives), scale)
        whole, scale = self._scale
        amount = max(entry.form.gpu_milli, 1) * max(ran_ms, 60_000 if ran_ms == 0 else 0)
        used = (amount * scale // _BY_HALF_LIFE) << whole
        tenant = entry.told.tenant
        self._lately[tenant] = self._lately.get(tenant, 0) + used
        self._used[tenant] = None

    def used(self) -> list[Used]:
        """What those used lately that used anything since this was last asked."""
        tenants, self._used = self._used, {}
        return [Used(name, self._lately[name], self._half_lives or 0) for name in tenants]

    def used_before(self, told: Used) -> None:
        """By the count of the core before."""
        if self._half_lives is None:
            self._half_lives, self._scaled_ms = told.half_lives, -1
        shift = told.half_lives - self._half_lives
        amount = told.amount << shift if shift >= 0 else told.amount >> -shift
        self._lately[told.tenant] = amount

    def _floor(self, tenant: str) -> int:
        """No job of this tenant has a lower standing now."""
        return 0 if self.rules.order == "fifo" else self.tree.floor(tenant)

    def hopeless(self, entry: Entry) -> bool:
        """Surely nobody of its cohort has quota for as much. What is kept for a promise may be
        used by those that end before it."""
        tree, tenant = self.tree, entry.told.tenant
        if not tree.hopeless(tenant, entry.amounts):
            return False
        kept = [
            k.entry
            for k in self.reservations.all.values()
            if not (k.claim and k.start_ms < NEVER)
            and tree.cohort(k.entry.told.tenant) == tree.cohort(tenant)
        ]
        less = entry.amounts
        for other in kept:
            less = tuple(a - b for a, b in zip(less, other.charged, strict=True))
        return not kept or tree.hopeless(tenant, less)
