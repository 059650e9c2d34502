"""`python -m windlass`: the command line, where its script is not on PATH."""

from windlass.cli.main import main

main()
