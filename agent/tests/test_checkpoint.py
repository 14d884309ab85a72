"""A checkpoint proves every byte of itself, and no kill loses a published one."""

from __future__ import annotations

import json
import os
import pickletools
import random
import signal
import threading

import pytest
import torch

from spot_watchdog_agent import checkpoint
from spot_watchdog_agent.checkpoint import Snapshot
from spot_watchdog_agent.errors import CheckpointDamaged
from spot_watchdog_agent.fence import Register
from spot_watchdog_agent.resume import find_checkpoint
from spot_watchdog_agent.saver import Saver
from spot_watchdog_agent.stores.folder import FolderStore
from spot_watchdog_agent.torch_state import encode
from spot_watchdog_agent.wire import SaveReason


def snapshot(step, size=100):
    return Snapshot.capture(step, encode({"weights": torch.full((size,), float(step)), "bias": torch.arange(3), "lr": 0.1 * step}))


def owner_of(store, incarnation="inc_a"):
    register = Register(store, incarnation)
    register.create()
    register.take_over(None)
    committed = []
    saver = Saver(store, register, job="job", owner=incarnation, on_committed=committed.append, on_failed=lambda _: None)
    return register, saver, committed


def nothing():
    return None


def files_of(root, part):
    return sorted(path for path in (root / part).rglob("*") if path.is_file())


def test_a_checkpoint_comes_back_as_it_was(store):
    reference = checkpoint.write(store, snapshot(7), job="job", fencing_token=1, owner="inc_a")
    state = checkpoint.read(store, reference).decoded()
    assert torch.equal(state["weights"], torch.full((100,), 7.0))
    assert state["lr"] == 0.1 * 7


def test_two_saves_of_one_step_never_share_an_object(tmp_path):
    store = FolderStore(tmp_path)
    for _ in range(2):
        checkpoint.write(store, snapshot(7), job="job", fencing_token=1, owner="inc_a")
    assert (len(files_of(tmp_path, "data")), len(files_of(tmp_path, "manifests"))) == (2, 2)


def test_no_file_contains_a_pickle_and_the_manifest_is_as_documented(tmp_path):
    store = FolderStore(tmp_path)
    _, saver, _ = owner_of(store)
    saver.save_now(snapshot(7), SaveReason.PERIODIC)
    for path in (tmp_path / "HEAD", *files_of(tmp_path, "data"), *files_of(tmp_path, "manifests")):
        with pytest.raises(ValueError):
            list(pickletools.genops(path.read_bytes()))
    (path,) = files_of(tmp_path, "manifests")
    assert path.parent.name == "00000001"
    assert path.name.startswith("000000000007-")
    manifest = json.loads(path.read_text())
    assert (manifest["format"], manifest["job"], manifest["step"], manifest["fencing_token"], manifest["owner"]) == (
        1,
        "job",
        7,
        1,
        "inc_a",
    )
    (rank,) = manifest["ranks"]
    assert (tmp_path / rank["key"]).stat().st_size == rank["bytes"]
    assert [entry["name"] for entry in rank["tensors"]] == ["weights", "bias"]


@pytest.mark.parametrize("part", ["data", "manifests"])
@pytest.mark.parametrize("harm", ["flip", "truncate", "extend", "delete", "swap"])
def test_every_kind_of_damage_is_detected(tmp_path, part, harm):
    store = FolderStore(tmp_path)
    reference = checkpoint.write(store, snapshot(7), job="job", fencing_token=1, owner="inc_a")
    (path,) = files_of(tmp_path, part)
    other = checkpoint.write(store, snapshot(8), job="job", fencing_token=1, owner="inc_a")
    whole = path.read_bytes()
    generator = random.Random(0)
    for _ in range(40 if harm == "flip" else 1):
        harmed = bytearray(whole)
        if harm == "flip":
            harmed[generator.randrange(len(harmed))] ^= 1 << generator.randrange(8)
        elif harm == "truncate":
            del harmed[-1:]
        elif harm == "extend":
            harmed += b"\0"
        elif harm == "swap":
            (twin,) = [one for one in files_of(tmp_path, part) if one != path]
            harmed = bytearray(twin.read_bytes())
        path.write_bytes(harmed)
        if harm == "delete":
            path.unlink()
        with pytest.raises(CheckpointDamaged):
            checkpoint.read(store, reference)
    assert checkpoint.read(store, other).step == 8


