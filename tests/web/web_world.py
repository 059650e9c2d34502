"""What the pages are looked at with: a real server in which people did what people do.

Names, values and lines that a user writes hold markup that must never run (`window.ran`).
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from windlass.client import Client, Job
from windlass.testing.people import Caller, People
from windlass.testing.platform import Platform, wait_for

EVIL = "<img src=x onerror=window.ran=1>"
TRAIN = f"""
import math, os, sys, time, windlass
lr = float(sys.argv[1])
windlass.log(step=0, **{{"{EVIL}": 1.0}})
print("{EVIL}")
print("\\x1b[32mepoch 1\\x1b[0m <script>window.ran=1</script>", flush=True)
print("a warning", file=sys.stderr, flush=True)
for step in range(40):
    loss = math.exp(-step * lr) + 0.01 * (step % 3)
    windlass.log(step=step, loss=loss, acc=1 - loss, lr=lr)
    print(f"step {{step}} loss={{loss:.4f}}", flush=True)
folder = os.environ["WINDLASS_OUTPUT_DIR"]
with open(os.path.join(folder, "model.txt"), "w") as file:
    file.write("{EVIL}" * 10)
"""
LIVE = """
import sys, time, windlass, os
step = 0
while not os.path.exists(sys.argv[1]):
    windlass.log(step=step, loss=1 / (1 + step / 50), gpu_hours=step / 3600)
    print("step", step, flush=True)
    step += 1
    time.sleep(0.2)
"""
FAIL = """
print("loading")
def forward(x):
    return x["missing"]
forward({})
"""
TRIAL = """
import sys, windlass
x, y = float(sys.argv[1]), float(sys.argv[2])
for step in range(8):
    windlass.log(step=step, loss=(x - 0.3) ** 2 + y / 10 + 1 / (step + 1))
"""


@dataclass
class World:
    platform: Platform
    people: People
    ann: Caller
    bob: Caller
    jobs: dict[str, Job]
    """done, slower, failed, live, waiting, held, cancelled: in the project `vision`, ann's."""
    private: Job
    """bob's, in a project where ann is not."""
    study: str
    model: str
    gate: Path
    """Touched: the live job ends."""

    def link(self, caller: Caller | None = None) -> str:
        """An address that logs a browser in; the owner's without a caller."""
        made: str = (caller or self.people.owner).ok("POST", "/sessions/links", {})["url"]
        return made

    def fill(self, path: str) -> str:
        """A path of `pages.json` with what is there in place of its words."""
        jobs = ",".join(self.jobs[name].id for name in ("done", "slower", "failed"))
        for word, value in (
            ("job", self.jobs["done"].id), ("study", self.study), ("model", self.model),
            ("project", "vision"), ("jobs", jobs),
        ):  # fmt: skip
            path = path.replace("{" + word + "}", value)
        return path


def make(platform: Platform, folder: Path) -> World:
    """Takes some seconds: the jobs really run."""
    with ExitStack() as stack:
        return _make(platform, folder, stack)


def _make(platform: Platform, folder: Path, stack: ExitStack) -> World:
    people = People(platform)
    for name in ("vision", "private"):
        people.project(name)
    ann = people.user("ann", project="vision", role="maintainer")
    bob = people.user("bob", project="private", role="member")
    people.owner.ok("PUT", "/projects/vision/members/owner", {"role": "maintainer"})
    client = stack.enter_context(ann.client())
    python, gate = sys.executable, platform.gate("end-of-live")
    code = folder / "code"
    code.mkdir()
    for name, text in (("train.py", TRAIN), ("fail.py", FAIL), ("trial.py", TRIAL)):
        (code / name).write_text(text)

    def submit(name: str, words: list[str], **spec: object) -> Job:
        fields = {"run": [python, *words], "name": name, **spec}
        return client.jobs.submit(fields, code=str(code))

    jobs = {
        "done": submit("brisk-otter", ["train.py", "0.1"], params={"lr": 0.1, "note": EVIL}),
        "slower": submit("calm-heron", ["train.py", "0.02"], params={"lr": 0.02}),
        "failed": submit("lost-lynx", ["fail.py"], retry={"times": 0}),
        "live": submit("keen-raven", ["-c", LIVE, str(gate)], params={"lr": 0.3},
                       roles={"worker": {"gpus": 2}}),
        "held": submit("still-heron", ["-c", "pass"], hold=True),
    }  # fmt: skip
    wait_for(lambda: _over(client, jobs, "done", "slower", "failed"), 120, "the jobs ran")
    wait_for(lambda: client.jobs.get(jobs["live"].id).state == "running", 60, "the live one runs")
    jobs["waiting"] = submit(
        "slow-snail", ["-c", "pass"], roles={"worker": {"count": 2, "gpus": 4}}
    )
    jobs["cancelled"] = submit("brief-gnat", ["-c", "import time; time.sleep(600)"])
    client.jobs.stop(jobs["cancelled"].id, now=True)
    (folder / "weights.txt").write_text(EVIL)
    client.models.register_files(
        "digits", folder / "weights.txt", description=EVIL, tags={"made": EVIL}
    )
    client.models.register_run("digits", jobs["done"].id)
    client.models.alias("digits", 2, "champion")
    study = client.studies.create(
        {
            "name": "small-search", "minimize": "loss", "trials": 6, "parallel": 3,
            "sampler": "random", "job": {"run": [python, "trial.py", "${x}", "${y}"]},
            "space": {"x": "float:0..1", "y": [0.1, 0.2]},
        },
        code=str(code),
    )  # fmt: skip
    client.studies.wait(study.id, timeout_seconds=240)
    private = stack.enter_context(bob.client()).jobs.submit(
        {"run": "echo secret", "name": "hidden-ibis"}
    )
    owner = people.owner
    owner.ok("POST", "/usage/prices", {"resource": "gpu", "price": "2.5"})
    return World(platform, people, ann, bob, jobs, private, study.name, "digits", gate)


def _over(client: Client, jobs: dict[str, Job], *names: str) -> bool:
    return all(client.jobs.get(jobs[name].id).done for name in names)
