"""Pages that stay open do not grow: a live job's page and the table of jobs, for ten minutes of
steady news. What counts is the heap after its garbage was collected, and the parts of the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from web_tab import Watched
from web_world import World

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

STEPS = 3000
"""The live job tells five a second: ten minutes."""
ROUNDS = 10
WARM = 3
"""Rounds after which a page has what it needs: code was compiled, buffers have their size."""
MOST_BYTES = 4_000_000
"""What ten minutes of points and lines weigh, with room; a table that keeps every notice, or a
chart that is not let go, takes this in a minute."""
MOST_NODES = 1000


@dataclass(frozen=True)
class Weight:
    heap: int
    nodes: int


class Weighed:
    """A page that is looked at through the browser's own tools."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self._tools = page.context.new_cdp_session(page)
        self._tools.send("HeapProfiler.enable")
        self._tools.send("Performance.enable")

    def weigh(self) -> Weight:
        for _ in range(2):  # what was held by what is collected first goes with the second
            self._tools.send("HeapProfiler.collectGarbage")
        found = self._tools.send("Performance.getMetrics")["metrics"]
        told = {each["name"]: int(each["value"]) for each in found}
        return Weight(told["JSHeapUsedSize"], told["Nodes"])


def grown(weights: list[Weight], warm: int) -> Weight:
    """How much more there is at the end than when the page was warm. The least of some looks: one
    may come while an answer is being read."""
    before, after = weights[warm : warm + 2], weights[-2:]
    return Weight(
        min(each.heap for each in after) - min(each.heap for each in before),
        min(each.nodes for each in after) - min(each.nodes for each in before),
    )


def soak(world: World, table: Watched, job: Any, steps: int, rounds: int) -> list[list[Weight]]:
    """The weights of both pages, round by round, while the table shows that news arrives."""
    weighed = [Weighed(table.page), Weighed(job)]
    found: list[list[Weight]] = [[], []]
    begun = _step(table.page)
    with world.ann.client() as client:
        for number in range(1, rounds + 1):
            client.jobs.submit({"run": "true", "name": f"brief-{number}"})
            table.page.wait_for_function(
                _REACHED, arg=begun + steps * number // rounds, timeout=20 * 60_000
            )
            for each, weights in zip(weighed, found, strict=True):
                weights.append(each.weigh())
    return found


def test_ten_minutes_of_news_leave_no_page_heavier(
    visit: Callable[..., Watched], world: World
) -> None:
    table = visit()
    table.go("/jobs?columns=step,metrics.loss,reason&state=running")
    table.page.wait_for_function(_REACHED, arg=1, timeout=120_000)
    job = table.page.context.new_page()
    job.goto(f"{world.platform.url}/jobs/{world.jobs['live'].id}")
    job.locator('[data-panel="loss"] .u-over').wait_for(timeout=120_000)
    for name, weights in zip(
        ("table", "job"), soak(world, table, job, STEPS, ROUNDS), strict=True
    ):
        more = grown(weights, WARM)
        assert more.heap < MOST_BYTES, (name, weights)
        assert more.nodes < MOST_NODES, (name, weights)
    job.close()


def test_a_page_that_keeps_what_it_hears_is_found_out(
    visit: Callable[..., Watched], world: World
) -> None:
    table = visit()
    table.go("/jobs?columns=step,metrics.loss,reason&state=running")
    table.page.wait_for_function(_REACHED, arg=1, timeout=120_000)
    table.page.evaluate(
        "() => { window.kept = []; const table = document.querySelector('table');"
        " new MutationObserver((seen) => {"
        "   window.kept.push([...Array(50_000)].map((_, at) => ({ at })), seen);"
        " }).observe(table, { subtree: true, childList: true, characterData: true }); }"
    )
    weights, _ = soak(world, table, table.page, 60, 6)
    assert grown(weights, 1).heap > MOST_BYTES, weights


_STEP = "document.querySelector('tr[data-job=\"keen-raven\"] td:nth-child(4)')?.textContent ?? ''"
_REACHED = f"(wanted) => Number({_STEP}.replace(/\\D/g, '')) >= wanted"


def _step(page: Any) -> int:
    return int(page.evaluate(f"() => Number({_STEP}.replace(/\\D/g, ''))"))
