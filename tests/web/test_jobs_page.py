"""Journeys on Jobs and New job, in a real browser: submit, see it live, stop it; a filter in the
address that somebody else opens; everything by the keyboard alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from web_tab import NARROW, Watched
from web_world import World

from windlass.testing.repositories import Repository

pytestmark = pytest.mark.slow
Visit = Callable[..., Watched]
A_JOB = re.compile(r"/jobs/[0-9a-f]{32}$")
FOREVER = """import time
for step in range(1, 100000):
    print(f"step={step} loss={1 / step:.5f}", flush=True)
    time.sleep(0.1)
"""


@pytest.fixture
def tab(visit: Visit, world: World) -> Iterator[Watched]:
    """Ann's, who is a maintainer of the project."""
    found = visit("light", "en", world.ann)
    found.complaints.clear()
    yield found
    found.page.set_viewport_size({"width": 1280, "height": 900})


def row(tab: Watched, name: str) -> Any:
    return tab.page.locator(f"tbody tr[data-job='{name}']")


def names(tab: Watched) -> list[str]:
    rows: list[str] = tab.page.eval_on_selector_all(
        "tbody tr[data-job]", "rows => rows.map((row) => row.dataset.job)"
    )
    return rows


def test_a_script_written_in_the_page_runs_is_seen_live_and_is_stopped(
    tab: Watched, world: World
) -> None:
    page, name = tab.page, f"written-{uuid4().hex[:8]}"
    tab.go("/jobs/new")
    page.get_by_label("Script", exact=True).last.fill(FOREVER)
    page.get_by_role("textbox", name="Name", exact=True).fill(name)
    page.get_by_role("textbox", name="Command").fill("python3 train.py")
    page.wait_for_selector("[data-verdict='now']")
    page.get_by_test_id("submit").click()
    page.wait_for_url(A_JOB)
    job = page.url.rpartition("/")[2]
    with world.ann.client() as client:
        assert client.jobs.get(job).name == name

        tab.go(f"/jobs?filter=name+%3D+{name}&columns=step,metrics.loss&curve=loss")
        row(tab, name).get_by_text("running", exact=True).wait_for(timeout=60_000)
        cell = row(tab, name).locator("td").last
        page.wait_for_function("(cell) => Number(cell.textContent) > 0", arg=cell.element_handle())
        before = float(cell.inner_text())
        page.wait_for_function(
            "([cell, before]) => Number(cell.textContent) < before",
            arg=[cell.element_handle(), before],
        )  # it moves by itself: nothing was asked for
        row(tab, name).get_by_role("img", name=re.compile("loss")).wait_for()

        row(tab, name).get_by_role("checkbox").check()
        page.get_by_role("button", name="Stop", exact=True).click()
        page.get_by_role("button", name="Stop them").click()
        page.get_by_text("What the server answered").wait_for()
        row(tab, name).get_by_text("cancelled", exact=True).wait_for(timeout=60_000)
        assert client.jobs.get(job).state == "cancelled"
        assert tab.complaints == []

        page.get_by_role("button", name="Remove", exact=True).click()
        page.get_by_role("button", name="Remove for good").click()
        page.get_by_role("heading", name="No job is like that").wait_for()
    assert tab.complaints == []


def test_form_and_file_edit_each_other_and_errors_stand_at_their_field(tab: Watched) -> None:
    page = tab.page
    tab.go("/jobs/new?door=command")
    page.get_by_text("YAML", exact=True).first.click()
    page.get_by_label("Job file").fill("# kept\nrun: sleep 1\nroles: {worker: {gpus: 1}}\n")
    page.get_by_text("Form", exact=True).click()
    gpus = page.locator("[data-field='roles.worker.gpus']")
    assert gpus.input_value() == "1"
    page.wait_for_selector("[data-verdict='now']")
    gpus.fill("-3")
    wrong = page.locator(".mantine-InputWrapper-root", has=gpus).get_by_text("-3")
    wrong.wait_for()
    gpus.fill("3000")
    page.get_by_text("It can never start").wait_for()
    gpus.fill("4")
    page.locator("[data-field='roles.worker.count']").fill("2")
    page.get_by_text("It would wait").wait_for()  # the live job has two of the eight
    page.get_by_text("YAML", exact=True).first.click()
    text = page.get_by_label("Job file").input_value()
    assert "# kept" in text and "gpus: 4" in text and "count: 2" in text
    page.get_by_label("Job file").fill("run: [sleep\n")
    page.get_by_text(re.compile(r"Line \d")).first.wait_for()


