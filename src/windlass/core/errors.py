"""Every error a caller may meet, as one tree.

    WindlassError
    ├── InvalidInput            422  a field is wrong: which, what was found, what is allowed
    │   ├── NeverFits           422  no node, or no set of nodes, could ever hold the gang
    │   └── Ambiguous           422  a prefix names several objects
    ├── TooLarge                413  a body, a bundle or a file is over its cap
    ├── Unauthenticated         401  no valid credential
    │   ├── ClockSkew           401  signed too far from the server's clock; carries server time
    │   └── SignatureReused     401  a signature that changes something is accepted once
    ├── Forbidden               403  known caller, missing right
    ├── NotFound                404  also: another project's object
    ├── Conflict                409  the object is not in a state that allows this
    │   ├── KeyReused           409  same idempotency key, other request
    │   ├── Fenced              409  the report belongs to an attempt that is over
    │   ├── UnlawfulMove        409  the table of states forbids it
    │   └── BundleMissing       409  submit names code that is not here yet: upload, then again
    ├── Unreadable              409  what the database holds is garbled, or of another version
    ├── LimitExceeded           429  a limit (not a quota) refuses
    ├── Unavailable             503  try again later, nothing was changed (or it settles by key)
    │   └── StorageFull         507  the disk under the control database is full
    ├── Unreachable             –    client side: no server answers
    ├── TrainingFailed          –    in a training: a member failed, or it cannot go on
    │   └── MemberLost          –    which members, in which operation, at which step
    └── Internal                500  our fault

Each class has a stable `code` that travels over HTTP and comes back as the same class
(`from_wire`). A class per thing a caller would do differently, not per place of failure.
"""

from __future__ import annotations

from typing import Any, ClassVar


class WindlassError(Exception):
    """What was wrong, what was found, what to do."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500

    def __init__(self, message: str, *, hint: str = "", **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details

    def to_wire(self) -> dict[str, Any]:
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.hint:
            error["hint"] = self.hint
        if self.details:
            error["details"] = self.details
        return {"error": error}


class InvalidInput(WindlassError):
    code = "invalid-input"
    status = 422


class NeverFits(InvalidInput):
    code = "never-fits"


class Ambiguous(InvalidInput):
    code = "ambiguous"


class TooLarge(WindlassError):
    code = "too-large"
    status = 413


class Unauthenticated(WindlassError):
    code = "unauthenticated"
    status = 401


class ClockSkew(Unauthenticated):
    code = "clock-skew"


class SignatureReused(Unauthenticated):
    code = "signature-reused"


class Forbidden(WindlassError):
    code = "forbidden"
    status = 403


class NotFound(WindlassError):
    code = "not-found"
    status = 404


class Conflict(WindlassError):
    code = "conflict"
    status = 409


class KeyReused(Conflict):
    code = "idempotency-key-reused"


class Fenced(Conflict):
    code = "fenced"


class UnlawfulMove(Conflict):
    code = "unlawful-move"


class BundleMissing(Conflict):
    code = "bundle-missing"


class Unreadable(WindlassError):
    code = "unreadable"
    status = 409


class LimitExceeded(WindlassError):
    code = "limit-exceeded"
    status = 429


class Unavailable(WindlassError):
    code = "unavailable"
    status = 503


class StorageFull(Unavailable):
    code = "storage-full"
    status = 507


class Unreachable(WindlassError):
    code = "unreachable"
    status = 0


class TrainingFailed(WindlassError):
    code = "training-failed"


class MemberLost(TrainingFailed):
    code = "member-lost"


class Internal(WindlassError):
    code = "internal"
    status = 500


def every() -> list[type[WindlassError]]:
    """All concrete classes, for the reference page and for `from_wire`."""
    found: list[type[WindlassError]] = []
    heap: list[type[WindlassError]] = list(WindlassError.__subclasses__())
    while heap:
        kind = heap.pop(0)
        found.append(kind)
        heap.extend(kind.__subclasses__())
    return found


def from_wire(status: int, body: Any) -> WindlassError:
    """The exception a server raised, from what it answered."""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict) or "code" not in error:
        return Internal(f"the server answered {status} without an explanation", status=status)
    kinds = {kind.code: kind for kind in every()}
    kind = kinds.get(str(error["code"]), Internal)
    details = error.get("details") or {}
    details.pop("hint", None), details.pop("message", None)
    return kind(str(error.get("message", "")), hint=str(error.get("hint", "")), **details)
