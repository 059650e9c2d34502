"""One line that a script printed: the numbers in it, its step, and what form it had. Pure.

    {"loss": 0.3, "step": 10}                              a JSON line, or a Python dict
    epoch 3 step=10 loss=0.31 acc: 93.2%                   names and numbers
    iter 100: loss 2.31, time 12ms                         with a space, where the name is plain
    Epoch 2: 40%|████  | 40/100 [00:01<00:02, loss=0.3]    a tqdm bar
    32/32 ━━━━━━ 1s 2ms/step - loss: 0.3 - val_loss: 0.4   a Keras bar

Most lines with a `=` or a `:` in them are no metrics: addresses, versions, settings, times. So a
name that metrics have (`loss`, `val_accuracy`, `f1`) is believed anywhere, any other only beside
such a one or beside a step; and a line of an error never.
"""

from __future__ import annotations

import json
import math
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

    from windlass.patterns.groups import Pattern

MOST_VALUES = 64
LONGEST_TEXT = 2048
"""What is longer and no JSON is a dump: the patterns take time with the square of the length."""

_NUMBER = (
    r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|[nN][aA][nN]|[iI]nf(?:inity)?)"
)
_KEY = r"[A-Za-z_][A-Za-z0-9_/.@-]{0,63}"
_BEHIND = r"(?=\s*%?(?:[\s,;|\])}]|\.?$|\.\s))"

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]+")
_TROUBLE = re.compile(r"Traceback|\w(?:Error|Exception|Warning)\b|\b(?:ERROR|CRITICAL|FATAL)\b")
_CALL = re.compile(r"[A-Za-z_]\w*\([^()]*=[^()]*\)?")
_PAIR = re.compile(
    r"(?:(?<=^)|(?<=[\s,;|\[({]))(?P<quote>[\"']?)(?P<key>%s)(?P=quote)\s*[=:]\s*"
    r"(?P<number>%s)(?:/(?P<of>\d+)(?=[\s,;)]|$)|%s)" % (_KEY, _NUMBER, _BEHIND)
)
_SPACED = re.compile(
    r"(?:(?<=^)|(?<=[\s,;|(]))(?P<key>%s)\s+(?P<number>%s)%s" % (_KEY, _NUMBER, _BEHIND)
)
_QUOTED = re.compile(
    r"['\"](?P<key>[^'\"]{1,64})['\"]:\s*['\"]?(?P<number>%s)['\"]?(?=\s*[,}])" % _NUMBER
)
_STEP = re.compile(
    r"(?:(?<=^)|(?<=[\s,;|\[({]))[\"']?(?:global[_ ]step|step|iter|iteration|it|batch|update|round"
    r"|episode)[\"']?\s*[=:#]?\s*\[?\s*(?P<at>\d+)(?:\s*/\s*(?P<of>\d+))?(?![\w.]\d)",
    re.IGNORECASE,
)
_EPOCH = re.compile(
    r"(?:(?<=^)|(?<=[\s,;|\[({]))[\"']?(?:epoch|ep)[\"']?\s*[=:#]?\s*\[?\s*(?P<at>\d+(?:\.\d+)?)"
    r"(?:\s*/\s*\d+)?",
    re.IGNORECASE,
)
_EPOCH_ALONE = re.compile(r"^\s*epoch\s*[:#]?\s*\[?(\d+)(?:\s*/\s*\d+)?\]?\s*$", re.IGNORECASE)
_IN_EPOCH = re.compile(r"\[\s*(\d+)/(\d+)\b")
_ROUND = re.compile(r"^\[(\d+)\]\s")
_TQDM = re.compile(
    r"^(?P<name>.*?)(?:\d+%\|.*?\|\s*)(?P<at>\d+)/(?P<of>\d+)\s*\[(?P<rest>[^\]]*<[^\]]*)\]?"
)
_KERAS = re.compile(r"^\s*(?P<at>\d+)/(?P<of>\d+)\s+(?:\[[=>.]+\]|[━╸╺─]+|-)\s.*?(?P<rest>-\s.*)$")

