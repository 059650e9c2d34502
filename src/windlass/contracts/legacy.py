"""Frameworks that nobody develops any more: plain commands with the environment their manuals ask
for. None of them can be tried here against the real thing (see `docs/reference/frameworks.md`).

Over several processes Caffe had nothing of its own; Chainer (ChainerMN) and CNTK used MPI, so
their scripts run under `framework: mpi`.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, Mapping

from windlass.contracts.base import FILES, Contract, Gang, RankPlace

ENVIRONMENTS: Mapping[str, Mapping[str, str]] = {
    # glog writes to files under /tmp unless told otherwise.
    "caffe": {"GLOG_logtostderr": "1"},
    # Kernels compiled by several ranks at once into one folder of the home overwrite each other.
    "chainer": {"CUPY_CACHE_DIR": FILES + "/cupy"},
    "cntk": {},
    # Ranks that share a compile folder wait for each other's lock.
    "theano": {"THEANO_FLAGS": "base_compiledir=" + FILES + "/theano"},
}


class _LegacyContract(Contract):
    def settings(self) -> FrozenSet[str]:
        return frozenset(ENVIRONMENTS[self.name])

    def environment(self, gang: Gang, place: RankPlace) -> Dict[str, str]:
        return dict(ENVIRONMENTS[self.name])


class CaffeContract(_LegacyContract):
    name = "caffe"


class ChainerContract(_LegacyContract):
    name = "chainer"


class CNTKContract(_LegacyContract):
    name = "cntk"


class TheanoContract(_LegacyContract):
    name = "theano"
