"""MPI: one process launches, our workers are its remote shell. No sshd, no keys, no passwords.

    roles worker only          worker-0 launches, and its own ranks run beside it
    roles launcher and worker  the launcher launches and holds no rank, as in an MPIJob

The user's command (`mpirun …`, a script that calls it) runs in the launching member alone. Every
other member holds an agent of ours that starts what the launcher asks for (`orted`, Hydra's
proxy) inside that member: its environment, its cgroup, its devices. The hostfile names members,
not machines: the names are never looked up, the agent alone knows where they stand.

A Python command of a gang without a launcher role is put behind `mpirun`: alone it would be a
world of one, silently.
"""

from __future__ import annotations

import json
from typing import Dict, FrozenSet, List, Mapping, Optional, Tuple

from windlass.contracts.base import FILES, Contract, Gang, Member, RankPlace, unknown_roles

AGENT = "mpi-agent"
HOSTS_FILE = "agent-hosts.json"
_SHELL = FILES + "/rsh"
_HERE = "localhost"
"""What both Open MPI and Hydra take for the machine they run on, without a remote shell."""
_CONCURRENT = 128
_VARIABLES = frozenset(
    "K_MPI_JOB_ROLE OMPI_MCA_plm_rsh_agent OMPI_MCA_orte_default_hostfile"
    " OMPI_MCA_orte_keep_fqdn_hostnames OMPI_MCA_orte_leave_session_attached"
    " OMPI_MCA_plm_rsh_no_tree_spawn OMPI_MCA_plm_rsh_num_concurrent HYDRA_HOST_FILE"
    " HYDRA_LAUNCHER HYDRA_LAUNCHER_EXEC I_MPI_HYDRA_HOST_FILE I_MPI_HYDRA_BOOTSTRAP"
    " I_MPI_HYDRA_BOOTSTRAP_EXEC NVIDIA_VISIBLE_DEVICES".split()
)
_SETTINGS = frozenset(
    "OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_oob_tcp_if_include"
    " OMPI_MCA_btl_tcp_if_include OMPI_MCA_hwloc_base_binding_policy HYDRA_ENV HYDRA_IFACE"
    " I_MPI_HYDRA_IFACE I_MPI_PERHOST".split()
)
_SHARED_MEMORY = (
    "OMPI_MCA_btl_vader_backing_directory",
    "OMPI_MCA_osc_sm_backing_directory",
    "OMPI_MCA_osc_rdma_backing_directory",
)


