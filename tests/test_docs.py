"""The docs are true: everything a user can name is described, generated pages are current, links
lead somewhere, and the commands in the examples exist."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # `docs` is part of the checkout, not of the package

from docs import generate  # noqa: E402
from docs.writers import api, cli, environment, events, jobfile, plugins, settings, states  # noqa: E402
from docs.writers import frameworks as framework_pages  # noqa: E402

from windlass.cli.exits import MEANING  # noqa: E402
from windlass.cli.main import COMMANDS, windlass_group  # noqa: E402
from windlass.client.config import DEFAULTS  # noqa: E402
from windlass.contracts import registry as frameworks  # noqa: E402
from windlass.core import errors  # noqa: E402
from windlass.core.events import KINDS, EventView  # noqa: E402
from windlass.core.jobs import AttemptState, JobState, Outcome  # noqa: E402
from windlass.engines import registry as engines  # noqa: E402
from windlass.server.jobs import reports  # noqa: E402
from windlass.train import registry as strategies  # noqa: E402

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
EXAMPLES = [
    path for path in PAGES if "internals" not in path.parts and "reference" not in path.parts
]
SOURCES = sorted((ROOT / "src" / "windlass").rglob("*.py"))


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", generate.PAGES)
def test_a_generated_page_is_as_the_code_would_have_it(name):
    assert page(name) == generate.content(name), "run `make docs`"


def test_every_job_file_field_is_described():
    text = page("reference/job-file.md")
    for field in jobfile.fields():
        assert field.words, field.path
        assert f"| `{field.path.rpartition('.')[2]}` |" in text
    assert not set(jobfile.WORDS) - {field.path for field in jobfile.fields()}


def test_every_field_that_is_refused_for_now_is_known_to_the_page():
    """What the server's check names must be among the probes, or the page would be silent."""
    source = (ROOT / "src/windlass/server/jobs/service.py").read_text()
    body = source.partition("def not_yet")[2].partition("\ndef ")[0]
    named = set(re.findall(r'^        "([a-z_.]+)(?:: \w+)?":', body, re.MULTILINE))
    known = {path for path in jobfile._PROBES} | {"notify", "on_member_loss"}
    assert named <= known, named - known


def test_every_state_and_outcome_is_described():
    text = page("internals/states.md")
    for word in (*JobState, *AttemptState, *Outcome):
        assert f"| `{word}` |" in text
    assert set(states.JOB_STATES) == set(JobState)
    assert set(states.ATTEMPT_STATES) == set(AttemptState)
    assert set(states.OUTCOMES) == set(Outcome)


def test_every_error_code_is_described():
    text = page("reference/errors.md")
    for kind in errors.every():
        assert f"| `{kind.code}` |" in text


def test_every_exit_code_is_described():
    for number in MEANING:
        assert f"| {number} |" in page("reference/exit-codes.md")


def test_every_event_kind_and_field_is_described():
    text = page("reference/events.md")
    for kind in KINDS:
        assert f"| `{kind}` |" in text
    assert set(events.FIELDS) == set(EventView.model_fields)


def test_no_event_has_a_kind_that_is_not_described():
    written = set(reports._NOTES)
    for path in (ROOT / "src/windlass/server").rglob("*.py"):
        source = path.read_text()
        written |= set(re.findall(r'\bkind="([a-z-]+)"', source))
        for call in re.findall(r"moves\.note\((.*?)reason=", source, re.DOTALL):
            written |= set(re.findall(r'[,\s]"([a-z-]+)",', call))
    assert written <= set(KINDS), written - set(KINDS)


def test_every_setting_is_described():
    text = page("reference/settings.md")
    for flag in settings.server_flags():
        assert f"| `{flag}` |" in text
    for name in DEFAULTS:
        assert f"| `{name}` |" in text


def test_every_environment_variable_of_the_code_is_described():
    described = page("reference/settings.md") + page("reference/environment.md")
    inside = {"WINDLASS_FAILPOINT", "_WINDLASS_COMPLETE"}  # for tests; for the shell's completion
    for path in SOURCES:
        if "testing" in path.parts:
            continue
        for name in set(re.findall(r"\b_?WINDLASS_[A-Z_]+[A-Z]\b", path.read_text())) - inside:
            assert f"`{name}`" in described, f"{name} in {path.relative_to(ROOT)}"


def test_every_variable_that_a_rank_gets_is_described():
    assert set(environment.variables()) == set(environment.WORDS)


