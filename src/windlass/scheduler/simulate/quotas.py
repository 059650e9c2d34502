"""Quotas from YAML, and changes of them by hand (`--set tenant.gpus=16`).

    cohorts:
      research:
        tenants:
          vision: {nominal: {gpus: 8}, borrow: {gpus: 8}, lend: {gpus: 8}, weight: 1}

The file of `windlass quota ls -o yaml` and `windlass quota apply`: export, try here, apply. (Names
are freer here: a trace calls its tenants what it likes; and `memory_gb: 64` may stand for
`memory: 64GiB`.) The rules hold milli-units and bytes. What is wrong is named by its path.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from pydantic_core import PydanticCustomError

from windlass.core.errors import InvalidInput
from windlass.core.quotas import units
from windlass.core.yamlfiles import KeysOnce
from windlass.scheduler.events import Cap, Quota
from windlass.scheduler.simulate.traces import GIB

UNITS = {"gpus": ("gpus", 1000), "cpus": ("cpus", 1000), "memory_gb": ("memory", GIB)}
OF_TENANT = ("nominal", "borrow", "lend", "weight", "reclaim", "reclaim_any", "caps")
OF_COHORT = (
    "tenants", "nominal", "borrow", "lend", "weight", "parent", "reclaim", "reclaim_any",
)  # fmt: skip
MOST = 10**12


class _Loader(KeysOnce, yaml.SafeLoader):
    pass


def read_quotas(path: str) -> tuple[tuple[Quota, ...], tuple[Cap, ...]]:
    """The tenants and cohorts of a file, and the caps within tenants."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as err:
        why = getattr(err, "strerror", None) or "it is not UTF-8 text"
        raise InvalidInput(f"{path} cannot be read: {why}") from err
    try:
        data = yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as err:
        raise InvalidInput(f"{path} is not YAML: {' '.join(str(err).split())}") from err
    if data is None:
        raise InvalidInput(f"{path} is empty: it should have `cohorts:`")
    top = _mapping(data, f"{path}", ("cohorts", "tenants"))
    quotas: dict[str, Quota] = {}
    caps: list[Cap] = []

    def tenant(name: Any, parent: str, body: Any, where: str) -> None:
        fields = _mapping(body or {}, where, OF_TENANT)
        _add(quotas, _quota(str(name), parent, fields, where), where)
        caps.extend(_caps(str(name), fields.get("caps") or (), f"{where}.caps"))

    for cohort, body in _mapping(top.get("cohorts") or {}, f"{path}: cohorts").items():
        where = f"{path}: cohorts.{cohort}"
        fields = _mapping(body, where, OF_COHORT)
        parent = fields.get("parent") or ""
        if not isinstance(parent, str):
            raise InvalidInput(f"{where}.parent: {parent!r} is not the name of a cohort")
        _add(quotas, _quota(str(cohort), parent, fields, where), where)
        tenants = _mapping(fields.get("tenants") or {}, f"{where}.tenants")
        for name, inner in tenants.items():
            tenant(name, str(cohort), inner, f"{where}.tenants.{name}")
    for name, inner in _mapping(top.get("tenants") or {}, f"{path}: tenants").items():
        tenant(name, "", inner, f"{path}: tenants.{name}")
    for quota in quotas.values():
        if quota.parent and quota.parent not in quotas:
            raise InvalidInput(
                f"{path}: cohorts.{quota.name}.parent: there is no cohort {quota.parent!r}"
            )
        _no_circle(path, quotas, quota)
    return tuple(quotas.values()), tuple(caps)


