"""The worker: our process beside the user's, one for each node of an attempt.

Standard library only, Python 3.8 and up, shipped as one zipapp (`pack`). It starts in tens of
milliseconds, because nothing is imported before it is needed: no `typing`, `dataclasses`,
`subprocess` or `http.client` on the way to the first rank.

Reading order: `main`, `attempt` (the story of one attempt), then what it uses: `launch bundle
ports server reporter environment spawn ranks verdict pump logs cgroups hang debug record reap`.
"""
