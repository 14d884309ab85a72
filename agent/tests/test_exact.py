"""A job that is interrupted, however often, ends with the same bits as one that is not."""

from __future__ import annotations

import os
import random
import signal
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from spot_watchdog_agent import Checkpointer, StateMismatch, UnsupportedState
from spot_watchdog_agent.errors import SettingsInvalid
from spot_watchdog_agent.examples.digits import state_digest

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")

STEPS = 27
"""Three epochs of nine steps."""


class Job:
    """A model with every kind of randomness: dropout, batch norm, shuffled data, augmentation from three generators."""

    def __init__(self, *, workers: int = 0, own_generator: bool = False, dtype: torch.dtype = torch.float32) -> None:
        from torchdata.stateful_dataloader import StatefulDataLoader

        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002
        random.seed(0)
        torch.set_num_threads(1)
        data = torch.utils.data.TensorDataset(torch.randn(72, 6), torch.randint(0, 3, (72,)))
        self.model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 3)).to(dtype)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, max_lr=0.01, total_steps=STEPS)
        generator = torch.Generator().manual_seed(7) if own_generator else None
        self.loader = StatefulDataLoader(data, batch_size=8, shuffle=True, num_workers=workers, generator=generator)
        self.noise = torch.Generator().manual_seed(3)
        self.dtype = dtype
        self.losses: dict[int, float] = {}

    @property
    def state(self):
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "scheduler": self.scheduler,
            "loader": self.loader,
            "noise": self.noise,
        }

    def batches(self):
        while True:
            yield from self.loader

    def train(self, batch, step: int) -> None:
        inputs, labels = batch
        inputs = inputs + torch.randn(inputs.shape, generator=self.noise) * 0.1
        inputs = inputs * (1 + 0.01 * random.random()) + 0.01 * np.random.random()  # noqa: NPY002
        loss = nn.functional.cross_entropy(self.model(inputs.to(self.dtype)), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self.losses[step] = loss.item()

    def end(self) -> tuple[str, float, float, float]:
        return (state_digest(self.model, self.optimizer), random.random(), float(np.random.random()), torch.rand(()).item())  # noqa: NPY002


def uninterrupted(**kind: Any) -> tuple:
    job = Job(**kind)
    batches = job.batches()
    for step in range(1, STEPS + 1):
        job.train(next(batches), step)
    return job.end()


def interrupted(store, stops: list[int], **kind: Any) -> tuple:
    """Train in as many runs as it takes, each ended by a SIGTERM during the next of `stops`."""
    stops = list(stops)
    for _ in range(len(stops) + 1):
        job = Job(**kind)
        with Checkpointer(job.state, store=store) as checkpointer:
            batches = job.batches()
            for step in checkpointer.steps(STEPS):
                if stops and step == stops[0]:
                    os.kill(os.getpid(), signal.SIGTERM)
                    stops.pop(0)
                job.train(next(batches), step)
        if not checkpointer.stopping:
            return job.end()
    raise AssertionError("the job did not finish")


@pytest.mark.parametrize(
    "stops",
    [*[[step] for step in range(1, STEPS, 5)], [9], [18], [2, 4, 7], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [10, 12, 14, 26]],
    ids=str,
)
def test_resuming_is_exact_wherever_it_is_interrupted(tmp_path, stops):
    assert interrupted(tmp_path, stops) == uninterrupted()


def test_no_interruption_is_exact_too(tmp_path):
    assert interrupted(tmp_path, []) == uninterrupted()


def test_a_loader_with_a_generator_of_its_own_shuffles_later_epochs_the_same(tmp_path):
    kind = {"own_generator": True}
    assert interrupted(tmp_path, [3, 5, 13], **kind) == uninterrupted(**kind)


def test_half_precision_is_exact(tmp_path):
    kind = {"dtype": torch.bfloat16}
    assert interrupted(tmp_path, [3, 13], **kind) == uninterrupted(**kind)


@pytest.mark.long
def test_loader_workers_are_exact(tmp_path):
    kind = {"workers": 2}
    assert interrupted(tmp_path, [4, 12], **kind) == uninterrupted(**kind)


def test_a_finished_job_resumes_at_its_end(tmp_path):
    first = interrupted(tmp_path, [])
    job = Job()
    checkpointer = Checkpointer(job.state, store=tmp_path)
    assert list(checkpointer.steps(STEPS)) == []
    assert job.end() == first
    assert not checkpointer.stopping


def test_moments_of_another_precision_than_their_weights_come_back(tmp_path):
    def build() -> tuple[nn.Parameter, torch.optim.Optimizer]:
        weights = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
        return weights, torch.optim.AdamW([weights])

    weights, optimizer = build()
    optimizer.state[weights] = {"step": torch.tensor(3), "exp_avg": torch.full((3,), 1 / 3), "exp_avg_sq": torch.full((3,), 1 / 7)}
    saved = optimizer.state_dict()
    with Checkpointer({"optimizer": optimizer}, store=tmp_path) as checkpointer:
        checkpointer.restore()
        checkpointer.step(1)
        checkpointer.finish()
    _, fresh = build()
    with Checkpointer({"optimizer": fresh}, store=tmp_path) as checkpointer:
        assert checkpointer.restore() == 1
        checkpointer.finish()
    for key, value in saved["state"][0].items():
        restored = fresh.state_dict()["state"][0][key]
        assert restored.dtype == value.dtype
        assert torch.equal(restored, value)


def save_one(state, store) -> None:
    with Checkpointer(state, store=store) as checkpointer:
        checkpointer.restore()
        checkpointer.step(1)
        checkpointer.finish()


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"model": nn.Linear(3, 4)}, "objects/model/weight"),
        ({"model": nn.Sequential(nn.Linear(3, 2))}, "objects/model/0.weight"),
        ({"model": nn.Linear(3, 2, dtype=torch.float64)}, "float64"),
        ({"net": nn.Linear(3, 2)}, "net"),
        ({"model": nn.Linear(3, 2), "noise": torch.Generator()}, "noise"),
    ],
    ids=["shape", "names", "dtype", "object", "generator"],
)
def test_a_checkpoint_of_another_structure_is_refused_by_name(tmp_path, other, named):
    save_one({"model": nn.Linear(3, 2)}, tmp_path)
    with pytest.raises(StateMismatch, match=named):
        Checkpointer(other, store=tmp_path).restore()


class Forgetful:
    def __init__(self) -> None:
        self.tensors = {"moment": torch.ones(2)}

    def state_dict(self):
        return self.tensors

    def load_state_dict(self, state) -> None:
        self.tensors = {}


def test_an_object_that_drops_what_it_is_given_is_found_out(tmp_path):
    save_one({"ema": Forgetful()}, tmp_path)
    with pytest.raises(StateMismatch, match="moment"):
        Checkpointer({"ema": Forgetful()}, store=tmp_path).restore()


def test_state_that_cannot_be_saved_is_refused_before_training(tmp_path):
    odd = Forgetful()
    odd.tensors = {"callback": print}
    with pytest.raises(UnsupportedState, match="objects/odd/callback"):
        Checkpointer({"odd": odd}, store=tmp_path).restore()


def test_a_plain_loader_is_refused_at_once(tmp_path):
    with pytest.raises(SettingsInvalid, match="StatefulDataLoader"):
        Checkpointer({"loader": torch.utils.data.DataLoader([1, 2])}, store=tmp_path)