def test_damage_names_the_tensor(tmp_path):
    store = FolderStore(tmp_path)
    reference = checkpoint.write(store, snapshot(7), job="job", fencing_token=1, owner="inc_a")
    (path,) = files_of(tmp_path, "data")
    harmed = bytearray(path.read_bytes())
    harmed[-1] ^= 1
    path.write_bytes(harmed)
    with pytest.raises(CheckpointDamaged, match="bias"):
        checkpoint.read(store, reference)


def test_a_damaged_newest_checkpoint_is_passed_over_and_never_listed_again(tmp_path):
    store = FolderStore(tmp_path)
    register, saver, _ = owner_of(store)
    for step in (1, 2, 3):
        saver.save_now(snapshot(step), SaveReason.PERIODIC)
    damaged = register.head.checkpoint
    (tmp_path / damaged.manifest_key).write_bytes(b"{}")
    register, saver, _ = owner_of(store, "inc_b")
    found = find_checkpoint(store, register, None, check=nothing)
    assert found.snapshot.step == 2
    assert "step 3 is damaged" in found.warnings[0]
    saver.save_now(snapshot(3), SaveReason.PERIODIC)
    head = Register(store, "inc_c").peek()
    assert [one.step for one in head.checkpoints] == [3, 2, 1]
    assert damaged not in head.checkpoints


def test_if_all_are_damaged_nothing_is_resumed(tmp_path):
    store = FolderStore(tmp_path)
    register, saver, _ = owner_of(store)
    for step in (1, 2):
        saver.save_now(snapshot(step), SaveReason.PERIODIC)
    for path in files_of(tmp_path, "data"):
        path.write_bytes(b"")
    with pytest.raises(CheckpointDamaged):
        find_checkpoint(store, register, None, check=nothing)


def test_only_what_head_names_is_kept(tmp_path):
    store = FolderStore(tmp_path)
    register, saver, committed = owner_of(store)
    for step in range(1, 9):
        saver.save_now(snapshot(step), SaveReason.PERIODIC)
    assert [one.step for one in register.head.checkpoints] == [8, 7, 6, 5]
    assert (len(files_of(tmp_path, "data")), len(files_of(tmp_path, "manifests"))) == (4, 4)
    assert len({report.manifest_sha256 for report in committed}) == 8


class Gate(FolderStore):
    """A store whose next large write waits until it is let through."""

    def __init__(self, root) -> None:
        super().__init__(root)
        self.entered = threading.Event()
        self.release = threading.Event()
        self.armed = True

    def write(self, key, data):
        if self.armed:
            self.armed = False
            self.entered.set()
            self.release.wait(30)
        super().write(key, data)


def test_an_urgent_save_overtakes_a_slow_one_which_never_replaces_it(tmp_path):
    store = Gate(tmp_path)
    register, saver, committed = owner_of(store)
    saver.save_beside_training(snapshot(1), SaveReason.PERIODIC)
    assert store.entered.wait(30)
    saver.save_now(snapshot(2), SaveReason.NOTICE)
    store.release.set()
    saver.wait()
    assert [report.step for report in committed] == [2]
    assert [one.step for one in register.head.checkpoints] == [2]
    assert len(files_of(tmp_path, "data")) == 1


def test_a_kill_at_any_moment_loses_no_published_checkpoint(tmp_path):
    generator = random.Random(20)
    store = FolderStore(tmp_path)
    told = 0
    for run in range(25):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            _, saver, _ = owner_of(store, f"inc_{run}")
            for step in range(told + 1, told + 1000):
                saver.save_now(snapshot(step, size=20_000), SaveReason.PERIODIC)
                os.write(writer, step.to_bytes(8, "big"))
            os._exit(0)
        os.close(writer)
        for _ in range(generator.randrange(4)):
            told = int.from_bytes(os.read(reader, 8), "big")
        threading.Event().wait(generator.random() * 0.02)  # the moment of the kill, not a synchronisation
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        while rest := os.read(reader, 8):
            told = int.from_bytes(rest, "big")
        os.close(reader)
        register, _, _ = owner_of(store, f"inc_check_{run}")
        found = find_checkpoint(store, register, None, check=nothing)
        assert found.warnings == []
        step = found.snapshot.step if found.snapshot else 0
        assert step in {told, told + 1}  # published, and killed before it could say so
        assert step == 0 or torch.equal(found.snapshot.decoded()["weights"], torch.full((20_000,), float(step)))
        told = step
    assert told > 10
