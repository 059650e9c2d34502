"""For a worker that shares no file system with the server: it sends what the server would have
read in its directory, and fetches the checkpoint to resume from. docs/decisions/remote-workers.md.
"""
