"""Checkpoints in the files of torch's distributed checkpoint (DCP), without a process group.

    __<n>_0.distcp    what member n wrote      .metadata    what there is, and in which file

torch's own `save` agrees on who writes what by collectives: strategies without a group have none,
they would hang beside a training that goes on, and know no deadline. So each member's part is
planned by itself, written by torch's writer, and told in words (`Written`); who leads writes the
index of all. What comes out is read by `torch.distributed.checkpoint.load` and
`dcp_to_torch_save` like any other.

The index is a pickle. Ours is read by an unpickler that knows the classes of an index and nothing
else, so that a checkpoint cannot run code.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor
from torch.distributed.checkpoint import metadata as meta
from torch.distributed.checkpoint import planner as plans
from torch.distributed.checkpoint.filesystem import (
    FileSystemReader,
    FileSystemWriter,
    _StorageInfo,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.storage import WriteResult

from windlass.train.state.pieces import Piece, Place

INDEX = ".metadata"
_EMPTY = torch.Size([])


class Written(TypedDict):
    """One value or piece, as a member wrote it. Crosses JSON."""

    name: str
    place: list[str | int]
    dtype: str
    """Empty: a plain value."""
    shape: list[int]
    offsets: list[int]
    sizes: list[int]
    file: str
    at: int
    length: int


class Incomplete(ValueError):
    """The parts together are not a whole state; the message says what is missing."""


# -- writing ----------------------------------------------------------------------------------


def write_part(
    folder: Path, number: int, values: Mapping[str, tuple[Place, Any]]
) -> list[Written]:
    """Member `number`'s tensors, pieces and plain values, all on the CPU, into one file of the
    folder. An empty part makes no file. Not brought to the disk: that is whose it is to digest."""
    items = [
        item
        for name, (_, value) in values.items()
        if (item := _item(name, value)) is not None
    ]  # fmt: skip
    if not items:
        return []
    # No thread of torch's, no copies ahead: they are on the CPU already.
    writer = _Writer(folder, sync_files=False, thread_count=1, per_thread_copy_ahead=0)
    writer.set_up_storage_writer(number == 0)
    everyone = [plans.SavePlan([])] * number + [plans.SavePlan(items)]
    plan = writer.prepare_global_plan(everyone)[number]
    results = writer.write_data(plan, _Given(values)).value()
    by_index = {item.index: item for item in items}
    return [_written(values, by_index[each.index], each.storage_data) for each in results]


def write_index(folder: Path, parts: Iterable[Sequence[Written]]) -> None:
    """The index of everybody's parts; of what two have written, the first's counts. Raises
    Incomplete where pieces do not make up their tensor."""
    found: dict[str, Any] = {}
    places: dict[str, Place] = {}
    storage: dict[meta.MetadataIndex, WriteResult] = {}
    for each in (each for part in parts for each in part):
        name = each["name"]
        places[name] = tuple(each["place"])
        index = meta.MetadataIndex(name, each["offsets"] if each["dtype"] else None)
        if index in storage:
            continue
        where = _StorageInfo(each["file"], each["at"], each["length"])
        storage[index] = WriteResult(index, each["length"], where)
        if not each["dtype"]:
            found[name] = meta.BytesStorageMetadata()
            continue
        chunk = meta.ChunkStorageMetadata(torch.Size(each["offsets"]), torch.Size(each["sizes"]))
        if name not in found:
            properties = meta.TensorProperties(dtype=getattr(torch, each["dtype"]))
            found[name] = meta.TensorStorageMetadata(properties, torch.Size(each["shape"]), [])
        found[name].chunks.append(chunk)
    _check(found)
    writer = _Writer(folder, sync_files=False)
    writer.set_up_storage_writer(True)
    writer.finish(meta.Metadata(found, planner_data=places), [list(storage.values())])


def _item(name: str, value: Any) -> plans.WriteItem | None:
    if not isinstance(value, Tensor | Piece):
        return plans.WriteItem(meta.MetadataIndex(name), plans.WriteItemType.BYTE_IO)
    if isinstance(value, Piece) and not value.value.numel() and torch.Size(value.shape).numel():
        return None  # another member has all of it
    tensor, offsets, shape = (
        (value.value, value.offsets, value.shape)
        if isinstance(value, Piece)
        else (value, (0,) * value.dim(), tuple(value.shape))
    )
    whole = tuple(tensor.shape) == tuple(shape)
    data = plans.TensorWriteData(
        meta.ChunkStorageMetadata(torch.Size(offsets), tensor.shape),
        meta.TensorProperties(dtype=tensor.dtype),
        torch.Size(shape),
    )
    kind = plans.WriteItemType.TENSOR if whole else plans.WriteItemType.SHARD
    return plans.WriteItem(meta.MetadataIndex(name, offsets), kind, tensor_data=data)


def _written(
    values: Mapping[str, tuple[Place, Any]], item: plans.WriteItem, at: _StorageInfo
) -> Written:
    data = item.tensor_data
    return {
        "name": item.index.fqn,
        "place": list(values[item.index.fqn][0]),
        "dtype": "" if data is None else str(data.properties.dtype).removeprefix("torch."),
        "shape": [] if data is None else list(data.size),
        "offsets": [] if data is None else list(data.chunk.offsets),
        "sizes": [] if data is None else list(data.chunk.sizes),
        "file": at.relative_path,
        "at": at.offset,
        "length": at.length,
    }


def _check(found: Mapping[str, Any]) -> None:
    for name, each in found.items():
        if isinstance(each, meta.TensorStorageMetadata):
            there = sum(math.prod(chunk.sizes) for chunk in each.chunks)
            if there != math.prod(each.size):
                raise Incomplete(
                    f"{name}: its pieces have {there} of {math.prod(each.size)} elements"
                )


class _Writer(FileSystemWriter):
    """torch's, without the name of a folder that is about to be renamed."""

    def storage_meta(self) -> meta.StorageMeta:
        return meta.StorageMeta()