# Names that say of themselves that they are measured.
_METRICS = frozenset(
    "loss losses acc accuracy auc auroc auprc f1 precision recall ppl perplexity bleu rouge "
    "rougel rouge1 rouge2 meteor reward rewards mse mae rmse mape r2 iou miou dice psnr ssim fid "
    "kl kld entropy nll elbo wer cer logloss mlogloss merror rmsle ndcg mrr top1 top5 bpc bpb "
    "regret fitness correct".split()
)
# These say so with a fraction only: `error: 0.03` is measured, `error: 2` is a number of errors.
_PERHAPS = frozenset("error err score return returns objective map ap hits energy cost".split())
_WHOSE = re.compile(
    r"^(?:train(?:ing)?|val(?:id(?:ation)?)?|test(?:ing)?|eval(?:uation)?|dev|average|avg|mean"
    r"|total|best|final)(?:_\d+)?(?:'s)?$",
    re.IGNORECASE,
)
_PLACES = frozenset(
    "epoch ep step steps iter iteration it batch update round episode global_step rank local_rank "
    "world_size pid tid port gpu device node v_num seed line lineno thread process worker id eta "
    "version time timestamp ts t created date year asctime msecs relativecreated levelno".split()
)
_FILE = re.compile(r"\.(?:pyx?|cc?|cpp|cu|h|hpp|js|ts|rs|go|java|sh|ya?ml|json|txt|log)$")
_STEP_NAMES = ("global_step", "step", "iteration", "iter", "batch", "update", "round", "it")
_TALK = frozenset("msg message level levelname severity logger event".split())


class Found:
    """Numbers by name. `step`, `total` and `epoch` are the line's own, where it has them; `group`
    are lines of one kind, whose steps belong together."""

    __slots__ = ("epoch", "form", "group", "step", "total", "values")

    def __init__(
        self,
        values: Dict[str, float],
        form: str,
        step: Optional[int] = None,
        epoch: Optional[float] = None,
        total: Optional[int] = None,
        group: str = "",
    ) -> None:
        self.values = values
        self.form = form
        self.step = step
        self.epoch = epoch
        self.total = total
        self.group = group or form


def clean(line: bytes) -> str:
    """As people see it: no colours, no control signs."""
    return _ANSI.sub("", line.decode("utf-8", "replace")).strip()


def epoch_alone(line: str) -> Optional[int]:
    """The number of a line that says nothing but `Epoch 3/10`."""
    found = _EPOCH_ALONE.match(line)
    return int(found[1]) if found else None


def read(line: str) -> Optional[Found]:
    """What a cleaned line tells; None for most."""
    if not any(sign in line for sign in "0123456789") and "nan" not in line.lower():
        return None
    if line.endswith("}"):
        found = _json_line(line)
        if found is not None:
            return found
    if len(line) > LONGEST_TEXT or _TROUBLE.search(line):
        return None
    bar = _TQDM.search(line)
    if bar is not None:
        return _tqdm(bar)
    bar = _KERAS.match(line)
    if bar is not None:
        return _keras(bar)
    return _pairs(line)


def matched(line: str, patterns: Sequence[Pattern]) -> Optional[Found]:
    """What the job's own patterns find in a line: a number for each named group; groups `step` and
    `epoch` say where."""
    values: Dict[str, float] = {}
    places: Dict[str, float] = {}
    for pattern in patterns:
        for name, text in pattern.search(line).items():
            number = _number(text) if text else None
            if number is not None:
                (places if name in ("step", "epoch") else values)[name] = number
    if not values:
        return None
    step = places.get("step")
    whole = int(step) if step is not None and _is_whole(step) else None
    return Found(values, "pattern", whole, places.get("epoch"))


def _json_line(line: str) -> Optional[Found]:
    begin = line.find("{")
    if begin < 0:
        return None
    try:
        content = json.loads(line[begin:])
    except ValueError:
        return _dictionary(line, begin)
    except RecursionError:
        return None
    if not isinstance(content, dict):
        return None
    flat = list(_flat(content, "", 3))
    values = {name: number for name, number in flat if name.lower() not in _PLACES}
    step = next((int(content[name]) for name in _STEP_NAMES if _is_whole(content.get(name))), None)
    told = content.get("epoch")
    epoch = float(told) if told is not None and _is_number(told) else None
    known = any(_is_metric(name, number) for name, number in values.items())
    talks = any(name in _TALK for name in content)
    numbers_only = begin == 0 and not any(isinstance(each, str) for each in content.values())
    if not values or not (
        known or ((step is not None or epoch is not None or numbers_only) and not talks)
    ):
        return None
    return Found(_first(values), "JSON line", step, epoch)


def _dictionary(line: str, begin: int) -> Optional[Found]:
    """A Python dict with numbers, as Transformers' Trainer prints it."""
    pairs = {each["key"]: each["number"] for each in _QUOTED.finditer(line, begin)}
    values = {name: float(text) for name, text in pairs.items() if name.lower() not in _PLACES}
    if not any(_is_metric(name, number) for name, number in values.items()):
        return None
    step = next((int(pairs[name]) for name in _STEP_NAMES if pairs.get(name, "").isdigit()), None)
    epoch = pairs.get("epoch")
    return Found(_first(values), "dict", step, float(epoch) if epoch else None)


