"""Parameter servers that are compared: each a program that trains when it is asked to.

They run in interpreters of their own and import nothing of Windlass, but for `ours`. A program
prints that it is ready, then answers each line of JSON on its standard input with one:

    {"size": "small", "updates": 400}  →  @@ {"seconds": …, "updates": 800, "loss": …}
"""