def test_an_earlier_job_is_the_beginning_of_a_new_one(tab: Watched, world: World) -> None:
    page = tab.page
    tab.go(f"/jobs/new?from={world.jobs['slower'].id}")
    command = page.get_by_role("textbox", name="Command")
    page.wait_for_function("(box) => box.value.includes('0.02')", arg=command.element_handle())
    name = f"again-{uuid4().hex[:8]}"
    page.get_by_role("textbox", name="Name", exact=True).fill(name)
    command.fill(command.input_value().replace("0.02", "0.5"))
    page.get_by_role("textbox", name="Parameters").fill("lr=0.5")
    page.wait_for_selector("[data-verdict='now']")
    page.get_by_test_id("submit").click()
    page.wait_for_url(A_JOB)
    with world.ann.client() as client:
        made = client.jobs.detail(page.url.rpartition("/")[2])
        old = client.jobs.detail(world.jobs["slower"].id)
    assert made["name"] == name and made["spec"]["run"][-1] == "0.5"
    assert made["spec"]["params"] == {"lr": 0.5}
    assert made["spec"]["code"]["bundle"] == old["spec"]["code"]["bundle"]
    assert tab.complaints == []


def test_a_chinese_page_says_in_chinese_why_a_job_waits(visit: Visit) -> None:
    tab = visit("light", "zh")
    tab.go("/jobs?state=queued")
    said = row(tab, "slow-snail").get_by_text("缺少")
    said.wait_for(timeout=60_000)
    assert "GPU" in said.inner_text() and "needs" not in said.inner_text()
    tab.go("/jobs/slow-snail")
    tab.page.get_by_test_id("why").get_by_text("缺少").wait_for(timeout=60_000)


def test_a_filter_is_in_the_address_and_back_undoes_it(
    tab: Watched, visit: Visit, world: World
) -> None:
    page = tab.page
    tab.go("/jobs")
    everything = names(tab)
    assert {"brisk-otter", "calm-heron", "lost-lynx"} <= set(everything)
    page.get_by_role("combobox", name="Filter").fill("params.lr < 0.2")
    page.keyboard.press("Enter")
    row(tab, "lost-lynx").wait_for(state="detached")
    assert names(tab) == ["calm-heron", "brisk-otter"]
    page.get_by_role("button", name="Columns").click()
    page.get_by_label("min.loss").check()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="min loss").click()
    page.wait_for_function("() => document.querySelector('th[aria-sort=descending]')")
    shared = page.url.removeprefix(world.platform.url)

    other = visit()  # the owner, in a browser of its own
    other.go(shared)
    assert names(other) == names(tab) and set(names(tab)) == {"calm-heron", "brisk-otter"}
    assert other.page.get_by_role("button", name="min loss").is_visible()
    with world.ann.client() as client:
        listed = client.jobs.list(filter="params.lr < 0.2", sort="-min.loss")
    assert [job.name for job in listed] == names(tab), "the same as the CLI has it"

    page.go_back()
    page.go_back()
    page.go_back()
    row(tab, "lost-lynx").wait_for()
    assert names(tab) == everything
    assert tab.complaints == [] and other.complaints == []


def test_a_wrong_condition_says_what_is_wrong_and_is_taken_out(tab: Watched) -> None:
    page = tab.page
    tab.go("/jobs")
    page.get_by_role("combobox", name="Filter").fill("metrics.loss <")
    page.keyboard.press("Enter")
    page.get_by_text(re.compile("a value is missing")).wait_for()
    page.get_by_role("button", name="Take out: metrics.loss <").click()
    page.get_by_text(re.compile("a value is missing")).wait_for(state="detached")
    assert len(names(tab)) > 3


def test_states_have_their_counts_and_a_view_is_kept_and_opened(
    tab: Watched, world: World
) -> None:
    page, kept = tab.page, f"broken {uuid4().hex[:6]}"
    tab.go("/jobs")
    failed = page.get_by_role("button", name=re.compile(r"^failed"))
    with world.ann.client() as client:
        assert failed.inner_text().split()[1] == str(len(client.jobs.list(state="failed")))
    failed.click()
    row(tab, "brisk-otter").wait_for(state="detached")
    assert "lost-lynx" in names(tab)
    page.get_by_role("button", name="Views").click()
    page.get_by_label("Save this view").fill(kept)
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("link", name=kept).wait_for()
    tab.go("/jobs")
    page.get_by_role("button", name="Views").click()
    page.get_by_role("link", name=kept).click()
    row(tab, "brisk-otter").wait_for(state="detached")
    assert "state=failed" in page.url and "lost-lynx" in names(tab)
    page.get_by_role("button", name="Views").click()
    page.get_by_role("button", name=f"Remove the view {kept}").click()
    page.get_by_role("link", name=kept).wait_for(state="detached")
    assert tab.complaints == []


def test_the_keyboard_alone_filters_chooses_compares_and_opens(tab: Watched, world: World) -> None:
    page = tab.page
    tab.go("/jobs")
    page.keyboard.press("/")
    page.keyboard.type("params.lr < 0.2")
    page.keyboard.press("Enter")
    row(tab, "lost-lynx").wait_for(state="detached")
    page.keyboard.press("Escape")
    for key in ("j", "x", "j", "x", "k"):
        page.keyboard.press(key)
    page.get_by_text("2 chosen").wait_for()
    assert page.evaluate("document.activeElement.textContent") == "calm-heron"
    page.keyboard.press("c")
    page.wait_for_url(re.compile(r"/compare\?jobs="))
    asked = page.evaluate("new URLSearchParams(location.search).get('jobs')").split(",")
    assert {world.jobs[name].id[:12] for name in ("done", "slower")} == set(asked)
    page.go_back()
    page.get_by_text("2 chosen").wait_for()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(A_JOB)
    page.keyboard.press("n")
    page.wait_for_url(re.compile("/jobs/new"))


