"""`python -m windlass.tune`: answers questions about parameters, a line of JSON each, until its
input ends. A question that fails is answered with `error`; the next one is taken all the same."""

from __future__ import annotations

import json
import sys
from typing import Any

from windlass.tune import samplers


def main() -> None:
    own_output, sys.stdout = sys.stdout, sys.stderr  # a library that prints must not answer
    for line in sys.stdin:
        if line.strip():
            print(json.dumps(_answered(line)), file=own_output, flush=True)


def _answered(line: str) -> dict[str, Any]:
    try:
        asked = json.loads(line)
        return {"id": asked.get("id"), **samplers.answer(asked)}
    except ModuleNotFoundError as err:
        return {"error": f"{err.name} is not installed", "missing": True}
    except Exception as err:
        return {"error": f"{type(err).__name__}: {err}"}


if __name__ == "__main__":
    main()
