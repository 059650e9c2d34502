"""Jobs beside each other, a study's trials, a model's aliases: as people use these pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect
from web_tab import HEIGHT, WIDE, Watched
from web_world import EVIL, World

from windlass.client import Client
from windlass.testing.platform import wait_for

pytestmark = pytest.mark.slow

SOON = 20_000


@pytest.fixture
def client(world: World) -> Iterator[Client]:
    with world.ann.client() as found:
        yield found


def opened(visit: Callable[..., Watched], path: str) -> Watched:
    tab = visit("light", "en")
    tab.page.set_viewport_size({"width": WIDE, "height": HEIGHT})
    tab.complaints.clear()
    tab.go(path)
    return tab


def address(page: Any) -> dict[str, str]:
    """The choices that the address holds."""
    return {name: words[0] for name, words in parse_qs(urlsplit(page.url).query).items()}


def differences(page: Any) -> dict[str, list[str]]:
    """The table of differences: by the name of a row, the text of its cells; of a parameter and
    a metric with one name, the parameter."""
    rows: list[list[str]] = page.evaluate(
        "() => [...document.querySelectorAll('[data-testid=differences] tr')].map((row) =>"
        " [...row.children].map((cell) => cell.innerText.trim()))"
    )
    return {row[0]: row[1:] for row in reversed(rows)}


def alias_box(page: Any) -> Any:
    return page.get_by_label("Alias", exact=True).and_(page.locator("input"))


def trials(page: Any) -> list[int]:
    """The numbers of the trials in the table, from the top."""
    found: list[int] = page.evaluate(
        "() => [...document.querySelectorAll('[data-testid=trials] tbody tr')]"
        ".map((row) => parseInt(row.firstElementChild.innerText))"
    )
    return found


def test_three_jobs_are_compared(visit: Callable[..., Watched], world: World) -> None:
    done, slower, live = (world.jobs[name] for name in ("done", "slower", "live"))
    tab = opened(visit, f"/compare?jobs={done.id},{slower.id},{live.id}")
    page = tab.page
    chart = page.get_by_role("figure", name="loss", exact=True)
    chart.wait_for(timeout=SOON)
    said = chart.locator("p.seen-only-by-readers")
    expect(said).to_contain_text("3 lines", timeout=SOON)
    # It moves by itself: the one that runs logs on, and nobody loads the page anew.
    expect(said).not_to_have_text(said.text_content() or "", timeout=SOON)

    page.get_by_role("tab", name="Differences").click()
    page.get_by_test_id("differences").wait_for(timeout=SOON)
    told = differences(page)
    assert told["lr"][:2] == ["0.1", "0.02"]
    assert told["note"] == [EVIL, "–", "–"]
    assert "queue" not in told  # the same everywhere
    faster, worse = told["loss (min)"][:2]
    assert "★" not in worse and "+" in worse, told["loss (min)"]
    page.get_by_label("Also rows that are the same").check()
    page.wait_for_function("() => document.body.innerText.includes('queue')")
    assert address(page)["all"] == "1"

    # A baseline: it stands first, changes are from it; Back undoes it.
    page.get_by_role("button", name=f"Make {slower.name} the baseline").click()
    page.wait_for_function(
        "(name) => document.querySelectorAll('[data-testid=differences] thead th')[0]"
        ".innerText.startsWith(name)",
        arg=slower.name, timeout=SOON,
    )  # fmt: skip
    assert address(page)["base"] == slower.id
    mine = differences(page)["loss (min)"]
    assert mine[0] == worse.split()[0] and mine[1].startswith(faster.split()[0])
    assert "-" in mine[1], mine
    page.go_back()
    page.wait_for_function("() => !new URL(location.href).searchParams.has('base')")

    # As text: what the menu copies is what the table shows.
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy", exact=True).click()
    page.get_by_role("menuitem", name="CLI line").click()
    page.get_by_role("button", name="Copied").wait_for(timeout=SOON)
    line = page.evaluate("() => navigator.clipboard.readText()")
    assert line == f"windlass compare {done.name} {slower.name} {live.name} --all"

    page.get_by_role("button", name=f"Take {live.name} out").click()
    page.wait_for_function("(id) => !location.href.includes(id)", arg=live.id)
    assert address(page)["jobs"] == f"{done.id},{slower.id}"
    # An address is the view: opened anew it is the same, by names as well.
    tab.go(f"/compare?jobs={done.name},{slower.name}&tab=bars&metric=loss&take=min")
    bars = page.get_by_role("figure", name="loss, smallest")
    bars.wait_for(timeout=SOON)
    assert f"{done.name}: {float(faster.split()[0]):.4g}" in (bars.text_content() or "")
    assert tab.complaints == []
    assert page.evaluate("() => window.ran ?? null") is None


def test_jobs_are_compared_by_groups_and_by_a_filter(
    visit: Callable[..., Watched], world: World
) -> None:
    tab = opened(visit, "/compare")
    page = tab.page
    page.get_by_role("textbox", name="Or all that").fill("params.lr < 0.2 and name like '%otter%'")
    page.get_by_role("button", name="Find").click()
    page.get_by_role("link", name="brisk-otter").wait_for(timeout=SOON)
    jobs = page.get_by_role("list", name="1 jobs")
    assert jobs.get_by_role("link").all_inner_texts() == ["brisk-otter"]
    assert address(page)["where"] == "params.lr < 0.2 and name like '%otter%'"
    # One more, by a few letters of its name.
    page.get_by_role("combobox", name="Add a job").click()
    page.get_by_role("combobox", name="Add a job").fill("calm")
    page.get_by_role("option", name="calm-heron").click()
    page.get_by_role("link", name="calm-heron").wait_for(timeout=SOON)
    page.get_by_role("combobox", name="Group by").click()
    page.get_by_role("option", name="lr", exact=True).click()
    chart = page.get_by_role("figure", name="loss", exact=True)
    chart.wait_for(timeout=SOON)
    expect(chart).to_contain_text("lr = 0.02 (1)", timeout=SOON)
    assert address(page)["group"] == "lr"
    assert tab.complaints == []


def test_a_wrong_filter_is_said_in_the_servers_words(visit: Callable[..., Watched]) -> None:
    tab = opened(visit, "/compare?where=metrics.loss+is+small")
    alert = tab.page.get_by_role("alert")
    alert.wait_for(timeout=SOON)
    assert "filter" in alert.inner_text()


def test_a_study_is_brushed(visit: Callable[..., Watched], world: World, client: Client) -> None:
    tab = opened(visit, f"/studies/{world.study}")
    page = tab.page
    page.get_by_test_id("trials").wait_for(timeout=SOON)
    all_ = client.studies.trials(world.study)
    assert sorted(trials(page)) == [each["number"] for each in all_]
    best = client.studies.best(world.study)[0]["number"]
    marked = page.locator("[data-testid=trials] tbody tr", has_text="Best")
    assert marked.count() == 1
    assert marked.first.inner_text().split()[0] == str(best)  # the number, then the word

    # Drawn along the axis of x from its end to its middle: the upper half of the trials' values.
    picture = page.get_by_role("figure", name="Parameters and values of all trials")
    picture.scroll_into_view_if_needed()
    axis = picture.locator("svg[role=img] text", has_text="x").first
    top, height = axis.bounding_box(), picture.locator("svg[role=img]").bounding_box()
    x, first = top["x"] + top["width"] / 2, height["y"] + 34
    last = height["y"] + height["height"] - 14
    page.mouse.move(x, first - 5)
    page.mouse.down()
    page.mouse.move(x, (first + last) / 2, steps=8)
    page.mouse.up()
    page.wait_for_function("() => new URL(location.href).searchParams.has('b.x')", timeout=SOON)
    low = float(address(page)["b.x"].split("..")[0])
    within = {each["number"] for each in all_ if each["params"]["x"] >= low}
    assert 0 < len(within) < len(all_), (low, all_)
    assert set(trials(page)) == within
    shown = page.url
    tab.go(shown.removeprefix(tab.origin))
    page.get_by_test_id("trials").wait_for(timeout=SOON)
    assert set(trials(page)) == within
    page.get_by_role("button", name="Show all").click()
    page.wait_for_function("() => !new URL(location.href).searchParams.has('b.x')")
    assert len(trials(page)) == len(all_)

    # Sorted by what was measured, the best is on top; and so the address says.
    page.get_by_role("button", name="loss", exact=True).click()
    page.wait_for_function("() => new URL(location.href).searchParams.get('sort') === 'value.0'")
    assert trials(page)[0] == best
    assert tab.complaints == []


def test_a_study_is_made_of_a_job(
    visit: Callable[..., Watched], world: World, client: Client
) -> None:
    tab = opened(visit, f"/studies?new={world.jobs['slower'].id}")
    page = tab.page
    ranges = page.get_by_label("Range: lr")
    expect(ranges).to_have_value("log:0.002..0.2", timeout=SOON)
    page.get_by_label("Name").fill("made-by-hand")
    page.get_by_label("Trials in all").fill("2")
    page.get_by_label("Metric").fill("loss")
    page.get_by_role("button", name="Check").click()
    page.get_by_text("It would run").wait_for(timeout=SOON)
    assert "made-by-hand" not in [each.name for each in client.studies.list()]
    # The file says the same, and what is changed there the form has.
    page.get_by_role("tab", name="YAML").click()
    file = page.get_by_label("The study as a file")
    text = file.input_value()
    assert "name: made-by-hand" in text and "trials: 2" in text, text
    file.fill(text.replace("trials: 2", "trials: 3"))
    page.get_by_role("tab", name="Form").click()
    assert page.get_by_label("Trials in all").input_value() == "3"
    page.get_by_role("button", name="Start the study").click()
    page.wait_for_url("**/studies/made-by-hand", timeout=SOON)
    # It goes on by itself, on the page too, to its end.
    page.get_by_text("3 of 3").first.wait_for(timeout=120_000)
    wait_for(lambda: client.studies.get("made-by-hand").state == "finished", 60, "it is over")
    assert trials(page) == [2, 1, 0]
    assert tab.complaints == []


def test_an_alias_is_set_moved_and_taken_away(
    visit: Callable[..., Watched], world: World, client: Client
) -> None:
    for name in ("done", "slower"):
        client.models.register_run("numbers", world.jobs[name].id)
    tab = opened(visit, "/models/numbers?v=1")
    page = tab.page

    def set_alias() -> None:
        alias_box(page).fill("champion")
        page.get_by_role("button", name="Set alias").click()

    def at(version: int) -> None:
        page.wait_for_function(
            "(version) => [...document.querySelectorAll('tbody tr')].some((row) =>"
            " row.querySelector('th')?.innerText.trim() === String(version) &&"
            " row.querySelector('[data-alias=champion]'))",
            arg=version, timeout=SOON,
        )  # fmt: skip

    set_alias()
    at(1)
    assert client.models.version("numbers@champion")["version"] == 1
    page.get_by_role("button", name="Show version 2").click()
    page.get_by_role("heading", name="Version 2").wait_for(timeout=SOON)
    alias_box(page).fill("champion")
    page.get_by_text("champion is at version 1 now and will move here").wait_for(timeout=SOON)
    set_alias()
    at(2)
    assert client.models.version("numbers@champion")["version"] == 2
    page.get_by_text("champion: Version 1 → Version 2").wait_for(timeout=SOON)
    page.get_by_role("button", name="Take champion away").click()
    page.get_by_text("champion: Version 2 → nowhere").wait_for(timeout=SOON)
    assert "champion" not in client.models.get("numbers")["aliases"]
    # A file as it was registered.
    with page.expect_download(timeout=SOON) as download:
        page.get_by_role("button", name="Download model.txt").click()
    assert EVIL in download.value.path().read_text()
    assert tab.complaints == []
    tab.go("/models")  # a page of a model that is gone asks for it once more, and says so
    client.models.delete("numbers")


def test_a_version_is_registered_from_a_jobs_files(
    visit: Callable[..., Watched], world: World, client: Client
) -> None:
    tab = opened(visit, "/models?register=1")
    page = tab.page
    page.get_by_role("combobox", name="Job").click()
    page.get_by_role("combobox", name="Job").fill("otter")
    page.get_by_role("option", name="brisk-otter").click()
    page.get_by_role("button", name="model.txt").click()
    page.get_by_role("combobox", name="Model").fill("from-the-page")
    alias_box(page).fill("latest")
    page.get_by_text("not latest, and not a number").wait_for(timeout=SOON)
    alias_box(page).fill("candidate")
    page.get_by_text(
        "windlass model register brisk-otter model.txt --as from-the-page --alias candidate"
    ).wait_for(timeout=SOON)
    page.get_by_role("button", name="Register", exact=True).click()
    page.get_by_role("link", name="Registered from-the-page@1").click()
    page.get_by_role("heading", name="Version 1").wait_for(timeout=SOON)
    found = client.models.version("from-the-page@candidate")
    assert [each["path"] for each in found["listed"]] == ["model.txt"]
    assert found["job"] == world.jobs["done"].id
    assert tab.complaints == []
    tab.go("/models")  # a page of a model that is gone asks for it once more, and says so
    client.models.delete("from-the-page")


def test_who_may_only_look_is_offered_nothing_to_change(
    visit: Callable[..., Watched], world: World
) -> None:
    eve = world.people.user("eve", project="vision", role="viewer")
    tab = visit("light", "en", eve)
    page = tab.page
    tab.complaints.clear()
    tab.go("/models/digits?v=2")
    page.get_by_role("heading", name="Version 2").wait_for(timeout=SOON)
    assert page.get_by_role("button", name="Set alias").count() == 0
    assert page.get_by_role("button", name="Register a version").count() == 0
    tab.go(f"/studies/{world.study}?do=yaml")
    page.get_by_test_id("trials").wait_for(timeout=SOON)
    for name in ("Add trials", "Promote the best", "Remove"):
        assert page.get_by_role("button", name=name).count() == 0, name
    assert tab.complaints == []
