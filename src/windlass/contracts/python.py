"""The plain contract: a command in any language. It gets the neutral variables, no more."""

from __future__ import annotations

from typing import List, Mapping, Sequence

from windlass.contracts.base import Contract


class PythonContract(Contract):
    name = "python"
    needs_first_node = False

    def loss_problems(self, commands: Mapping[str, Sequence[str]]) -> List[str]:
        """Members that know nothing of each other miss nobody."""
        return []
