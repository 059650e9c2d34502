"""Evidence that the scheduler is right, gathered apart from it: see `auditor`."""

from windlass.scheduler.audit.auditor import Auditor

__all__ = ["Auditor"]
