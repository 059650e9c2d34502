"""What workers send that share no file system with the server, and what they fetch.

Their files land where the server would have found them on a shared one, so that nobody who reads
them knows the difference: docs/decisions/remote-workers.md.
"""
