"""`python -m docs.openapi`: the OpenAPI document on stdout, without a server that runs. The
dashboard's types are made from it."""

from __future__ import annotations

import json
import sys

from docs.writers.api import application

if __name__ == "__main__":
    json.dump(application().openapi(), sys.stdout, indent=1)
    sys.stdout.write("\n")
