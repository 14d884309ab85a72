"""The objects of a training job as one state: taken at a step boundary, and put back so that the next step comes out the same."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch

from spot_watchdog_agent.errors import SettingsInvalid, StateMismatch
from spot_watchdog_agent.torch_state import Encoded, TensorEntry, encode, structure_of

_MOST_NAMES = 8
"""How many names an error lists before it counts the rest."""


@runtime_checkable
class Stateful(Protocol):
    """What a model, an optimizer, a scheduler, a scaler, an EMA or a stateful data loader is."""

    def state_dict(self) -> Any:
        """Return the whole state."""

    def load_state_dict(self, state: Any, /) -> Any:
        """Take a state over."""


class TrainingState:
    """The objects whose state is a checkpoint, and the random number generators of the process."""

    def __init__(self, objects: Mapping[str, Any]) -> None:
        """Check that every object can say and take its state.

        Raises SettingsInvalid.
        """
        for name, value in objects.items():
            if not isinstance(value, (Stateful, torch.Generator)):
                hint = " Use torchdata's StatefulDataLoader." if isinstance(value, torch.utils.data.DataLoader) else ""
                raise SettingsInvalid(f"state[{name!r}] has no state_dict() and load_state_dict().{hint}")
        self._objects = dict(objects)

    def take(self) -> Encoded:
        """Take the state of all objects apart, without copying and without moving any random number generator.

        Raises UnsupportedState.
        """
        states: dict[str, Any] = {}
        untouched: list[str] = []
        for name, value in self._objects.items():
            if isinstance(value, torch.Generator):
                continue  # with the other generators, below
            before = _random_states(value)
            attributes = dict(getattr(value, "__dict__", {}))
            states[name] = value.state_dict()
            if not _equal(before, _random_states(value)):
                # torchdata's loader, asked before its first iter(), builds an iterator to answer from, which draws numbers.
                # Undo that: it then builds the iterator when training asks, as it would have done without us.
                vars(value).update(attributes)
                _set_random_states(value, before)
                untouched.append(name)
        return encode({"objects": states, "random": self._all_random_states(), "untouched": untouched})

    def put_back(self, state: Mapping[str, Any], entries: tuple[TensorEntry, ...]) -> None:
        """Load a decoded state into the objects and the random number generators.

        The generators come last: a data loader's iterator draws from them while it is built.

        Raises:
            StateMismatch: the checkpoint does not fit; the message names what differs.
        """
        saved = state["objects"]
        expected = [name for name, value in self._objects.items() if not isinstance(value, torch.Generator)]
        _compare("objects", dict.fromkeys(expected), dict.fromkeys(saved))
        self._compare_modules(entries)
        for name in expected:
            value = self._objects[name]
            try:
                value.load_state_dict(saved[name])
            except Exception as error:
                raise StateMismatch(f"state[{name!r}] does not take the checkpoint: {error}") from error
            if isinstance(value, torch.optim.Optimizer):
                _restore_dtypes(value, saved[name])
        self._read_back([name for name in expected if name not in state["untouched"]], entries)
        self._set_all_random_states(state["random"])

    def _compare_modules(self, entries: tuple[TensorEntry, ...]) -> None:
        saved = structure_of(entries)
        for name, value in self._objects.items():
            if isinstance(value, torch.nn.Module):
                prefix = f"objects/{name}/"
                live = encode({"objects": {name: value.state_dict()}}).structure()
                _compare(f"tensors of state[{name!r}]", live, {key: item for key, item in saved.items() if key.startswith(prefix)})

    def _read_back(self, names: list[str], entries: tuple[TensorEntry, ...]) -> None:
        """Ask every object for the state it was just given.

        This finds objects that drop what they do not know, such as the moments of an optimizer, and makes data loaders build
        their iterator now, before the generators are set, so that building it costs no random numbers later.
        """
        live = encode({"objects": {name: self._objects[name].state_dict() for name in names}}).structure()
        prefixes = tuple(f"objects/{name}/" for name in names)
        _compare("tensors", live, {key: item for key, item in structure_of(entries).items() if key.startswith(prefixes)})

    def _all_random_states(self) -> dict[str, Any]:
        # numpy loads its generators when they are first used: where nobody did, there is no state to save.
        numpy_random = sys.modules.get("numpy.random")
        cuda = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        return {
            "python": random.getstate(),
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if cuda else [],
            "numpy": numpy_random.get_state(legacy=False) if numpy_random else None,
            "generators": {
                f"{name}[{index}]": own.get_state()
                for name, value in self._objects.items()
                for index, own in enumerate(_generators_of(value))
            },
        }

    def _set_all_random_states(self, states: Mapping[str, Any]) -> None:
        generators = {f"{name}[{index}]": own for name, value in self._objects.items() for index, own in enumerate(_generators_of(value))}
        _compare("random number generators", dict.fromkeys(generators), dict.fromkeys(states["generators"]))
        if states["cuda"] and len(states["cuda"]) != torch.cuda.device_count():
            raise StateMismatch(f"The checkpoint has random states of {len(states['cuda'])} GPUs; here are {torch.cuda.device_count()}.")
        random.setstate(states["python"])
        if states["numpy"] is not None:
            import numpy as np  # noqa: PLC0415  # the agent must import without numpy

            np.random.set_state(states["numpy"])  # noqa: NPY002  # the global generator is the one whose state was saved
        if states["cuda"]:
            torch.cuda.set_rng_state_all(states["cuda"])
        for name, own in generators.items():
            own.set_state(states["generators"][name])
        torch.set_rng_state(states["torch"])


def _generators_of(value: Any) -> list[torch.Generator]:
    """Return the generators that `value` is or draws from: a loader's own ones go on after each epoch's shuffle."""
    if isinstance(value, torch.Generator):
        return [value]
    owners = (value, getattr(value, "sampler", None))
    found = [own for owner in owners if isinstance(own := getattr(owner, "generator", None), torch.Generator)]
    return found[:1] if len(found) > 1 and found[0] is found[1] else found


def _random_states(value: Any) -> list[torch.Tensor]:
    return [torch.get_rng_state(), *(own.get_state() for own in _generators_of(value))]


def _set_random_states(value: Any, states: list[torch.Tensor]) -> None:
    torch.set_rng_state(states[0])
    for own, state in zip(_generators_of(value), states[1:], strict=True):
        own.set_state(state)


def _restore_dtypes(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
    """Put back state tensors that load_state_dict cast to their parameter's dtype, such as fp32 moments of bf16 weights."""
    for group, saved_group in zip(optimizer.param_groups, saved["param_groups"], strict=True):
        for parameter, index in zip(group["params"], saved_group["params"], strict=True):
            live = optimizer.state.get(parameter, {})
            for key, value in saved["state"].get(index, {}).items():
                if isinstance(value, torch.Tensor) and key in live and live[key].dtype != value.dtype:
                    live[key] = value.to(device=live[key].device)


def _equal(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(left, right, strict=True))


def _compare(what: str, live: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    faults = [f"missing from the checkpoint: {name}" for name in live if name not in saved]
    faults += [f"only in the checkpoint: {name}" for name in saved if name not in live]
    faults += [f"{name} is {live[name]}, in the checkpoint {saved[name]}" for name in live if name in saved and live[name] != saved[name]]
    if faults:
        rest = f"; and {len(faults) - _MOST_NAMES} more" if len(faults) > _MOST_NAMES else ""
        raise StateMismatch(f"The checkpoint's {what} do not fit: {'; '.join(faults[:_MOST_NAMES])}{rest}.")
