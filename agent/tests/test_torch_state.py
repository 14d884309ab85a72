"""State goes to tensors and JSON and comes back exactly."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import Counter, OrderedDict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spot_watchdog_agent.errors import CheckpointDamaged, UnsupportedState
from spot_watchdog_agent.torch_state import _DTYPES, ALIGNMENT_BYTES, canonical_json, decode, encode


def round_trip(value):
    encoded = encode({"value": value})
    buffer = bytearray(encoded.size)
    encoded.copy_into(buffer)
    return decode(json.loads(canonical_json(encoded.tree)), encoded.entries, buffer)["value"]


def same(left, right) -> bool:
    """Return whether two values are equal in type, order and bits."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return left.hex() == right.hex()
    if isinstance(left, dict):
        return (
            list(left) == list(right) and [type(k) for k in left] == [type(k) for k in right] and all(same(left[k], right[k]) for k in left)
        )
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
keys = st.text() | st.integers()
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(keys, inner) | st.dictionaries(keys, inner).map(OrderedDict)
    ),
    max_leaves=20,
)


@settings(deadline=None, max_examples=100)
@given(trees)
def test_plain_values_come_back_with_type_order_and_bits(value):
    assert same(round_trip(value), value)


@pytest.mark.parametrize("value", [{"$": "tensor"}, {"$": 1, 2: 3}, {1: "a", "1": "b"}, -0.0, math.inf, "\ud800", 10**40])
def test_values_that_look_like_the_encoding_come_back(value):
    assert same(round_trip(value), value)


@pytest.mark.parametrize("name", sorted(_DTYPES))
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (4, 5)])
def test_every_dtype_and_shape_comes_back_bit_for_bit(name, shape):
    dtype = _DTYPES[name]
    raw = torch.randint(0, 2 if dtype is torch.bool else 120, (*shape, torch.empty((), dtype=dtype).element_size()), dtype=torch.uint8)
    tensor = raw.view(dtype).reshape(shape)
    restored = round_trip(tensor)
    assert (restored.dtype, restored.shape) == (tensor.dtype, tensor.shape)
    assert restored.contiguous().reshape(-1).view(torch.uint8).tolist() == raw.reshape(-1).tolist()


def test_views_and_shared_storage_come_back_as_their_values():
    base = torch.arange(24.0).reshape(4, 6)
    for tensor in (
        base.T,
        base[::2, 1:],
        base.expand(2, 4, 6),
        torch.nn.Parameter(base),
        torch.view_as_complex(base.reshape(4, 3, 2)).conj(),
    ):
        assert torch.equal(round_trip(tensor), tensor.detach().resolve_conj())


def test_arrays_and_numpy_scalars_come_back():
    for value in (
        np.arange(6.0).reshape(2, 3).T,
        np.array(5),
        np.zeros((0, 2), dtype=np.int8),
        np.array([True, False]),
        np.arange(3, dtype=">i4"),
    ):
        restored = round_trip(value)
        assert restored.shape == value.shape
        assert (restored == value).all()
    for scalar in (np.float64(0.1), np.float32("nan"), np.int16(-3), np.bool_(1)):
        restored = round_trip(scalar)
        assert type(restored) is type(scalar)
        assert restored.tobytes() == scalar.tobytes()


def test_random_states_counters_and_module_versions_come_back():
    assert round_trip(random.getstate()) == random.getstate()
    assert round_trip(Counter({30: 1, 80: 2})) == Counter({30: 1, 80: 2})
    state = torch.nn.BatchNorm1d(3).state_dict()
    assert round_trip(state)._metadata == state._metadata


def test_a_snapshot_does_not_change_with_the_model():
    tensor = torch.ones(4)
    encoded = encode({"value": tensor})
    buffer = bytearray(encoded.size)
    encoded.copy_into(buffer)
    tensor.zero_()
    assert decode(encoded.tree, encoded.entries, buffer)["value"].tolist() == [1, 1, 1, 1]


def test_offsets_are_aligned_and_do_not_overlap():
    entries = encode({"a": torch.ones(3, dtype=torch.int8), "b": torch.ones(0), "c": torch.ones(5), "d": np.ones(1)}).entries
    assert all(entry.offset % ALIGNMENT_BYTES == 0 for entry in entries)
    assert all(one.offset + one.bytes <= other.offset for one, other in itertools.pairwise(entries))


class Odd:
    pass


cycle: list = []
cycle.append(cycle)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (Odd(), "value/x"),
        ({1, 2}, "value/x"),
        (lambda: 1, "value/x"),
        ({1.5: 2}, "value/x"),
        ([1, {"deep": Odd()}], "value/x/1/deep"),
        (torch.ones(2, 2).to_sparse(), "value/x"),
        (torch.ones(2, device="meta"), "value/x"),
        (np.array([Odd()]), "value/x"),
        (cycle, "value/x"),
    ],
)
def test_what_cannot_be_saved_is_named_by_its_path(value, path):
    with pytest.raises(UnsupportedState) as raised:
        encode({"value": {"x": value}})
    assert raised.value.path.startswith(path)


def test_a_tree_of_unknown_form_is_damage():
    with pytest.raises(CheckpointDamaged):
        decode({"$": "__class__"}, (), bytearray())
