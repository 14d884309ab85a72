"""Turns training state into tensors and JSON, and back, exactly and without pickle.

A state is a tree of plain Python values with tensors and arrays at some leaves. `encode` replaces those leaves by places in a table
and everything JSON has no word for by a tagged object, so that what comes back has the same types, order and bits.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from spot_watchdog_agent.errors import CheckpointDamaged, UnsupportedState

if TYPE_CHECKING:
    import numpy as np

ALIGNMENT_BYTES = 64
_TAG = "$"
_NUMPY_KINDS = "biufc"
_MAX_DEPTH = 200
_DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name)
    for name in (
        *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
        *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """Where one tensor's bytes lie in a data object: little-endian, C order, at an aligned offset."""

    name: str
    """Its path in the state, e.g. `optimizer/state/0/exp_avg`."""
    dtype: str
    """`bfloat16` as torch calls it, or `numpy:<f8` for arrays."""
    shape: tuple[int, ...]
    offset: int
    bytes: int
    sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """A state that has been taken apart: the tree, and the tensors it refers to, not copied yet."""

    tree: Any
    entries: tuple[TensorEntry, ...]
    sources: tuple[Any, ...]
    """The tensors and arrays themselves, in the order of the entries."""

    @property
    def size(self) -> int:
        """Bytes of the data object."""
        return self.entries[-1].offset + self.entries[-1].bytes if self.entries else 0

    def copy_into(self, buffer: bytearray) -> None:
        """Copy every tensor to its place: from here on training may change the originals."""
        for entry, source in zip(self.entries, self.sources, strict=True):
            if entry.bytes == 0:
                continue
            if isinstance(source, torch.Tensor):
                view = torch.frombuffer(buffer, dtype=source.dtype, count=source.numel(), offset=entry.offset)
                view.view(source.shape).copy_(source)
            else:
                buffer[entry.offset : entry.offset + entry.bytes] = source.astype(source.dtype.newbyteorder("<")).tobytes()

    def structure(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return dtype and shape of every tensor by its name."""
        return structure_of(self.entries)


def structure_of(entries: Sequence[TensorEntry]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return dtype and shape of every tensor by its name."""
    return {entry.name: (entry.dtype, entry.shape) for entry in entries}


def fingerprint(entries: Sequence[TensorEntry]) -> str:
    """Return one digest of the names, dtypes and shapes of a state."""
    rows = [[entry.name, entry.dtype, list(entry.shape)] for entry in entries]
    return hashlib.sha256(canonical_json(rows).encode()).hexdigest()


def canonical_json(value: Any) -> str:
    """Return the one JSON text of an encoded value; the order of keys is part of the value."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def encode(state: Mapping[str, Any]) -> Encoded:
    """Take a state apart without copying any tensor.

    Raises:
        UnsupportedState: a value has no exact form; the error names its path.
    """
    encoder = _Encoder()
    tree = encoder.value(state, "", 0)
    return Encoded(tree=tree, entries=tuple(encoder.entries), sources=tuple(encoder.sources))


def decode(tree: Any, entries: Sequence[TensorEntry], buffer: bytearray) -> Any:
    """Put a state together again; every tensor gets memory of its own.

    Raises:
        CheckpointDamaged: the tree has a form that `encode` never makes.
    """
    try:
        return _Decoder(entries, buffer).value(tree)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointDamaged(f"The state's tree cannot be read: {error!r}.") from error


class _Encoder:
    def __init__(self) -> None:
        self.entries: list[TensorEntry] = []
        self.sources: list[Any] = []
        self._end = 0
        self._forms: dict[type, Callable[[Any, str, int], Any]] = {
            float: lambda value, _path, _depth: value if math.isfinite(value) else {_TAG: "float", "value": repr(value)},
            bytes: lambda value, _path, _depth: {_TAG: "bytes", "base64": base64.b64encode(value).decode()},
            list: self._items,
            tuple: lambda value, path, depth: {_TAG: "tuple", "items": self._items(value, path, depth)},
            dict: self._dict,
            OrderedDict: self._ordered_dict,
            Counter: lambda value, path, depth: {_TAG: "counter", "items": self._pairs(value, path, depth)},
        }

    def value(self, value: Any, path: str, depth: int) -> Any:
        kind = type(value)
        if value is None or kind in {bool, int, str}:
            return value
        if depth > _MAX_DEPTH:
            raise UnsupportedState(path, "it is nested too deeply, or contains itself")
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        form = self._forms.get(kind)
        if form is not None:
            return form(value, path, depth)
        if numpy := sys.modules.get("numpy"):
            if kind is numpy.ndarray:
                return self._array(value, path)
            if isinstance(value, numpy.generic):
                return self._numpy_scalar(value, path)
        raise UnsupportedState(path, f"a value of type {kind.__module__}.{kind.__qualname__} cannot be saved exactly")

    def _items(self, value: Sequence[Any], path: str, depth: int) -> list[Any]:
        return [self.value(item, f"{path}/{index}", depth + 1) for index, item in enumerate(value)]

    def _dict(self, value: Mapping[Any, Any], path: str, depth: int) -> Any:
        if _TAG not in value and all(type(key) is str for key in value):
            return {key: self.value(item, _join(path, key), depth + 1) for key, item in value.items()}
        return {_TAG: "dict", "items": self._pairs(value, path, depth)}

    def _ordered_dict(self, value: Mapping[Any, Any], path: str, depth: int) -> Any:
        # torch keeps the versions of a module's layers in an attribute of the dict, and converts old states by them.
        metadata = getattr(value, "_metadata", None)
        return {
            _TAG: "ordered_dict",
            "items": self._pairs(value, path, depth),
            "metadata": self.value(metadata, _join(path, "_metadata"), depth + 1),
        }

    def _pairs(self, value: Mapping[Any, Any], path: str, depth: int) -> list[list[Any]]:
        for key in value:
            if type(key) not in {str, int}:
                raise UnsupportedState(path, f"a key of type {type(key).__qualname__} ({key!r}) cannot be saved; use str or int")
        return [[key, self.value(item, _join(path, str(key)), depth + 1)] for key, item in value.items()]

    def _tensor(self, tensor: torch.Tensor, path: str) -> Any:
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in _DTYPES:
            raise UnsupportedState(path, f"tensors of dtype {dtype} cannot be saved exactly")
        if type(tensor) not in {torch.Tensor, torch.nn.Parameter}:
            raise UnsupportedState(path, f"a {type(tensor).__qualname__} is more than a plain tensor")
        if tensor.layout != torch.strided or tensor.device.type == "meta":
            raise UnsupportedState(path, f"a tensor with layout {tensor.layout} on {tensor.device} has no plain bytes")
        plain = tensor.detach()
        return self._place(plain, path, dtype, tuple(plain.shape), plain.numel() * plain.element_size())

    def _array(self, array: np.ndarray[Any, Any], path: str) -> Any:
        if array.dtype.kind not in _NUMPY_KINDS:
            raise UnsupportedState(path, f"arrays of dtype {array.dtype} cannot be saved exactly")
        return self._place(array, path, f"numpy:{array.dtype.newbyteorder('<').str}", array.shape, array.nbytes)

    def _numpy_scalar(self, scalar: np.generic, path: str) -> Any:
        if scalar.dtype.kind not in _NUMPY_KINDS:
            raise UnsupportedState(path, f"numpy scalars of dtype {scalar.dtype} cannot be saved exactly")
        little = scalar.dtype.newbyteorder("<")
        return {_TAG: "numpy", "dtype": little.str, "base64": base64.b64encode(scalar.astype(little).tobytes()).decode()}

    def _place(self, source: Any, path: str, dtype: str, shape: tuple[int, ...], size: int) -> Any:
        offset = -(-self._end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self._end = offset + size
        self.entries.append(TensorEntry(name=path, dtype=dtype, shape=shape, offset=offset, bytes=size))
        self.sources.append(source)
        return {_TAG: "tensor", "at": len(self.entries) - 1}


class _Decoder:
    def __init__(self, entries: Sequence[TensorEntry], buffer: bytearray) -> None:
        self._entries = entries
        self._buffer = buffer
        self._forms: dict[str, Callable[[dict[str, Any]], Any]] = {
            "float": lambda node: float(node["value"]),
            "bytes": lambda node: base64.b64decode(node["base64"], validate=True),
            "tuple": lambda node: tuple(self.value(item) for item in node["items"]),
            "dict": self._dict,
            "ordered_dict": self._ordered_dict,
            "counter": lambda node: Counter(self._dict(node)),
            "numpy": self._numpy,
            "tensor": self._tensor,
        }

    def value(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self.value(item) for item in node]
        if not isinstance(node, dict):
            return node
        if _TAG not in node:
            return {key: self.value(item) for key, item in node.items()}
        return self._forms[node[_TAG]](node)

    def _dict(self, node: dict[str, Any]) -> dict[Any, Any]:
        return {key: self.value(item) for key, item in node["items"]}

    def _ordered_dict(self, node: dict[str, Any]) -> OrderedDict[Any, Any]:
        ordered = OrderedDict((key, self.value(item)) for key, item in node["items"])
        if node["metadata"] is not None:
            ordered._metadata = self.value(node["metadata"])  # type: ignore[attr-defined]  # noqa: SLF001  # torch's own place for it
        return ordered

    def _numpy(self, node: dict[str, Any]) -> Any:
        import numpy as np  # noqa: PLC0415  # the agent must import without numpy

        return np.frombuffer(base64.b64decode(node["base64"]), dtype=np.dtype(node["dtype"]))[0]

    def _tensor(self, node: dict[str, Any]) -> Any:
        entry = self._entries[node["at"]]
        if entry.dtype.startswith("numpy:"):
            import numpy as np  # noqa: PLC0415

            array = np.empty(entry.shape, dtype=np.dtype(entry.dtype.removeprefix("numpy:")))
            if entry.bytes:
                array[...] = np.frombuffer(self._buffer, dtype=array.dtype, count=array.size, offset=entry.offset).reshape(entry.shape)
            return array
        dtype = _DTYPES[entry.dtype]
        if entry.bytes == 0:
            return torch.empty(entry.shape, dtype=dtype)
        flat = torch.frombuffer(self._buffer, dtype=dtype, count=math.prod(entry.shape), offset=entry.offset)
        return flat.view(entry.shape).clone()


def _join(path: str, key: str) -> str:
    return f"{path}/{key}" if path else key
