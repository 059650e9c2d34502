"""A real server with real jobs, and the system's Chromium to look at it with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from web_tab import HEIGHT, WIDE, Watched
from web_world import World, make

from windlass.server.page import FOLDER
from windlass.testing import chromium
from windlass.testing.platform import Platform


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A module's own: what its journeys make and rename is in nobody else's way."""
    folder = tmp_path_factory.mktemp("web")
    with Platform(folder / "home", "--fake-nodes", "2", "--fake-gpus", "4") as platform:
        yield make(platform, folder)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """For a module, and no longer: while Playwright runs there is a loop in this thread, and who
    comes after could run none of its own."""
    program = chromium.installed()
    if program is None:
        pytest.skip("Chromium is not installed: tools/system-packages installs it")
    if not (FOLDER / "index.html").exists():
        pytest.skip("the page is not built: make web")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=program,
            args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
        )
        yield found
        found.close()


@pytest.fixture(scope="module")
def visit(browser: Any, world: World) -> Iterator[Callable[..., Watched]]:
    """`visit(theme, language, caller)`: a tab of a browser in which that caller is logged in,
    in the project `vision`. One for each, kept to the module's end."""
    made: dict[tuple[str, str, str], Watched] = {}
    contexts = []

    def open_one(theme: str = "light", language: str = "en", caller: Any = None) -> Watched:
        key = (theme, language, caller.name if caller else "owner")
        if key not in made:
            context = browser.new_context(
                viewport={"width": WIDE, "height": HEIGHT}, color_scheme=theme,
                locale="zh-CN" if language == "zh" else "en-GB", reduced_motion="reduce",
            )  # fmt: skip
            context.add_init_script(
                f"localStorage.setItem('windlass-theme', '{theme}');"
                f"localStorage.setItem('windlass-language', '{language}');"
                "localStorage.getItem('windlass-project')"
                " || localStorage.setItem('windlass-project', 'vision');"
            )
            contexts.append(context)
            page = context.new_page()
            page.goto(world.link(caller))
            page.wait_for_url(lambda url: "/login" not in url, timeout=60_000)
            made[key] = Watched(page, world.platform.url)
        return made[key]

    yield open_one
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def screens() -> Path:
    """Where pictures of the pages are left for a person to look at."""
    folder = Path(__file__).parents[2] / ".cache" / "screens"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
