"""The plain contract: a command in any language. It gets the neutral variables, no more."""

from __future__ import annotations

from windlass.contracts.base import Contract


class PythonContract(Contract):
    name = "python"
