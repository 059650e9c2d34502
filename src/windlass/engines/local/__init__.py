"""The local engine: the workers of an attempt are processes of this machine.

Reading order: `inventory` (what the machine offers), `directory` (what lies on disk for one
worker), `evidence` (what that proves), `processes` and `watch` (the kernel's side), `engine`.
"""
