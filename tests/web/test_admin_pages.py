"""Journeys of who looks after the others: users, projects, queues, budgets, tokens, the audit."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import expect
from web_tab import Watched
from web_world import World

from windlass.testing.platform import wait_for

pytestmark = pytest.mark.slow
Visit = Callable[..., Watched]


def test_an_administrator_makes_a_project_and_a_user_who_logs_in(
    visit: Visit, world: World, browser: Any
):
    tab = visit()
    page = tab.page
    tab.go("/admin?tab=projects")
    page.get_by_role("button", name="New project").click()
    form = page.get_by_role("form", name="New project")
    form.get_by_label("Name").fill("Not A Name")
    form.get_by_role("button", name="Make it").click()
    expect(form.get_by_text(re.compile("Not A Name")).first).to_be_visible()
    form.get_by_label("Name").fill("speech")
    expect(form.get_by_text("windlass project create speech")).to_be_visible()
    form.get_by_role("button", name="Make it").click()
    expect(page.locator("[data-project=speech]")).to_be_visible()

    page.get_by_role("tab", name="Users").click()
    page.get_by_role("button", name="New user").click()
    form = page.get_by_role("form", name="New user")
    form.get_by_label("Name").fill("dora")
    form.get_by_label("In project", exact=True).fill("speech")
    page.get_by_role("option", name="speech").click()
    form.get_by_role("button", name="Make it").click()
    made = page.locator("[data-user=dora]")
    expect(made).to_contain_text("speech (member)")
    page.get_by_role("button", name="Password link").click()
    link = page.get_by_test_id("once").locator("code").inner_text()
    assert "/login#password=" in link

    context = browser.new_context()
    try:
        hers = context.new_page()
        hers.goto(link)
        hers.locator("#new").fill("correct horse battery")
        hers.locator("#again").fill("correct horse battery")
        hers.get_by_role("button", name="Set it").click()
        hers.wait_for_url(lambda url: "/login" not in url)
        hers.goto(f"{world.platform.url}/jobs")
        expect(hers.get_by_role("button", name="Logged in as dora")).to_be_visible()
        expect(hers.get_by_text("keen-raven")).to_have_count(0)
    finally:
        context.close()


def test_what_others_change_is_there_without_a_question(visit: Visit, world: World) -> None:
    """Users, secrets, nodes and queues are in the feed: pages that stay open follow."""
    tab = visit()
    page, owner = tab.page, world.people.owner
    asked: list[str] = []
    tab.go("/admin?tab=users")
    page.wait_for_selector("[data-user=ann]")
    page.on("request", lambda request: asked.append(request.url))
    owner.ok("POST", "/users", {"name": "erin"})
    expect(page.locator("[data-user=erin]")).to_be_visible()
    assert len([url for url in asked if url.endswith("/api/v1/users")]) == 1
    owner.ok("DELETE", "/users/erin")
    expect(page.locator("[data-user=erin]")).to_have_count(0)

    tab.go("/queues")
    page.get_by_role("heading", level=1).wait_for()
    owner.ok("PUT", "/queues/overnight", {})
    expect(page.get_by_text("overnight").first).to_be_visible()
    owner.ok("DELETE", "/queues/overnight")
    expect(page.get_by_text("overnight")).to_have_count(0)


def test_a_second_user_sees_nothing_of_the_first(visit: Visit, world: World):
    page = visit(caller=world.bob).page
    page.goto(f"{world.platform.url}/nodes")
    expect(page.get_by_text("a job of another project").first).to_be_visible()
    page.goto(f"{world.platform.url}/queues")
    expect(page.get_by_role("button", name="New queue")).to_have_count(0)
    page.goto(f"{world.platform.url}/usage?by=user")
    page.wait_for_selector("main h1")
    page.goto(f"{world.platform.url}/jobs/{world.jobs['live'].id}")
    expect(page.get_by_text(re.compile("no job")).first).to_be_visible()
    page.goto(f"{world.platform.url}/admin")
    expect(page.get_by_role("tab", name="Projects")).to_be_visible()
    expect(page.get_by_role("tab", name="Users")).to_have_count(0)
    expect(page.locator("[data-project=private]")).to_be_visible()
    expect(page.locator("[data-project=vision]")).to_have_count(0)
    for path in ("/nodes", "/queues", "/jobs", "/admin"):
        page.goto(world.platform.url + path)
        page.wait_for_selector("main h1")
        shown = page.locator("body").inner_text()
        assert not re.search("keen-raven|slow-snail|brisk-otter", shown)


def test_a_waiting_job_says_why_and_is_moved_to_the_front(visit: Visit, world: World):
    world.people.owner.ok("PUT", "/queues/line", {"policy": "strict"})
    with world.ann.client() as client:
        for name in ("wait-one", "wait-two", "wait-three"):
            client.jobs.submit(
                {
                    "run": [sys.executable, "-c", "pass"],
                    "name": name,
                    "queue": {"name": "line"},
                    "roles": {"worker": {"count": 2, "gpus": 4}},
                }
            )
    tab = visit()
    page = tab.page
    tab.go("/queues?queue=line")
    names = page.locator("tr[data-job]")
    expect(names).to_have_count(3)
    expect(names.nth(0)).to_contain_text("needs 8 GPUs")
    expect(names.nth(0)).to_contain_text("missing")
    tab.complaints.clear()
    page.get_by_role("button", name="To the front: wait-three").click()
    expect(names.nth(0)).to_contain_text("wait-three")
    page.get_by_role("button", name="One down: wait-three").click()
    expect(names.nth(1)).to_contain_text("wait-three")

    def order() -> list[str]:
        line = world.people.owner.ok("GET", "/queues/line/jobs")
        return [each["name"] for each in line["waiting"]]

    wait_for(lambda: order() == ["wait-one", "wait-three", "wait-two"], 20, "it was moved")
    tab.go("/queues?queue=line")
    names.nth(2).drag_to(names.nth(0))
    expect(names.nth(0)).to_contain_text("wait-two")
    wait_for(lambda: order() == ["wait-two", "wait-one", "wait-three"], 20, "it was dragged")
    assert tab.complaints == []

    # what another does is seen without a reload
    world.people.owner.ok("PUT", "/queues/line", {"policy": "strict", "paused": True})
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    assert world.people.owner.ok("GET", "/queues/line")["paused"] is False
    with world.ann.client() as client:
        for name in ("wait-one", "wait-two", "wait-three"):
            client.jobs.stop(name, now=True)


def test_a_budget_is_set_changed_and_taken_away(visit: Visit, world: World):
    tab = visit()
    page = tab.page
    tab.go("/usage?tab=budgets")
    page.get_by_role("button", name="Set a budget").click()
    page.get_by_label("Name").fill("private")
    page.get_by_label("Amount").fill("lots")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text(re.compile("an amount of money"))).to_be_visible()
    page.get_by_label("Amount").fill("1000")
    expect(page.get_by_text("windlass usage budget set private 1000")).to_be_visible()
    page.get_by_role("button", name="Save").click()
    budget = page.locator("[data-budget=private]")
    expect(budget).to_contain_text("1,000.00 USD")
    page.get_by_role("button", name="Edit: private").click()
    page.get_by_label("Amount").fill("2000")
    page.get_by_role("button", name="Save").click()
    expect(budget).to_contain_text("2,000.00 USD")
    page.get_by_role("button", name="Remove: private").click()
    page.get_by_role("button", name="Yes, do it").click()
    expect(budget).to_have_count(0)
    found = world.people.owner.ok("GET", "/usage/budgets")["items"]
    assert "private" not in [each["name"] for each in found]


def test_a_token_is_shown_once(visit: Visit, world: World):
    tab = visit()
    page = tab.page
    tab.go("/settings")
    page.get_by_role("button", name="New token").click()
    page.get_by_label("Name").fill("grafana")
    spelled = "windlass token create grafana --scope read --expires 30d"
    expect(page.get_by_text(spelled)).to_be_visible()
    page.get_by_role("button", name="Make it").click()
    token = page.get_by_test_id("once").locator("code").inner_text()
    asked = Request(
        f"{world.platform.url}/api/v1/whoami", headers={"Authorization": f"Bearer {token}"}
    )
    with urlopen(asked) as answer:
        assert answer.status == 200
    tab.go("/settings")
    expect(page.locator("[data-token=grafana]")).to_be_visible()
    assert token not in page.content()
    page.get_by_role("button", name="Revoke: grafana").click()
    page.get_by_role("button", name="Yes, do it").click()
    expect(page.locator("[data-token=grafana]")).to_have_count(0)


def test_the_browser_itself_checks_the_audit_log(visit: Visit, world: World):
    tab = visit()
    page = tab.page
    tab.go("/audit?action=jobs.submit")
    expect(page.locator("[data-action='jobs.submit']").first).to_be_visible()
    expect(page.locator("[data-action='sessions.make-link']")).to_have_count(0)
    page.get_by_role("button", name="Check the chain").click()
    expect(page.get_by_test_id("chain-check")).to_contain_text(re.compile(r"All \d+ rows fit"))
    page.route(
        "**/api/v1/audit/export*",
        lambda route: route.fulfill(body=_forged(route.fetch().text()), status=200),
    )
    page.get_by_role("button", name="Check the chain").click()
    expect(page.get_by_test_id("chain-check")).to_contain_text("Row 2 does not fit")
    page.unroute("**/api/v1/audit/export*")


def _forged(export: str) -> str:
    first, second, *rest = export.splitlines(keepends=True)
    return "".join([first, second.replace('"outcome": "ok"', '"outcome": "no"'), *rest])


def test_what_cannot_be_taken_back_wants_the_name(visit: Visit, world: World):
    world.people.project("short-lived")
    tab = visit()
    page = tab.page
    tab.go("/admin?tab=projects&open=short-lived")
    page.get_by_role("button", name="Remove the project").click()
    form = page.get_by_role("form", name="Remove the project")
    remove = form.get_by_role("button", name="Remove the project")
    expect(remove).to_be_disabled()
    form.get_by_label("Type short-lived to confirm").fill("short-live")
    expect(remove).to_be_disabled()
    form.get_by_label("Type short-lived to confirm").fill("short-lived")
    remove.click()
    expect(page.locator("[data-project=short-lived]")).to_have_count(0)
