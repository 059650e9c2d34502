"""The page of roles shows the table that decides, and no other.

`python tests/web/test_rights_table.py` writes it anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from windlass.core.access import RIGHTS_IN_ORGANISATION, RIGHTS_IN_PROJECT, SCOPES, Right

FILE = Path(__file__).parents[2] / "web" / "src" / "admin" / "rights.json"
OF_PROGRAMS = {Right.PUBLIC, Right.WORKER, Right.RUN}


def table() -> dict[str, Any]:
    roles = {
        **{role.value: rights for role, rights in RIGHTS_IN_PROJECT.items()},
        **{role.value: rights for role, rights in RIGHTS_IN_ORGANISATION.items()},
    }
    return {
        "rights": [right.value for right in Right if right not in OF_PROGRAMS],
        "roles": {
            role: [right.value for right in Right if right in rights]
            for role, rights in roles.items()
        },
        "scopes": list(SCOPES),
    }


def test_the_page_has_the_table_that_decides():
    assert json.loads(FILE.read_text()) == table(), f"python {Path(__file__).name} writes it anew"


if __name__ == "__main__":
    FILE.write_text(json.dumps(table(), indent=1) + "\n")
