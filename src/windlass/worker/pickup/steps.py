"""One rising step for a chart, out of what lines say: batches that begin again with each epoch,
bars that are drawn anew, epochs alone, or nothing at all.
"""

from __future__ import annotations

from windlass.worker.pickup.text import Found

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Optional

_MOST_GROUPS = 1000


class _Group:
    """Lines of one kind: how far they are."""

    __slots__ = ("base", "counting", "epoch", "first_epoch", "last", "raw")

    def __init__(self) -> None:
        self.base = 0
        self.raw = -1
        self.last = -1
        self.epoch: Optional[float] = None
        self.first_epoch: Optional[float] = None
        self.counting = False


class Steps:
    """Of one stream."""

    def __init__(self) -> None:
        self._groups: Dict[str, _Group] = {}
        self.epoch: Optional[int] = None
        """What the last line said that was nothing but an epoch."""

    def of(self, found: Found) -> int:
        name = "%s %s" % (found.group, " ".join(sorted(found.values)))
        group = self._groups.get(name)
        if group is None:
            if len(self._groups) >= _MOST_GROUPS:
                self._groups.clear()
            group = self._groups[name] = _Group()
        epoch = found.epoch
        if found.form == "Keras bar" and self.epoch is not None:
            epoch = float(self.epoch)
        if found.step is not None:
            step = _within_epochs(group, found, epoch)
        elif epoch is not None and epoch == int(epoch) and not group.counting:
            step = int(epoch)
            if step == group.last:
                # Several lines of one epoch: from here on they are counted.
                group.counting = True
                step += 1
        else:
            step = group.last + 1
        group.last, group.epoch = step, epoch
        return step


def _within_epochs(group: _Group, found: Found, epoch: Optional[float]) -> int:
    """The step over all epochs, where the line's own begins again with each."""
    step = found.step or 0
    if epoch is not None and found.total:
        if group.first_epoch is None:
            group.first_epoch = epoch
        return int(epoch - group.first_epoch) * found.total + step
    begun_again = epoch is not None and group.epoch is not None and epoch > group.epoch
    if step < group.raw and (begun_again or found.form == "tqdm"):
        group.base += group.raw
    group.raw = step
    return group.base + step
