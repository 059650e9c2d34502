"""Files below a folder that user code may change at any moment: no link is followed on the way."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def opened(root: str, parts: List[str]) -> Optional[int]:
    """The number of the open file; None where there is none, or a link stands in the way."""
    found = -1
    try:
        found = os.open(root, FOLDER)
        for part in parts[:-1]:
            inner = os.open(part, FOLDER, dir_fd=found)
            os.close(found)
            found = inner
        return os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=found)
    except OSError:
        return None
    finally:
        if found >= 0:
            os.close(found)
