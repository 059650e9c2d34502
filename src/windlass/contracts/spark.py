"""Spark: `spark-submit` as a job of one member, the driver. Executors are the master's own affair
(`local[2]` and `local-cluster` keep them on the member's node).

The driver tells executors where it is: SPARK_LOCAL_IP is the node's address rather than whatever
its host name happens to mean. The job's Python comes first on PATH, so plain `python3` is that
Python, for the driver and for local executors.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Mapping

from windlass.contracts.base import FILES, Contract, Gang, RankPlace, unknown_roles

_SETTINGS = frozenset(
    "SPARK_LOCAL_IP SPARK_LOCAL_DIRS PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON".split()
)


class SparkContract(Contract):
    name = "spark"
    roles = ("driver", "worker")

    def problems(self, counts: Mapping[str, int]) -> List[str]:
        found = unknown_roles(self, counts)
        members = sum(counts.values())
        if members != 1:
            found.append(
                "spark runs one driver, found %d members: executors are started by Spark's master"
                % members
            )
        return found

    def settings(self) -> FrozenSet[str]:
        return _SETTINGS

    def ranks_started_by_worker(self, member: object) -> int:
        return 1

    def environment(self, gang: Gang, place: RankPlace) -> Dict[str, str]:
        return {
            "SPARK_LOCAL_IP": place.member.host,
            "SPARK_LOCAL_DIRS": FILES + "/spark",
            "PYSPARK_PYTHON": "python3",
            "PYSPARK_DRIVER_PYTHON": "python3",
        }
