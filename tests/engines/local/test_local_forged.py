"""Evidence of the local engine that lies: pids and boots are numbers, and numbers come again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local_kit import LocalKit

from windlass.engines.base import Engine, LaunchPlan, Sight
from windlass.engines.spawn import worker_command
from windlass.testing.engines import (
    STUB_WORKER,
    Running,
    end_all,
    kill,
    on_a_loop,
    plan_of,
    sight_of,
    until,
)  # fmt: skip


class TestForged:
    @pytest.fixture
    def engine_kit(self, tmp_path: Path) -> Iterator[LocalKit]:
        kit = LocalKit(tmp_path, worker_command(STUB_WORKER))
        yield kit
        kit.clean()

    @on_a_loop
    async def test_another_boot_id_is_dead_at_once(self, engine_kit: LocalKit) -> None:
        """R-F29, forged: after a reboot the pid may even run again; it is another's."""
        async with Running(engine_kit) as (engine, _):
            plan, directory = await _launched_and_killed(engine_kit, engine)
            _forge(directory / "worker.json", boot_id="another-boot", **_of(os.getpid()))
        async with Running(engine_kit) as (engine, _):
            [seen] = await engine.observe([(plan.attempt_id, plan.nodes[0].node)])
            assert seen.sight is Sight.DEAD and "restarted" in seen.reason
            await end_all(engine, plan)

    @on_a_loop
    async def test_a_recycled_pid_is_neither_adopted_nor_killed(
        self, engine_kit: LocalKit
    ) -> None:
        async with Running(engine_kit) as (engine, _):
            plan, directory = await _launched_and_killed(engine_kit, engine)
        other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        try:
            for name in ("worker.json", "spawn.json"):
                if (directory / name).exists():
                    _forge(directory / name, pid=other.pid)  # but with the start time of the dead
            async with Running(engine_kit) as (engine, _):
                assert await sight_of(engine, plan.attempt_id, plan.nodes[0].node) is Sight.DEAD
                [seen] = await end_all(engine, plan)
                assert seen.sight is Sight.ENDED
            assert other.poll() is None
        finally:
            other.kill()
            other.wait()


async def _launched_and_killed(kit: LocalKit, engine: Engine) -> tuple[LaunchPlan, Path]:
    plan = plan_of(kit, until=str(kit.gate()))
    node = plan.nodes[0].node
    directory = kit.directory(plan.attempt_id, node)
    await engine.launch(plan)
    await until(engine, plan, Sight.ALIVE)
    await kill(kit, plan.attempt_id, node)
    await until(engine, plan, Sight.DEAD)
    return plan, directory


def _of(pid: int) -> dict[str, int]:
    line = Path(f"/proc/{pid}/stat").read_bytes()
    return {"pid": pid, "start_time": int(line.rpartition(b")")[2].split()[19])}


def _forge(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