class _Given(plans.SavePlanner):
    """Gives the writer the values; everything else is planned by hand."""

    def __init__(self, values: Mapping[str, tuple[Place, Any]]) -> None:
        self._values = values

    def resolve_data(self, write_item: plans.WriteItem) -> Tensor | io.BytesIO:
        value = self._values[write_item.index.fqn][1]
        if isinstance(value, Piece):
            return value.value
        if isinstance(value, Tensor):
            return value
        found = io.BytesIO()
        torch.save(value, found)
        return found

    def set_up_planner(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError

    def create_local_plan(self) -> plans.SavePlan:
        raise NotImplementedError

    def create_global_plan(self, all_plans: Any) -> Any:
        raise NotImplementedError

    def finish_plan(self, new_plan: plans.SavePlan) -> plans.SavePlan:
        raise NotImplementedError


# -- reading ----------------------------------------------------------------------------------


class DcpReader:
    """A checkpoint's values by name, read when asked for, to the CPU. Raises FileNotFoundError
    where there is none, pickle.UnpicklingError or RuntimeError where it is none that torch or we
    wrote."""

    def __init__(self, folder: Path) -> None:
        with open(folder / INDEX, "rb") as file:
            index = _Unpickler(file).load()
        if not isinstance(index, meta.Metadata) or not isinstance(index.planner_data, dict):
            raise pickle.UnpicklingError("it is no index of a checkpoint")
        self._entries: Mapping[str, Any] = index.state_dict_metadata
        self.places: Mapping[str, Place] = {
            name: tuple(index.planner_data[name]) for name in self._entries
        }
        self._files = FileSystemReader(folder)
        self._files.set_up_storage_reader(index, True)

    def shape(self, name: str) -> torch.Size | None:
        found = self._entries[name]
        return found.size if isinstance(found, meta.TensorStorageMetadata) else None

    def tensor(self, name: str, offsets: tuple[int, ...], sizes: tuple[int, ...]) -> Tensor:
        entry = self._entries[name]
        found = torch.empty(sizes, dtype=entry.properties.dtype)
        box = meta.ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))
        items = create_read_items_for_chunk_list(name, entry, [box]) if found.numel() else []
        self._files.read_data(plans.LoadPlan(items), _Into(found)).wait()
        return found

    def value(self, name: str) -> Any:
        index = meta.MetadataIndex(name)
        item = plans.ReadItem(
            plans.LoadItemType.BYTE_IO, index, _EMPTY, index, _EMPTY, torch.Size([0])
        )
        into = _Into(torch.empty(0))
        self._files.read_data(plans.LoadPlan([item]), into).wait()
        return into.value


class _Into(plans.LoadPlanner):
    """Takes what the reader reads: into one tensor, or one plain value."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        self.value: Any = None

    def resolve_tensor(self, read_item: plans.ReadItem) -> Tensor:
        found = self._tensor
        for dim, (at, size) in enumerate(
            zip(read_item.dest_offsets, read_item.lengths, strict=True)
        ):
            found = found.narrow(dim, at, size)
        return found

    def load_bytes(self, read_item: plans.ReadItem, value: io.BytesIO) -> None:
        self.value = torch.load(value, map_location="cpu", weights_only=True)

    def commit_tensor(self, read_item: plans.ReadItem, tensor: Tensor) -> None:
        pass

    def set_up_planner(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError

    def create_local_plan(self) -> plans.LoadPlan:
        raise NotImplementedError

    def create_global_plan(self, global_plan: Any) -> Any:
        raise NotImplementedError

    def finish_plan(self, central_plan: plans.LoadPlan) -> plans.LoadPlan:
        raise NotImplementedError


_KNOWN = {
    ("torch.distributed.checkpoint.metadata", name)
    for name in (
        "Metadata",
        "TensorStorageMetadata",
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "MetadataIndex",
        "TensorProperties",
        "StorageMeta",
        "_MEM_FORMAT_ENCODING",
    )  # fmt: skip
} | {
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _KNOWN:
            return super().find_class(module, name)
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        raise pickle.UnpicklingError(f"an index of a checkpoint has no {module}.{name}")