class MpiContract(Contract):
    name = "mpi"
    roles = ("launcher", "worker")
    gpus = "member"

    def problems(self, counts: Mapping[str, int]) -> List[str]:
        found = unknown_roles(self, counts)
        if counts.get("launcher", 1) != 1:
            found.append("mpi has one launcher (found %d)" % counts["launcher"])
        if not counts.get("worker"):
            found.append("mpi needs workers: role worker has no member")
        return found

    def finish(self, counts: Mapping[str, int]) -> Dict[str, str]:
        """Who launches decides; an agent never ends by itself."""
        if "launcher" in counts:
            return {role: "all" if role == "launcher" else "never" for role in counts}
        return {role: "first" for role in counts}

    def reserved(self) -> FrozenSet[str]:
        return _VARIABLES.union(_SHARED_MEMORY)

    def settings(self) -> FrozenSet[str]:
        return _SETTINGS

    def ranks_started_by_worker(self, member: Member) -> int:
        return 1

    def services(self, gang: Gang) -> Tuple[str, ...]:
        return (AGENT,)

    def prefix(self, gang: Gang, place: RankPlace) -> Tuple[str, ...]:
        alone = place.member.role != "launcher" and place.member == _launching(gang)
        return ("mpirun",) if alone and _is_python(place.member) else ()

    def stand_in(self, gang: Gang, place: RankPlace) -> Optional[str]:
        return None if place.member == _launching(gang) else AGENT

    def environment(self, gang: Gang, place: RankPlace) -> Dict[str, str]:
        launching = place.member == _launching(gang)
        found = {
            "K_MPI_JOB_ROLE": "launcher" if launching else "worker",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        if launching:
            found.update(_open_mpi(gang))
            found.update(_hydra(gang, place.member))
        elif sum(each.host == place.member.host for each in gang.members) > 1:
            # Shared memory is named by machine and local rank: two members on one machine would
            # take each other's. Those of the launcher keep the usual place.
            found.update(dict.fromkeys(_SHARED_MEMORY, FILES))
        if place.member.role == "launcher":
            found["NVIDIA_VISIBLE_DEVICES"] = ""
        return found

    def files(self, gang: Gang, place: RankPlace) -> Dict[str, str]:
        hosts = _hosts(gang)
        addresses = {
            member.name: [member.host, member.service_port]
            for member in gang.of_role("worker")
            if member != _launching(gang)
        }
        return {
            "hostfile": "".join("%s slots=%d\n" % host for host in hosts),
            "hostfile.hydra": "".join("%s:%d\n" % host for host in hosts),
            HOSTS_FILE: json.dumps(addresses, sort_keys=True),
        }


def _launching(gang: Gang) -> Member:
    """The launcher where there is one, else worker 0: it stands first in the order of roles."""
    return gang.ordered[0]


def _hosts(gang: Gang) -> List[Tuple[str, int]]:
    """(name, slots) of each member that holds ranks, in the order of ranks."""
    launching = _launching(gang)
    return [
        (_HERE if member == launching else member.name, member.nproc)
        for member in gang.of_role("worker")
    ]


def _is_python(member: Member) -> bool:
    program = member.command[0].rsplit("/", 1)[-1] if member.command else ""
    return program.startswith("python") or program.endswith(".py")


def _open_mpi(gang: Gang) -> Dict[str, str]:
    found = {
        "OMPI_MCA_plm_rsh_agent": _SHELL,
        "OMPI_MCA_orte_default_hostfile": FILES + "/hostfile",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        # Only the launcher knows the way to the agents, so it starts every daemon itself, and
        # each call lasts as long as its daemon: when one of the two goes, so does the other.
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "OMPI_MCA_orte_leave_session_attached": "1",
        # Each daemon takes the machine for its own, so two on one machine, or two jobs, would pin
        # their ranks to the same first cores.
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        # Calls that last must all fit at once, or the launcher waits for ever.
        "OMPI_MCA_plm_rsh_num_concurrent": str(max(_CONCURRENT, len(gang.members))),
    }
    interfaces = {member.ifname for member in gang.members}
    shared = interfaces.pop() if len(interfaces) == 1 else None
    if shared:
        # One setting reaches all daemons, so it must be true everywhere. Without it Open MPI
        # leaves loopback out, and tries every address a machine has.
        found.update(OMPI_MCA_oob_tcp_if_include=shared, OMPI_MCA_btl_tcp_if_include=shared)
    return found


def _hydra(gang: Gang, member: Member) -> Dict[str, str]:
    """MPICH, and Intel MPI, which is of its kin."""
    slots = {each.nproc for each in gang.of_role("worker")}
    found = {
        "HYDRA_HOST_FILE": FILES + "/hostfile.hydra",
        # A rank has the environment of its own member, not the launcher's; `-genv` adds to it.
        "HYDRA_ENV": "none",
        "HYDRA_LAUNCHER": "rsh",
        "HYDRA_LAUNCHER_EXEC": _SHELL,
        "I_MPI_HYDRA_HOST_FILE": FILES + "/hostfile.hydra",
        "I_MPI_HYDRA_BOOTSTRAP": "rsh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": _SHELL,
    }
    if len(slots) == 1:
        found["I_MPI_PERHOST"] = str(slots.pop())
    if member.ifname:
        found.update(HYDRA_IFACE=member.ifname, I_MPI_HYDRA_IFACE=member.ifname)
    return found