def test_what_one_may_not_do_is_not_offered(world: World, visit: Visit) -> None:
    eve = world.people.user("eve", project="vision", role="viewer")
    tab = visit("light", "en", eve)
    tab.go("/jobs")
    assert "brisk-otter" in names(tab)
    row(tab, "brisk-otter").get_by_role("checkbox").check()
    tab.page.get_by_role("button", name="Compare").wait_for()
    assert tab.page.get_by_role("button", name="Stop", exact=True).count() == 0
    tab.go("/jobs/new")
    tab.page.get_by_text("not submit to it").wait_for()
    assert tab.complaints == []


def test_home_tells_what_runs_what_waits_and_what_failed(tab: Watched) -> None:
    page = tab.page
    for width in (1280, NARROW):
        page.set_viewport_size({"width": width, "height": 900})
        tab.go("/")
        running = page.locator("section[aria-label='Running'] li[data-job='keen-raven']")
        running.get_by_role("img", name=re.compile("loss")).wait_for()
        running.get_by_text(re.compile("so far")).wait_for()  # two GPUs have a price
        waiting = page.locator("section[aria-label='Waiting'] li[data-job='slow-snail']")
        waiting.get_by_text(re.compile("GPU")).wait_for()
        failed = page.locator("section[aria-label='Failed lately'] li[data-job='lost-lynx']")
        failed.get_by_text(re.compile("KeyError")).wait_for()
        page.get_by_text("Free now").wait_for()
    assert tab.complaints == []


def test_the_first_visit_runs_something_with_one_click(world: World, visit: Visit) -> None:
    world.people.project("fresh")
    kim = world.people.user("kim", project="fresh", role="member")
    tab = visit("light", "en", kim)
    tab.settle()
    tab.page.locator("main h1").first.wait_for()  # it looked for the others' project in vain
    tab.page.evaluate("localStorage.setItem('windlass-project', 'fresh')")
    tab.complaints.clear()
    tab.go("/")
    tab.page.get_by_text("windlass demo", exact=True).wait_for()
    tab.page.get_by_role("button", name="Run it now").click()
    tab.page.wait_for_url(A_JOB)
    with kim.client() as client:
        made = client.jobs.wait(tab.page.url.rpartition("/")[2], timeout_seconds=120)
        told = client.jobs.metrics(made.id)
    assert made.state == "succeeded"
    assert "loss" in str(told)
    assert tab.complaints == []


@pytest.mark.parametrize(("theme", "language"), [("light", "en"), ("dark", "zh")])
def test_code_of_a_repository_runs_and_its_commit_is_shown(
    visit: Visit, world: World, tmp_path: Path, screens: Path, theme: str, language: str
) -> None:
    tab = visit(theme, language, world.ann)
    tab.complaints.clear()
    page, name = tab.page, f"from-git-{uuid4().hex[:8]}"
    english = language == "en"
    with Repository(tmp_path / "code") as repository:
        commit = repository.commit({"train.py": "print('hello from git', flush=True)"})
        tab.go("/jobs/new?door=git")
        page.locator("[data-field='run']").fill("python3 train.py")
        page.get_by_text("Give a repository" if english else "请填写代码仓库").wait_for()
        url, ref = page.locator("[data-field='code.git']"), page.locator("[data-field='code.ref']")
        url.fill("ext::date")
        wrong = page.locator(".mantine-InputWrapper-root", has=url)
        wrong.get_by_text("begins with https://").wait_for()
        url.fill(repository.url)
        ref.fill("main")
        page.locator("[data-field='name']").fill(name)
        page.wait_for_selector("[data-verdict='now']")
        page.get_by_text(f"--git '{repository.url}#main'").wait_for()
        tab.complaints.clear()  # of the address that was refused, as it should be
        page.screenshot(path=screens / f"new-job-git-{theme}-{language}.png", full_page=True)
        assert repository.asked == [], "a look from the page opens no address"
        page.get_by_test_id("submit").click()
        page.wait_for_url(A_JOB)
        job = page.url.rpartition("/")[2]
        with world.ann.client() as client:
            assert client.jobs.wait(job, timeout_seconds=120).state == "succeeded"
        tab.go(f"/jobs/{job}?tab=config")
        shown = page.get_by_test_id("repository")
        shown.get_by_text(commit).wait_for()
        assert repository.url in shown.inner_text()
        shown.scroll_into_view_if_needed()
        page.screenshot(path=screens / f"job-git-{theme}-{language}.png", full_page=True)

        tab.go(f"/jobs/new?from={job}")
        page.get_by_text(commit[:12]).first.wait_for()
        assert page.locator("[data-field='code.git']").input_value() == repository.url
        page.locator("[data-field='code.ref']").fill("other")  # another branch: not that commit
        page.get_by_text(commit[:12]).first.wait_for(state="detached")
    assert tab.complaints == []
