"""Ask before something is done that cannot be undone."""

from __future__ import annotations

import sys

import click

from windlass.core.errors import InvalidInput


def sure(question: str, alone: str, *, yes: bool, deaf: bool = False) -> None:
    """Go on if a person says so, or `-y` did. `alone` tells a script what it would be asked
    about; `deaf`: stdin is not for answers. Raises InvalidInput where there is no one to ask."""
    if yes:
        return
    if deaf or not sys.stdin.isatty():
        raise InvalidInput(f"{alone}, and there is no one to ask", hint="-y")
    click.confirm(question, abort=True, err=True)
