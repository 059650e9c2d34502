"""Prints what is installed beside this Python as a lock: `make lock` writes it to a file.

Of what pip chose, not of what another resolver would: a build of torch that has a version of its
own on one machine (`2.13.0+cpu`) is the release of that name on all others.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import distributions

OURS = {"windlass", "pip", "setuptools"}


def lines() -> list[str]:
    found = {}
    for each in distributions():
        name = re.sub(r"[-_.]+", "-", each.metadata["Name"]).lower()
        if name not in OURS:
            found[name] = each.version.partition("+")[0]
    return [f"{name}=={found[name]}" for name in sorted(found)]


if __name__ == "__main__":
    sys.stdout.write("# Written by `make lock` from requirements-test.txt and pyproject.toml.\n")
    sys.stdout.write("\n".join(lines()) + "\n")