def _flat(content: Dict[str, Any], before: str, depth: int) -> Iterator[Tuple[str, float]]:
    for name, value in content.items():
        if _is_number(value):
            yield before + str(name), float(value)
        elif isinstance(value, dict) and depth > 1:
            yield from _flat(value, before + str(name) + "/", depth - 1)


def _tqdm(bar: re.Match[str]) -> Optional[Found]:
    values = {
        name: number for name, number, _ in _named(bar["rest"]) if name.lower() not in _PLACES
    }
    if not values:
        return None
    name = re.sub(r"\d+", "#", bar["name"]).strip()
    return Found(_first(values), "tqdm", int(bar["at"]), None, int(bar["of"]), "tqdm " + name)


def _keras(bar: re.Match[str]) -> Optional[Found]:
    """Only the bar that is full: what came before are means of a part of the epoch."""
    if bar["at"] != bar["of"]:
        return None
    values = {name: number for name, number, _ in _named(bar["rest"])}
    return Found(_first(values), "Keras bar") if values else None


def _pairs(line: str) -> Optional[Found]:
    epoch, step, total, rest = _place(_CALL.sub(" ", line))
    found = list(_named(rest))
    placed = step is not None or epoch is not None
    if placed:
        taken = {name for name, _, _ in found}
        found += [pair for pair in _spaced(rest) if pair[0] not in taken]
    believed = placed or any(_is_metric(name, number, text) for name, number, text in found)
    values = {
        name: number
        for name, number, _ in found
        if name.lower() not in _PLACES and not _FILE.search(name)
    }
    if not believed or not values:
        return None
    if not any(_is_metric(name, number) for name, number in values.items()) and len(values) > 8:
        return None  # a table of settings with a step in it
    return Found(_first(values), "key=value", step, epoch, total)


def _place(line: str) -> Tuple[Optional[float], Optional[int], Optional[int], str]:
    """The epoch, the step and out of how many, and the line without them."""
    epoch = step = total = None
    rest = line
    found = _EPOCH.search(line)
    if found:
        epoch = float(found["at"])
        rest = line[: found.start()] + " " + line[found.end() :]
        inner = _IN_EPOCH.search(rest, found.start())
        if inner and inner.start() - found.start() < 8:
            step, total = int(inner[1]), int(inner[2])
    found = _STEP.search(rest)
    if found:
        step = int(found["at"])
        total = int(found["of"]) if found["of"] else None
        rest = rest[: found.start()] + " " + rest[found.end() :]
    elif step is None:
        found = _ROUND.match(rest)
        if found:
            step = int(found[1])
            rest = rest[found.end() :]
    return epoch, step, total, rest


def _named(text: str) -> List[Tuple[str, float, str]]:
    """Name, number, and how the number was written."""
    found = []
    for each in _PAIR.finditer(text):
        number = float(each["number"])
        if each["of"]:
            if not _words(each["key"]) & {"acc", "accuracy", "correct"} or float(each["of"]) == 0:
                continue
            number /= float(each["of"])
        found.append((_full_name(text, each), number, each["number"]))
    return found


def _spaced(text: str) -> List[Tuple[str, float, str]]:
    return [
        (_full_name(text, each), float(each["number"]), each["number"])
        for each in _SPACED.finditer(text)
        if _words(each["key"]) & _METRICS and not each["number"].isdigit()
    ]


def _full_name(text: str, found: re.Match[str]) -> str:
    """`val loss: 0.3` is `val_loss`, and of `Test set: Average loss` the nearest word counts."""
    key = found["key"].rstrip(".-/")
    before = re.split(r"[\s,;|]+", text[: found.start()].rstrip())[-1]
    if _WHOSE.match(before) and text[: found.start()].endswith(before + " "):
        return "%s_%s" % (before.lower().replace("'s", ""), key.lower())
    return key.lower() if key[1:].islower() else key


def _words(name: str) -> frozenset[str]:
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return frozenset(re.split(r"[_/.@ -]+", apart.lower()))


def _is_metric(name: str, number: float, text: str = "") -> bool:
    words = _words(name)
    if words & _METRICS:
        return True
    fraction = not number.is_integer() if math.isfinite(number) else True
    return bool(words & _PERHAPS) and fraction


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return _is_number(value) and math.isfinite(value) and value == int(value) and value >= 0


def _number(text: str) -> Optional[float]:
    try:
        return float(text)
    except ValueError:
        return None


def _first(values: Dict[str, float]) -> Dict[str, float]:
    if len(values) <= MOST_VALUES:
        return values
    return dict(list(values.items())[:MOST_VALUES])