def changed(quotas: Iterable[Quota], change: str) -> tuple[Quota, ...]:
    """One amount set by hand: `tenant.gpus=16`, `tenant.borrow.gpus=0`, `tenant.weight=2`.
    A tenant that has no quota yet gets one of its own."""
    path, sign, value = change.partition("=")
    words = path.strip().rsplit(".", 2)
    if sign and len(words) == 3 and words[1] not in ("nominal", "borrow", "lend"):
        words = [f"{words[0]}.{words[1]}", words[2]]  # a tenant's name may have a dot
    if not sign or len(words) < 2 or not words[0]:
        raise InvalidInput(
            f"--set {change}: it should be like tenant.gpus=16, tenant.borrow.gpus=8, "
            "tenant.lend.gpus=0 or tenant.weight=2"
        )
    try:
        number = float(value)
    except ValueError:
        raise InvalidInput(f"--set {change}: {value!r} is not a number") from None
    listed = list(quotas)
    known = [quota.name for quota in listed]
    tenant = words[0]
    if tenant not in known:
        listed.append(Quota(tenant))
        known.append(tenant)
    at = known.index(tenant)
    old = listed[at]
    where = f"--set {change}"
    if words[1:] == ["weight"]:
        listed[at] = replace(old, weight_milli=_weight(number, where))
        return tuple(listed)
    field = words[1] if len(words) == 3 else "nominal"
    amounts = dict(getattr(old, field)) | _amounts({words[-1]: number}, where)
    if field == "nominal":
        listed[at] = replace(old, nominal=amounts)
    elif field == "borrow":
        listed[at] = replace(old, borrow=amounts)
    else:
        listed[at] = replace(old, lend=amounts)
    return tuple(listed)


def _quota(name: str, parent: str, fields: Mapping[str, Any], where: str) -> Quota:
    reclaim = fields.get("reclaim", "lower")
    if reclaim not in ("lower", "any"):
        raise InvalidInput(f"{where}.reclaim: {reclaim!r} is not one of lower, any")
    return Quota(
        name,
        parent,
        nominal=_amounts(fields.get("nominal"), f"{where}.nominal"),
        borrow=_amounts(fields.get("borrow"), f"{where}.borrow"),
        lend=_amounts(fields.get("lend"), f"{where}.lend"),
        weight_milli=_weight(fields.get("weight", 1), f"{where}.weight"),
        reclaim_any=reclaim == "any" or fields.get("reclaim_any") is True,
    )


def _caps(tenant: str, given: Any, where: str) -> list[Cap]:
    if not isinstance(given, list | tuple):
        raise InvalidInput(f"{where}: {given!r} is not a list")
    found = []
    for number, each in enumerate(given):
        fields = _mapping(each, f"{where}[{number}]", ("kind", "user", "limits"))
        limits = _amounts(fields.get("limits"), f"{where}[{number}].limits")
        found.append(
            Cap(tenant, limits, str(fields.get("kind") or ""), str(fields.get("user") or ""))
        )
    return found


def _amounts(given: Any, where: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for resource, amount in _mapping({} if given is None else given, where).items():
        kind, _, model = str(resource).partition(":")
        if kind not in (*UNITS, "memory") or (model and kind != "gpus"):
            known = ", ".join((*UNITS, "memory", "gpus:MODEL"))
            raise InvalidInput(f"{where}: unknown resource {resource!r}; known: {known}")
        if kind == "memory":
            found["memory"] = _bytes(amount, f"{where}.memory")
            continue
        word, unit = UNITS[kind]
        if not _is_number(amount) or not 0 <= amount <= MOST:
            raise InvalidInput(f"{where}.{resource}: {amount!r} is not a number from 0 up")
        found[f"{word}:{model}" if model else word] = round(amount * unit)
    return found


def _bytes(value: Any, where: str) -> int:
    try:
        return units("memory", value)
    except PydanticCustomError as err:
        raise InvalidInput(f"{where}: {err.message()}") from err


def _weight(value: Any, where: str) -> int:
    if not _is_number(value) or not 0.001 <= value <= 1_000_000:
        raise InvalidInput(f"{where}: {value!r} is not a number from 0.001 to 1,000,000")
    return int(round(value * 1000))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _mapping(value: Any, where: str, known: Iterable[str] = ()) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{where}: {value!r} is not a mapping")
    names = tuple(known)
    for key in value:
        if names and key not in names:
            raise InvalidInput(f"{where}: unknown field {key!r}; known: {', '.join(names)}")
    return value


def _no_circle(path: str, quotas: Mapping[str, Quota], quota: Quota) -> None:
    way, at = [quota.name], quota.parent
    while at:
        way.append(at)
        if at == quota.name:
            raise InvalidInput(
                f"{path}: cohorts.{quota.name}.parent: a cohort cannot belong to itself: "
                f"{' in '.join(way[:6])}"
            )
        if len(way) > len(quotas):
            return  # a circle further up: told where it is
        at = quotas[at].parent if at in quotas else ""


def _add(quotas: dict[str, Quota], quota: Quota, where: str) -> None:
    if quota.name in quotas:
        raise InvalidInput(f"{where}: the name {quota.name!r} is there twice")
    quotas[quota.name] = quota
