"""The page where the server lies below a path of a shared name, in a real browser: nothing that it
asks for lies above, and it still moves by itself."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from web_tab import HEIGHT, WIDE, Watched

from windlass.testing.platform import Platform

pytestmark = pytest.mark.slow

BELOW = "/some/windlass"
PAGES = [
    each["path"]
    for each in json.loads((Path(__file__).parents[2] / "web/src/pages.json").read_text())
    if "{" not in each["path"]
]
SAYS = "import windlass; [windlass.log(step=step, loss=1 / (step + 1)) for step in range(50)]"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    home = tmp_path_factory.mktemp("below") / "home"
    with Platform(home, "--base-path", BELOW) as platform:
        yield platform


@pytest.fixture(scope="module")
def tab(browser: Any, platform: Platform) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": WIDE, "height": HEIGHT}, locale="en-GB")
    page = context.new_page()
    watched = Watched(page, platform.url + BELOW)
    link = platform.client.http.call("POST", "/sessions/links", body={}, repeatable=False)["url"]
    page.goto(link)
    page.wait_for_url(re.compile(re.escape(BELOW)), timeout=60_000)
    page.wait_for_url(lambda url: "/login" not in url, timeout=60_000)
    yield watched
    context.close()


def test_every_page_asks_for_nothing_above_its_path(tab: Watched) -> None:
    tab.complaints.clear()
    for path in PAGES:
        tab.go(path)
        assert tab.complaints == [], path
        found = tab.page.eval_on_selector_all(
            "a[href]", "links => links.map((link) => new URL(link.href).pathname)"
        )
        assert all(each.startswith(BELOW) for each in found), (path, found)


def test_a_job_is_submitted_and_its_page_moves_by_itself(tab: Watched, platform: Platform) -> None:
    page = tab.page
    tab.go("/jobs/new?door=command")
    page.locator("[data-field='run']").fill(f"{sys.executable} -c '{SAYS}'")
    page.wait_for_selector("[data-verdict='now']")
    tab.complaints.clear()  # of what was asked before the command was whole
    page.get_by_test_id("submit").click()
    page.wait_for_url(re.compile(BELOW + r"/jobs/[0-9a-f]{32}$"))
    page.get_by_text("succeeded", exact=True).first.wait_for(timeout=120_000)
    page.locator('[data-panel="loss"] .u-over').wait_for(timeout=60_000)
    page.get_by_role("link", name="Jobs", exact=True).first.click()
    page.locator("tbody tr[data-job]").first.wait_for()
    assert page.url == platform.url + BELOW + "/jobs"
    assert tab.complaints == []