def test_every_kind_of_plug_in_is_described():
    text = page("reference/plug-ins.md")
    for registry in (frameworks, engines):
        assert f"`{registry.GROUP}`" in text
        for name in registry.BUILT_IN:
            assert f"| `{name}` |" in text
    assert f"`{strategies.GROUP}`" in text
    assert set(plugins.FRAMEWORKS) == set(frameworks.BUILT_IN)
    assert set(plugins.ENGINES) == set(engines.BUILT_IN)


def test_every_strategy_is_described_with_every_option():
    text = page("reference/strategies.md")
    for name in strategies.BUILT_IN:
        _, found, section = text.partition(f"\n## {name}\n")
        assert found, name
        for option, field in strategies.load(name).model_fields.items():
            assert field.description, f"{name}: {option} has no description"
            assert f"| `{option}` |" in section.partition("\n## ")[0]


def test_every_framework_is_described_with_its_example():
    text = page("reference/frameworks.md")
    assert set(framework_pages.ABOUT) == set(frameworks.BUILT_IN)
    for name, about in framework_pages.ABOUT.items():
        assert f"## {name}\n" in text
        if about.example:
            assert (ROOT / "examples" / about.example / "README.md").exists()


def test_every_command_is_described_with_every_flag():
    text = page("reference/cli.md")
    for name in COMMANDS:
        assert f"[`{name}`](#windlass-{name})" in text
    for words, command in cli.commands():
        _, found, section = text.partition(f"\n## {words}\n")
        section = section.partition("\n## ")[0]
        assert found, words
        for option in command.params:
            if isinstance(option, click.Option) and option.name not in cli.COMMON:
                assert option.help, f"{words} {option.opts} has no help"
                assert f"`{option.opts[-1]}`" in section, f"{words} {option.opts}"


def test_every_route_is_described_with_its_mark():
    text = page("reference/api.md")
    for method, path, mark in api.routes():
        assert f"| `{method} {path}` | `{mark}` |" in text


def links(path: Path) -> Iterator[str]:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", text):
        if not target.startswith(("http://", "https://", "mailto:")):
            yield target


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    for target in links(path):
        file, _, anchor = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        assert found.exists(), f"{target} leads nowhere"
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), f"{target}: no such heading"


def anchors(path: Path) -> set[str]:
    """The names of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        re.sub(r"[^\w -]", "", head.replace("`", "")).strip().lower().replace(" ", "-")
        for head in heads
    }


def test_every_page_of_the_docs_can_be_reached_from_the_index():
    index = ROOT / "docs" / "index.md"
    seen, heap = set(), [index]
    while heap:
        path = heap.pop()
        if path in seen or path.suffix != ".md" or not path.exists():
            continue
        seen.add(path)
        heap += [(path.parent / link.partition("#")[0]).resolve() for link in links(path)]
    missing = {path for path in PAGES if "docs" in path.parts} - seen
    assert not missing, missing


def shell_blocks(text: str) -> Iterator[str]:
    """The fenced blocks that are marked as shell, or not at all."""
    kind: str | None = None
    block: list[str] = []
    for line in text.splitlines():
        if not line.startswith("```"):
            block.append(line)
        elif kind is None:
            kind, block = line[3:].strip(), []
        else:
            if kind in ("", "sh", "console"):
                yield "\n".join(block)
            kind = None


def command_lines(path: Path) -> Iterator[str]:
    """The lines of a page's shell blocks that call windlass: after `$ ` where there is one."""
    for block in shell_blocks(path.read_text(encoding="utf-8")):
        joined = block.replace("\\\n", " ")
        prompts = [line[2:] for line in joined.splitlines() if line.startswith("$ ")]
        lines = prompts or joined.splitlines()
        yield from (line for line in lines if line.startswith("windlass "))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_in_examples_exist_with_their_flags(path):
    for line in command_lines(path):
        if re.match(r"windlass [\d.]+ ·", line):
            continue  # what `windlass up` prints
        words = shlex.split(line.partition(" | ")[0].partition(" > ")[0], comments=True)[1:]
        context = click.Context(windlass_group, info_name="windlass", resilient_parsing=True)
        command: click.Command = windlass_group
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            name = words.pop(0)
            found = command.get_command(context, name)
            assert found is not None, f"{line}: no command {name}"
            command = found
        try:
            # Parsed as the CLI would, nothing is run.
            command.make_context(str(command.name), words, parent=context, resilient_parsing=False)
        except click.exceptions.Exit:
            pass  # --help, --version
        except click.UsageError as err:
            pytest.fail(f"{line}: {err.format_message()}")


def test_no_page_names_a_place_of_the_machine_it_was_written_on():
    for path in PAGES:
        found = re.search(r"(?<![\w}>])/(?:root|work)/", path.read_text(encoding="utf-8"))
        assert not found, f"{path}: {found}"
