"""What a job tells without being asked to: numbers in what it prints, TensorBoard's event files,
parameters in its command, and what its processes use, seen from outside.

    intake.py     in the pump: which lines may hold numbers, at a bounded cost
    text.py       one line: its numbers, its step, what form they had
    steps.py      one rising step out of epochs, batches and bars that begin again
    events.py     TensorBoard's records and the scalars in them
    folders.py    event files that appear and grow
    arguments.py  parameters in a command, and in the files that it names
    spooling.py   all of it as lines of the rank's spool, behind what the script logs itself
    usage.py      CPU, memory, disk, network of ranks and node, second by second
    nvml.py       the same of GPUs
    watch.py      the thread that does it

Nothing here may hold up a rank or end an attempt: what fails is left out.
"""
