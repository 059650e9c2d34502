"""What only the job's own Python knows: whether it could import a module. Asked once, before the
ranks start, without importing anything.
"""

from __future__ import annotations

import os

from windlass.worker import environment
from windlass.worker.launch import Launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

SECONDS = 15.0
_ASK = """
import sys
from importlib.util import find_spec
for name in sys.argv[1:]:
    try:
        if find_spec(name) is not None:
            print(name)
    except Exception:
        pass
"""


def answer(
    launch: Launch, probes: Sequence[Dict[str, Any]], own: Mapping[str, str]
) -> Tuple[Dict[str, str], List[str], List[str]]:
    """The variables that follow, and for the job's events a sentence on each module that is there
    and on each that is not. What the user has decided by a variable of his own is not asked."""
    variables: Dict[str, str] = {}
    there: List[str] = []
    absent: List[str] = []
    asked = [each for each in probes if not set(each["env"]) <= set(launch.vars)]
    if not asked:
        return variables, there, absent
    found = _found(launch, [each["module"] for each in asked], own)
    for each in asked:
        if found is None:
            words = "the job's Python did not say whether it has %s; taken as absent"
            absent.append(words % each["module"])
        elif each["module"] in found:
            variables.update(each["env"])
            there.append(each["found"])
        else:
            absent.append(each["missing"])
    return variables, there, absent


def _found(launch: Launch, modules: List[str], own: Mapping[str, str]) -> Optional[Set[str]]:
    """Those that every Python of this node's members has; None when one does not answer."""
    import subprocess

    variables = environment.base(own)
    variables.update(launch.vars)
    found = set(modules)
    for python in sorted({_python(launch, member.command) for member in launch.members}):
        try:
            said = subprocess.run(
                [python, "-c", _ASK, *modules],
                env=variables,
                cwd=launch.standing,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=SECONDS,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        if said.returncode:
            return None
        found &= set(said.stdout.decode("utf-8", "replace").split())
    return found


def _python(launch: Launch, command: List[str]) -> str:
    """The Python that a command runs in: its own where it names one, else the job's."""
    name = os.path.basename(command[0])
    if os.path.isabs(command[0]) and name.startswith("python"):
        return command[0]
    return launch.python or "python3"
