"""Curves as people read them: a zoom asks for finer points and holds while new ones come, Back
undoes it, and what the pointer does the keyboard can."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from web_tab import HEIGHT, NARROW, WIDE, Watched
from web_world import World

from windlass.client import Client, Job
from windlass.testing.platform import wait_for

pytestmark = pytest.mark.slow

SOON = 30_000
MANY = 6000
LOGS = f"""
import time, windlass
for step in range({MANY}):
    windlass.log(step=step, loss=50.0 if step == 3001 else (step % 7) / 7)
for step in range({MANY}, {MANY} + 600):
    time.sleep(0.5)
    windlass.log(step=step, loss=1.0)
"""
"""More points than are sent at once, a single high one among them; then a new one now and then."""


@pytest.fixture
def job(world: World) -> Iterator[Job]:
    with world.ann.client() as client:
        made = client.jobs.submit({"run": [sys.executable, "-c", LOGS], "name": "wide-ibis"})
        try:
            wait_for(lambda: _told(client, made) >= MANY, 60, "all its points are there")
            yield made
        finally:
            client.jobs.stop(made.id, now=True)


def _told(client: Client, job: Job) -> int:
    return client.jobs.get(job.id).step or 0


def test_a_zoom_is_finer_and_holds_while_points_come_and_back_undoes_it(
    visit: Callable[..., Watched], job: Job
) -> None:
    tab = visit()
    tab.complaints.clear()
    page = tab.page
    page.set_viewport_size({"width": WIDE, "height": HEIGHT})
    asked: list[dict[str, list[str]]] = []
    page.on("request", lambda request: _note(asked, request.url))
    tab.go(f"/jobs/{job.id}")
    over = page.locator('[data-panel="loss"] .u-over')
    over.wait_for(timeout=SOON)
    page.wait_for_function(_LIT, timeout=SOON)
    whole = page.url

    box = over.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.4, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, middle, steps=5)
    with page.expect_response(lambda answer: "to=" in answer.url and "/metrics" in answer.url):
        page.mouse.up()
    finer = next(each for each in asked if "to" in each)
    low, high = int(finer["from"][0]), int(finer["to"][0])
    assert 0 < low < 3001 < high < MANY
    shown = parse_qs(urlsplit(page.url).query)["zoom"][0]
    assert [round(float(end)) for end in shown.split("..")] == pytest.approx([low, high], abs=1)

    # New points come; what is zoomed stays.
    page.mouse.move(2, 2)
    last = page.locator('[data-panel="loss"] table')
    page.get_by_role("button", name="Show as table: loss").click()
    points = last.first.locator("tbody tr td").first
    before = points.inner_text()
    for _ in range(2):
        page.wait_for_event("request", lambda request: _is_new(request.url), timeout=SOON)
    assert points.inner_text() == before
    assert parse_qs(urlsplit(page.url).query)["zoom"][0] == shown
    page.get_by_role("button", name="Show as chart: loss").click()

    page.go_back()
    page.wait_for_url(whole, timeout=SOON)
    page.get_by_role("button", name="Reset zoom: loss").wait_for(state="detached", timeout=SOON)
    assert not tab.complaints, tab.complaints


def test_a_curve_is_read_and_zoomed_by_keys(visit: Callable[..., Watched], job: Job) -> None:
    tab = visit()
    tab.go(f"/jobs/{job.id}")
    page = tab.page
    panel = page.locator('[data-panel="loss"]')
    panel.locator(".u-over").wait_for(timeout=SOON)
    page.wait_for_function(_LIT, timeout=SOON)
    picture = panel.get_by_role("img")
    picture.focus()
    page.keyboard.press("ArrowRight")
    read = panel.locator("[aria-live]")
    first = read.inner_text()
    assert first.startswith("wide-ibis, Step 0: ")
    page.keyboard.press("ArrowRight")
    assert read.inner_text().startswith("wide-ibis, Step ") and read.inner_text() != first
    page.keyboard.press("+")
    panel.get_by_role("button", name="Reset zoom: loss").wait_for(timeout=SOON)
    picture.focus()
    page.keyboard.press("0")
    panel.get_by_role("button", name="Reset zoom: loss").wait_for(state="detached", timeout=SOON)


def test_two_fingers_zoom_and_a_single_one_reads(browser: Any, world: World, job: Job) -> None:
    """Real touches, as the browser's own tools make them, on a page as wide as a telephone."""
    context = browser.new_context(
        viewport={"width": NARROW, "height": HEIGHT}, has_touch=True, locale="en-GB"
    )
    context.add_init_script("localStorage.setItem('windlass-project', 'vision')")
    try:
        page = context.new_page()
        page.goto(world.link())
        page.wait_for_url(lambda url: "/login" not in url, timeout=60_000)
        page.goto(f"{world.platform.url}/jobs/{job.id}")
        panel = page.locator('[data-panel="loss"]')
        over = panel.locator(".u-over")
        over.wait_for(timeout=SOON)
        page.wait_for_function(_LIT, timeout=SOON)
        over.scroll_into_view_if_needed()
        whole = page.url
        box = over.bounding_box()
        tools = context.new_cdp_session(page)

        def touch(kind: str, *parts: float) -> None:
            points = [
                {"x": box["x"] + box["width"] * part, "y": box["y"] + box["height"] / 2, "id": at}
                for at, part in enumerate(parts)
            ]
            tools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

        touch("touchStart", 0.4, 0.6)
        for step in range(1, 6):
            touch("touchMove", 0.4 - step * 0.06, 0.6 + step * 0.06)
        assert page.url == whole, "nothing is kept while the fingers move"
        touch("touchEnd")
        page.wait_for_url(lambda url: "zoom=" in url, timeout=SOON)
        low, high = map(float, parse_qs(urlsplit(page.url).query)["zoom"][0].split(".."))
        assert MANY * 0.3 < low < MANY * 0.45 and MANY * 0.55 < high < MANY * 0.7

        touch("touchStart", 0.5)
        for part in (0.55, 0.6, 0.7):  # further than what may still be a tap
            touch("touchMove", part)
        panel.get_by_test_id("tip").wait_for(timeout=SOON)
        touch("touchEnd")
        page.go_back()
        page.wait_for_url(whole, timeout=SOON)
    finally:
        context.close()


def _note(asked: list[dict[str, list[str]]], url: str) -> None:
    if "/metrics?" in url:
        asked.append(parse_qs(urlsplit(url).query))


def _is_new(url: str) -> bool:
    query = parse_qs(urlsplit(url).query)
    return "/metrics?" in url and query.get("by") == ["time"] and "to" not in query


_LIT = """() => {
  const canvas = document.querySelector('[data-panel="loss"] canvas');
  if (!canvas || !canvas.width) return false;
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let coloured = 0;
  for (let at = 0; at < data.length; at += 4) {
    const [r, g, b, there] = data.slice(at, at + 4);
    if (there > 200 && Math.max(r, g, b) - Math.min(r, g, b) > 60) coloured += 1;
  }
  return coloured > 100;
}"""
"""A line is drawn, and not only the axes, which are grey."""
