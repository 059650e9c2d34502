"""Every page, in light and dark, in English and Chinese, wide and narrow: nothing fails, nothing
leaves the server, everybody can read it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from web_tab import HEIGHT, NARROW, WIDE, Watched
from web_world import World

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGES: list[dict[str, str]] = json.loads((ROOT / "web/src/pages.json").read_text())
AXE = ROOT / "web/node_modules/axe-core/axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
NEVER_SHOWN = re.compile(r"\bundefined\b|\[object \w+\]|\bNaN\b|=>|Invalid Date")
CHINESE = re.compile(r"[\u4e00-\u9fff]")
KEY = re.compile(r"\b(?:[a-z]+\.)*[a-z]+[A-Z]\w*\b")
"""As the catalogues spell what has more than one word; `jobs.submit` is also a word of ours."""


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("entry", PAGES, ids=[each["name"] for each in PAGES])
def test_a_page_is_whole(
    visit: Callable[..., Watched], world: World, screens: Path, entry: dict[str, str], theme: str,
    language: str,
) -> None:  # fmt: skip
    tab = visit(theme, language)
    page = tab.page
    tab.complaints.clear()
    page.set_viewport_size({"width": WIDE, "height": HEIGHT})
    tab.go(world.fill(entry["path"]))
    name = f"{entry['name']}-{theme}-{language}"
    page.screenshot(path=screens / f"{name}-{WIDE}.png", full_page=True)
    problems = [*_widths(page, WIDE), *_axe(page, f"at {WIDE}"), *_words(page, language)]
    page.set_viewport_size({"width": NARROW, "height": HEIGHT})
    tab.settle()
    page.screenshot(path=screens / f"{name}-{NARROW}.png", full_page=True)
    problems += [*_widths(page, NARROW), *_axe(page, f"at {NARROW}")]
    shown = page.evaluate(
        "() => [document.documentElement.lang, window.ran ?? null,"
        " document.documentElement.getAttribute('data-mantine-color-scheme')]"
    )
    assert shown == [language, None, theme]
    assert tab.complaints + problems == []


def _widths(page: Any, width: int) -> list[str]:
    """A page is scrolled down, never to the side."""
    found = page.evaluate(
        """() => {
        const { scrollWidth: wide, clientWidth: here } = document.documentElement;
        if (wide <= here) return null;
        const out = [...document.querySelectorAll('body *')]
          .filter((each) => each.getBoundingClientRect().right > here + 1)
          .map((each) => each.tagName + '.' + each.className).slice(0, 4);
        return `${wide} > ${here}: ${out.join(' | ')}`;
      }"""
    )
    return [] if found is None else [f"scrolls to the side at {width}: {found}"]


def _axe(page: Any, where: str) -> list[str]:
    """What axe finds against WCAG A and AA."""
    if not page.evaluate("() => Boolean(window.axe)"):
        page.evaluate(AXE.read_text())
    found = page.evaluate(
        "(rules) => axe.run(document, {runOnly: rules, resultTypes: ['violations']})"
        ".then((all) => all.violations.map((each) => [each.id, each.help,"
        " each.nodes.slice(0, 3).map((node) => node.html.slice(0, 160) + ' ' +"
        " (node.failureSummary ?? '').split('\\n').slice(1, 2))]))",
        RULES,
    )
    return [f"axe {where}: {rule}: {words}: {nodes}" for rule, words, nodes in found]


def _words(page: Any, language: str) -> list[str]:
    """No value that nobody meant to show, no name of a word in its place."""
    text = page.inner_text("body")
    problems = [f"shown: {found!r}" for found in NEVER_SHOWN.findall(text)]
    seen = {found.rpartition(".")[2] for found in KEY.findall(text)}
    problems += [f"a raw key: {key}" for key in sorted(seen & _keys())]
    if language == "zh" and not CHINESE.search(page.inner_text("main h1")):
        problems.append(f"the title is not Chinese: {page.inner_text('main h1')!r}")
    if language == "en" and (found := CHINESE.findall(_unmarked(page))):
        problems.append(f"Chinese on an English page: {''.join(found)[:40]}")
    return problems


def _unmarked(page: Any) -> str:
    """What the page says, but for what is marked as Chinese: the name of that language, where one
    chooses it."""
    text: str = page.evaluate(
        "() => { const all = document.querySelector('main').cloneNode(true);"
        " all.querySelectorAll('[lang=zh]').forEach((each) => each.remove());"
        " return all.textContent; }"
    )
    return text


@cache
def _keys() -> set[str]:
    """The keys of all catalogues that are spelled as no word of a language is."""
    found: set[str] = set()
    for file in (ROOT / "web/src").rglob("*ords.ts"):
        found |= set(re.findall(r"^\s+([a-z]+[A-Z]\w*):", file.read_text(), re.MULTILINE))
    assert found, "no catalogue was found"
    return found


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_login_page_is_whole(
    browser: Any, world: World, screens: Path, theme: str, language: str
) -> None:
    context = browser.new_context(
        viewport={"width": WIDE, "height": HEIGHT}, color_scheme=theme,
        locale="zh-CN" if language == "zh" else "en-GB",
    )  # fmt: skip
    try:
        tab = Watched(context.new_page(), world.platform.url)
        tab.page.goto(world.platform.url + "/login")
        tab.page.wait_for_selector("#by-password:not([hidden])")
        # Whether somebody is logged in is found out by asking, and the browser notes the answer.
        tab.complaints = [each for each in tab.complaints if "401" not in each]
        problems = _axe(tab.page, "login")
        for width in (WIDE, NARROW):
            tab.page.set_viewport_size({"width": width, "height": HEIGHT})
            problems += _widths(tab.page, width)
            tab.page.screenshot(path=screens / f"login-{theme}-{language}-{width}.png")
        text = _unmarked(tab.page)
        assert bool(CHINESE.search(text)) == (language == "zh"), text
        assert tab.complaints + problems == []
    finally:
        context.close()
