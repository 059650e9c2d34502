"""What may happen in a storm: jobs, nodes, rules, drawn at random."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from windlass.scheduler.events import (
    Cap,
    Event,
    Need,
    NodeDown,
    NodeUp,
    Offer,
    Queue,
    Quota,
    Rules,
    Submit,
)

HAPPENINGS = (
    (0.45, "submits"), (0.10, "fails"), (0.05, "ends"), (0.06, "cancels"), (0.02, "retells"),
    (0.06, "changes_nodes"), (0.03, "edits_rules"), (0.005, "restarts"),
)  # fmt: skip
"""How likely each is in one step; the rest of the time nothing happens."""

TENANTS = ("ash", "birch", "cedar", "dogwood", "wild")


@dataclass
class Profile:
    """What may happen. `calm`: nothing that could excuse a broken promise."""

    name: str
    exact: bool = False
    """Jobs run exactly as long as they said."""
    nodes_change: bool = True
    rules_change: bool = True
    preemption: bool = True
    unending: bool = True
    starving_ms: int = 120_000
    restarts: bool = True
    models: bool = False
    """Quotas speak of GPU models."""
    alike: bool = False
    """Jobs differ in little but whose they are: who comes before whom is all that matters."""


PROFILES = {
    "storm": Profile("storm"),
    "plain": Profile("plain", starving_ms=1 << 50, restarts=False),
    "calm": Profile(
        "calm",
        exact=True,
        nodes_change=False,
        rules_change=False,
        preemption=False,
        unending=False,
        starving_ms=1 << 50,
        restarts=False,
    ),  # fmt: skip
    "alike": Profile(
        "alike",
        alike=True,
        nodes_change=False,
        rules_change=False,
        starving_ms=1 << 50,
        restarts=False,
    ),  # fmt: skip
    "models": Profile("models", models=True),
    "steady": Profile(
        "steady", nodes_change=False, rules_change=False, starving_ms=1 << 50, restarts=False
    ),
}


class Weather:
    """Draws what happens next; a world says what there is."""

    random: random.Random
    profile: Profile
    now_ms: int
    sequence: int
    jobs: dict[str, Submit]
    waiting: dict[str, None]
    offers: dict[str, Offer]
    down: set[str]
    rules: Rules

    def _nodes_change(self) -> list[Event]:
        name = f"n{self.random.randint(0, 6)}"
        if name in self.offers and name not in self.down and self.random.random() < 0.5:
            self.down.add(name)
            return [NodeDown(name)]
        if name in self.offers and self.random.random() < 0.5:
            self.down.discard(name)
            return [NodeUp(self.offers[name])]
        return [self._node(name)]

    def _node(self, name: str) -> NodeUp:
        pick = self.random.choice
        old = self.offers.get(name)
        offer = Offer(
            name,
            cpus_milli=pick((2000, 4000, 8000)),
            memory_bytes=pick((16, 32)),
            gpus=pick((0, 2, 4)),
            slots=pick((1 << 30, 1 << 30, 6)),
            gpu_model=old.gpu_model if old else pick(("a", "a", "b")),
            rack=old.rack if old else pick(("r1", "r2")),
            block=old.block if old else "b1",
            pool=old.pool if old else pick(("", "", "", "", "other")),
        )
        self.offers[name] = offer
        self.down.discard(name)
        return NodeUp(offer)

    def _submit(self) -> Submit:
        pick = self.random.choice
        self.sequence += 1
        number = self.sequence
        needs = [self._need("worker")]
        if self.random.random() < 0.15:
            needs.append(Need("helper", pick((1, 2)), cpus_milli=pick((500, 1000))))
        expected = [1000, 5000, 20_000, 60_000, 60_000]
        if self.profile.alike:
            return self._alike(number)
        job = Submit(
            f"j{number}",
            tenant=pick(TENANTS),
            needs=tuple(needs),
            order_ms=self.now_ms,
            number=number,
            priority=pick((10, 50, 50, 90)),
            queue=pick(("default", "default", "default", "strict", "loose")),
            kind=pick(("train", "train", "notebook")),
            user=pick(("una", "vic")),
            expected_ms=pick([*expected, None] if self.profile.unending else expected),
            preemptible=self.random.random() < 0.9,
            level=pick(("", "", "", "rack", "host")),
            required=self.random.random() < 0.5,
        )
        self.jobs[job.job_id] = job
        self.waiting[job.job_id] = None
        return job

    def _alike(self, number: int) -> Submit:
        need = Need("worker", self.random.choice((1, 1, 2)), gpus=1)
        job = Submit(
            f"j{number}", self.random.choice(TENANTS[:3]), (need,), self.now_ms, number,
            expected_ms=20_000,
        )  # fmt: skip
        self.jobs[job.job_id] = job
        self.waiting[job.job_id] = None
        return job

    def _need(self, role: str) -> Need:
        pick = self.random.choice
        count = pick((1, 1, 2, 3, 4))
        minimum = pick((0, 0, 0, 1)) if count == 1 else pick((0, 0, 0, 1, 2))
        gpus, milli = pick(((0, 0), (1, 0), (1, 0), (2, 0), (4, 0), (0, 300), (0, 500)))
        return Need(
            role,
            count,
            cpus_milli=pick((0, 500, 1000, 2000)),
            memory_bytes=pick((0, 1, 4, 8)),
            gpus=gpus,
            gpu_milli=milli,
            gpu_models=pick(((), (), (), ("a",), ("a", "b"))) if gpus or milli else (),
            minimum=min(minimum, count),
        )

    def _rules(self) -> Rules:
        pick = self.random.choice
        quotas: tuple[Quota, ...] = ()
        style = pick(("none", "flat", "flat", "nested"))
        if self.profile.models:
            style = "models"
        elif self.profile.alike:
            style = "flat"
        if style != "none":
            quotas = (Quota("forest"), *(self._quota(name, "forest") for name in TENANTS[:3]))
            if style == "nested":
                quotas = (
                    Quota("forest", nominal={"gpus": 1000}), self._quota("grove", "forest"),
                    self._quota("ash", "grove"), self._quota("birch", "grove"),
                    self._quota("cedar", "forest"), self._quota("dogwood", ""),
                )  # fmt: skip
            elif style == "models":
                quotas += (Quota("dogwood", nominal={"gpus:a": 2000, "gpus:b": 1000}),)
        caps: tuple[Cap, ...] = ()
        if self.random.random() < 0.3:
            caps = (
                Cap("ash", {"gpus": 2000}, kind="notebook"),
                Cap("birch", {"cpus": 3000}, user="una"),
            )
        return Rules(
            quotas,
            caps,
            (Queue("default"), Queue("strict", "strict"), Queue("loose", "best-effort")),
            order=pick(("fair", "fair", "fifo")),
            preemption=self.profile.preemption,
            starving_ms=self.profile.starving_ms,
            min_run_ms=pick((0, 2000, 10_000)),
            preemption_cap=3,
            cool_down_ms=pick((0, 5000, 20_000)),
            reservations=pick((1, 4, 16)),
        )

    def _quota(self, name: str, parent: str) -> Quota:
        pick = self.random.choice
        return Quota(
            name,
            parent,
            nominal=pick(({"gpus": 2000}, {"gpus": 4000, "cpus": 6000}, {"gpus": 0})),
            borrow=pick(({}, {}, {"gpus": 2000})),
            lend=pick(({}, {}, {"gpus": 1000})),
            weight_milli=pick((1000, 1000, 2000)),
            reclaim_any=self.random.random() < 0.3,
        )

    def _edited(self) -> Rules:
        if self.random.random() < 0.5:
            queues = tuple(
                replace(queue, paused=self.random.random() < 0.3) for queue in self.rules.queues
            )
            return replace(self.rules, queues=queues)
        return self._rules()
