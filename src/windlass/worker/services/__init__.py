"""What the worker runs beside the ranks, when the framework's contract names it in `services`.

    horovod-kv   where Horovod's ranks meet: a key-value store on the node of rank 0
    mpi-agent    our remote shell: MPI's launcher starts its daemons on other members through it
    gathering    where the members of a training meet that goes on without those it loses

Each has the port that its member registered. They start before the ranks and end with them.
"""
