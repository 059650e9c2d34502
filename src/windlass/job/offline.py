"""A run without a platform: its folder says who it is, so that `windlass sync` can bring it in
later, once, however often it is brought.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from typing import Any, Dict

from windlass.job.context import Context

FILE = "run.json"


def introduce(here: Context) -> None:
    """Write who this run is, unless another rank (or `windlass run --offline`) has. Raises OSError
    when the folder cannot be written to."""
    path = here.run_dir / FILE
    if here.on_platform or path.exists():
        return
    about: Dict[str, Any] = {
        "api": 1,
        "id": secrets.token_hex(16),
        "name": here.job_name,
        "started_ms": time.time_ns() // 1_000_000,
        "command": [sys.executable, *sys.argv],
        "directory": os.getcwd(),
    }
    here.run_dir.mkdir(parents=True, exist_ok=True)
    fresh = here.run_dir / (".%s-%d" % (FILE, os.getpid()))
    fresh.write_text(json.dumps(about, indent=1), encoding="utf-8")
    try:
        # A link fails where there is one already: of several ranks the first one's word stands.
        os.link(str(fresh), str(path))
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
