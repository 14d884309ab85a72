"""One owner at a time, whatever answers are lost."""

from __future__ import annotations

import json
import threading

import pytest

from spot_watchdog_agent.checkpoint import CheckpointReference
from spot_watchdog_agent.errors import CheckpointDamaged, HeadMissing, StoreUnavailable, Superseded, TakeOverRefused
from spot_watchdog_agent.fence import Register
from spot_watchdog_agent.stores.folder import FolderStore


def reference(step, token=1):
    return CheckpointReference(step=step, fencing_token=token, manifest_key=f"m/{token}/{step}", manifest_sha256="0" * 64, bytes=1)


def register_of(store, incarnation, granted=None):
    register = Register(store, incarnation)
    register.create()
    register.take_over(granted)
    return register


def test_head_is_as_documented(store):
    register_of(store, "inc_a").publish(reference(5))
    head = json.loads(store.get("HEAD").data)
    assert set(head) == {"format", "fencing_token", "owner", "nonce", "checkpoint", "previous"}
    assert (head["format"], head["fencing_token"], head["owner"], head["checkpoint"]["step"]) == (1, 1, "inc_a", 5)


def test_a_head_written_by_the_service_can_be_taken_over(store):
    store.create("HEAD", b'{"format": 1, "fencing_token": 0, "owner": null, "nonce": "n", "checkpoint": null, "previous": []}')
    register = Register(store, "inc_a")
    assert register.take_over(0).fencing_token == 1


def test_a_granted_take_over_holds_for_one_token_only(store):
    register_of(store, "inc_a")
    with pytest.raises(TakeOverRefused):
        Register(store, "inc_late").take_over(0)
    assert Register(store, "inc_b").take_over(1).fencing_token == 2


def test_without_head_there_is_no_take_over(store):
    with pytest.raises(HeadMissing):
        Register(store, "inc_a").take_over(0)


def test_the_zombie_cannot_publish(store):
    zombie = register_of(store, "inc_a")
    zombie.publish(reference(1))
    register_of(store, "inc_b")
    with pytest.raises(Superseded):
        zombie.publish(reference(2))
    assert Register(store, "inc_c").peek().checkpoint.step == 1


def test_a_checkpoint_published_during_a_take_over_is_kept(tmp_path):
    store = FolderStore(tmp_path)
    source = register_of(store, "inc_a")
    source.publish(reference(1))

    class Late(FolderStore):
        def replace(self, key, data, *, etag) -> str:
            if source.head.checkpoint.step == 1:
                source.publish(reference(2))
            return super().replace(key, data, etag=etag)

    head = Register(Late(tmp_path), "inc_b").take_over(1)
    assert [one.step for one in head.checkpoints] == [2, 1]


def test_of_two_replacements_one_wins(store):
    register_of(store, "inc_a")
    start = threading.Barrier(2)
    outcomes = []

    def attempt(name) -> None:
        register = Register(store, name)
        start.wait()
        try:
            outcomes.append(register.take_over(1).owner)
        except TakeOverRefused:
            outcomes.append(None)

    threads = [threading.Thread(target=attempt, args=(f"inc_{number}",)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcome is None for outcome in outcomes) == [False, True]
    assert Register(store, "x").peek().owner in outcomes


class Lossy(FolderStore):
    """A store that loses answers: `before` loses the write, `after` only the answer, `late` applies the write one call later."""

    def __init__(self, root, *plan: str) -> None:
        super().__init__(root)
        self.plan = list(plan)
        self.held = None

    def replace(self, key, data, *, etag) -> str:
        step = self.plan.pop(0) if self.plan else "ok"
        if self.held:
            held, self.held = self.held, None
            super().replace(*held[:2], etag=held[2])
        if step == "after":
            super().replace(key, data, etag=etag)
        if step == "late":
            self.held = (key, data, etag)
        if step != "ok":
            raise StoreUnavailable("lost")
        return super().replace(key, data, etag=etag)


@pytest.mark.parametrize("plan", [["after"], ["before"], ["before", "after"], ["late"], ["late", "after"], ["before", "late"]])
def test_lost_answers_of_head_writes_are_resolved(tmp_path, plan):
    register_of(FolderStore(tmp_path), "inc_old")
    store = Lossy(tmp_path, *plan)
    register = Register(store, "inc_a")
    assert register.take_over(1).fencing_token == 2
    store.plan = list(plan)
    register.publish(reference(1, token=2))
    register.publish(reference(2, token=2))
    head = Register(store, "x").peek()
    assert (head.fencing_token, head.owner) == (2, "inc_a")
    assert [one.step for one in head.checkpoints] == [2, 1]


def test_a_store_that_never_answers_leaves_the_outcome_unknown_and_the_next_try_works(tmp_path):
    register_of(FolderStore(tmp_path), "inc_old")
    store = Lossy(tmp_path)
    register = Register(store, "inc_a")
    register.take_over(1)
    store.plan = ["before"] * 5
    with pytest.raises(StoreUnavailable):
        register.publish(reference(1, token=2))
    register.publish(reference(2, token=2))
    assert Register(store, "x").peek().checkpoint.step == 2


def test_a_head_that_cannot_be_read_is_never_taken_for_a_fresh_job(tmp_path):
    (tmp_path / "HEAD").write_bytes(b"garbage")
    register = Register(FolderStore(tmp_path), "inc_a")
    with pytest.raises(CheckpointDamaged):
        register.create()
