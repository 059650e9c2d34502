"""Amounts as other systems write them, as exact numbers; and sizes as we write them."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from typing import Any

from windlass.client.importers.base import wrong
from windlass.core.strict import MAX_INT

_SUFFIXES = {
    "": Decimal(1), "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"),
    "k": Decimal(1000), "M": Decimal(1000) ** 2, "G": Decimal(1000) ** 3,
    "T": Decimal(1000) ** 4, "P": Decimal(1000) ** 5, "E": Decimal(1000) ** 6,
    "Ki": Decimal(1024), "Mi": Decimal(1024) ** 2, "Gi": Decimal(1024) ** 3,
    "Ti": Decimal(1024) ** 4, "Pi": Decimal(1024) ** 5, "Ei": Decimal(1024) ** 6,
}  # fmt: skip
_UNITS = (
    ("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10),
    ("TB", 10**12), ("GB", 10**9), ("MB", 10**6),
)  # fmt: skip
_QUANTITY = re.compile(r"\+?([0-9]{1,20}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})([A-Za-z]{0,2})")
_EXPONENT = re.compile(r"\+?([0-9]{1,20}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})[eE]([+-]?[0-9]{1,2})")
_SLURM_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,3})?)([KMGTP]?)B?", re.IGNORECASE)
_SLURM_TIME = re.compile(r"(?:([0-9]{1,6})-)?([0-9]{1,9})(?::([0-9]{1,6}))?(?::([0-9]{1,6}))?")


def quantity(value: Any, where: str) -> Decimal:
    """A quantity of Kubernetes: `500m`, `2`, `1.5`, `8Gi`, `129e6`."""
    example = "an amount such as 2, 500m or 8Gi"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise wrong(where, value, example)
    text = str(value).strip() if not isinstance(value, int) else f"{value:d}"
    exponent = _EXPONENT.fullmatch(text)
    found = _QUANTITY.fullmatch(text)
    if exponent:
        amount = Decimal(exponent[1]).scaleb(int(exponent[2]))
    elif found and found[2] in _SUFFIXES:
        amount = Decimal(found[1]) * _SUFFIXES[found[2]]
    else:
        raise wrong(where, value, example)
    if amount > MAX_INT:
        raise wrong(where, value, "an amount that a machine could have")
    return amount


def count(value: Any, where: str, maximum: int = 4096) -> int:
    """A whole number of devices, however it is written."""
    amount = quantity(value, where)
    if amount != int(amount) or amount > maximum:
        raise wrong(where, value, f"a whole number up to {maximum}")
    return int(amount)


def cpus(value: Any, where: str) -> int | float:
    """CPUs, up to the next thousandth."""
    amount = quantity(value, where).quantize(Decimal("0.001"), ROUND_CEILING)
    if amount > 100_000:
        raise wrong(where, value, "at most 100000 CPUs")
    return int(amount) if amount == int(amount) else float(amount)


def memory(value: Any, where: str) -> str | int:
    return size(int(quantity(value, where).to_integral_value(ROUND_CEILING)))


def size(amount: int) -> str | int:
    """Bytes as a job file says them: the shortest way that leaves nothing over."""
    if not 0 < amount < 2**53:  # beyond, a size with a unit is read as a float and loses bytes
        return amount
    exact = [f"{amount // one}{unit}" for unit, one in _UNITS if amount % one == 0]
    return min(exact, key=len) if exact else amount


def slurm_bytes(text: str, where: str) -> int:
    """`--mem`: megabytes, or with K, M, G, T; all in powers of 1024."""
    found = _SLURM_SIZE.fullmatch(text)
    if not found:
        raise wrong(where, text, "a size such as 4000, 16G or 512M")
    power = "KMGTP".index(found[2].upper() or "M") + 1
    amount = int(Decimal(found[1]) * 1024**power)
    if amount > MAX_INT:
        raise wrong(where, text, "an amount that a machine could have")
    return amount


def slurm_seconds(text: str, where: str) -> int | None:
    """`--time`; None is without limit."""
    if text.upper() in ("UNLIMITED", "INFINITE", "-1"):
        return None
    found = _SLURM_TIME.fullmatch(text)
    if not found:
        raise wrong(where, text, "a time such as 90, 90:00, 2:30:00, 1-12 or 1-12:30:00")
    days, first, second, third = (int(part) if part else 0 for part in found.groups())
    if found[1] is not None:  # D-H[:M[:S]]
        seconds = days * 86400 + first * 3600 + second * 60 + third
    elif found[4] is not None:  # H:M:S
        seconds = first * 3600 + second * 60 + third
    else:  # M[:S]
        seconds = first * 60 + second
    return seconds or None


def duration(seconds: int) -> str:
    """Seconds as a job file says them."""
    from windlass.core.strict import format_duration

    return format_duration(seconds * 1000) if seconds else "0s"
