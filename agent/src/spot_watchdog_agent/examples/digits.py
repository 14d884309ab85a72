"""Trains a small transformer on handwritten digits, and comes out the same however often it is interrupted.

    python -m spot_watchdog_agent.examples.digits --steps 600 --log steps.jsonl

The last line of the log carries a digest of every parameter, buffer and optimizer state. `--plain` trains without the agent: the
digest is the same, bit for bit.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib.util
import itertools
import json
import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader  # type: ignore[import-untyped]

from spot_watchdog_agent import Checkpointer

_BATCH = 64
_WIDTH = 32
_TEST_IMAGES = 360
_ROWS = 8
_CLASSES = 10


class DigitsTransformer(nn.Module):
    """Reads an image as eight rows of eight pixels."""

    def __init__(self) -> None:
        """Start from the global random number generator."""
        super().__init__()
        self.embed = nn.Linear(8, _WIDTH)
        self.position = nn.Parameter(torch.randn(_ROWS, _WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(_WIDTH, nhead=4, dim_feedforward=64, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.norm = nn.BatchNorm1d(_WIDTH)
        self.head = nn.Linear(_WIDTH, _CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits of each image's class."""
        rows = self.encoder(self.embed(images) + self.position)
        logits: torch.Tensor = self.head(self.norm(rows.mean(dim=1)))
        return logits


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Everything that training changes, and the test images."""

    model: DigitsTransformer
    optimizer: torch.optim.AdamW
    scheduler: torch.optim.lr_scheduler.OneCycleLR
    loader: StatefulDataLoader[Any]
    test: tuple[torch.Tensor, torch.Tensor]

    @classmethod
    def build(cls, *, seed: int, steps: int) -> Job:
        """Build the job at its first step."""
        torch.set_num_threads(1)
        # use_deterministic_algorithms() would do the same, and import the compiler for seconds first.
        torch.set_deterministic_debug_mode("error")
        torch.manual_seed(seed)
        images, labels = load_digits()
        train = TensorDataset(images[_TEST_IMAGES:], labels[_TEST_IMAGES:])
        model = DigitsTransformer()
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        return cls(
            model=model,
            optimizer=optimizer,
            scheduler=torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=max(steps, 1)),
            loader=StatefulDataLoader(train, batch_size=_BATCH, shuffle=True, drop_last=True),
            test=(images[:_TEST_IMAGES], labels[:_TEST_IMAGES]),
        )

    def batches(self) -> Iterator[list[torch.Tensor]]:
        """Yield shuffled batches, epoch after epoch."""
        for _ in itertools.count():
            yield from self.loader

    def train(self, batch: list[torch.Tensor]) -> float:
        """Do one step and return its loss."""
        images, labels = batch
        loss = nn.functional.cross_entropy(self.model(images), labels)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.scheduler.step()
        return loss.item()

    def accuracy(self) -> float:
        """Return the share of test images that the model reads correctly."""
        images, labels = self.test
        self.model.eval()
        with torch.no_grad():
            right = (self.model(images).argmax(dim=1) == labels).double().mean().item()
        self.model.train()
        return float(right)


def load_digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the 1,797 images, scaled to 0..1, and their labels."""
    # The file alone: importing scikit-learn costs seconds, which a job that resumes does not have.
    spec = importlib.util.find_spec("sklearn")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("This example reads its images from scikit-learn: pip install scikit-learn")
    with gzip.open(Path(spec.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz", "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    return torch.from_numpy(table[:, :-1] / 16).view(-1, _ROWS, 8), torch.from_numpy(table[:, -1].astype(np.int64))


def state_digest(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """Return one SHA-256 over all parameters, buffers and optimizer state, in a fixed order."""
    digest = hashlib.sha256()

    def add(name: str, value: Any) -> None:
        digest.update(f"{name}:".encode())
        if isinstance(value, torch.Tensor):
            plain = value.detach().cpu().contiguous()
            digest.update(f"{plain.dtype}{tuple(plain.shape)}".encode())
            digest.update(plain.view(-1).view(torch.uint8).numpy().tobytes())
        else:
            digest.update(repr(value).encode())

    for name, value in sorted(model.state_dict().items()):
        add(name, value)
    state = optimizer.state_dict()
    for index, group in enumerate(state["param_groups"]):
        for key in sorted(group):
            add(f"group/{index}/{key}", group[key])
    for index in sorted(state["state"]):
        for key in sorted(state["state"][index]):
            add(f"state/{index}/{key}", state["state"][index][key])
    return digest.hexdigest()


class EventLog:
    """JSON lines, each on disk's way before the next step begins."""

    def __init__(self, path: Path | None) -> None:
        """Append to `path`, or write nothing."""
        self._file: TextIO | None = path.open("a", encoding="utf-8") if path else None

    def write(self, event: str, **fields: Any) -> None:
        """Append one event with the present time in Unix seconds."""
        if self._file:
            self._file.write(json.dumps({"event": event, "at": time.time(), **fields}) + "\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()


def run(job: Job, steps: Iterable[int], events: EventLog, *, step_seconds: float) -> None:
    """Train the steps, each at least `step_seconds` long, as on a GPU whose steps have a fixed length."""
    batches = job.batches()
    for step in steps:
        begun = time.perf_counter()
        loss = job.train(next(batches))
        time.sleep(max(0.0, step_seconds - (time.perf_counter() - begun)))
        events.write("step", step=step, loss=loss)


def main(arguments: list[str] | None = None) -> None:
    """Run the job from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--step-milliseconds", type=float, default=0.0, help="the least time that a step takes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="append one JSON line per event to this file")
    parser.add_argument("--store", default="checkpoints/digits", help="where checkpoints go if SPOT_WATCHDOG_STORE_URL is not set")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--plain", action="store_true", help="train without the agent")
    mode.add_argument("--floor", action="store_true", help="only start, import and build: the least that any resumption takes")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")

    events = EventLog(options.log)
    job = Job.build(seed=options.seed, steps=options.steps)
    step_seconds = options.step_milliseconds / 1000
    if options.floor:
        events.write("built")
    elif options.plain:
        events.write("started", resumed_from_step=0)
        run(job, range(1, options.steps + 1), events, step_seconds=step_seconds)
        _finished(job, options.steps, events)
    else:
        state = {"model": job.model, "optimizer": job.optimizer, "scheduler": job.scheduler, "loader": job.loader}
        with Checkpointer(state, store=options.store) as checkpointer:
            events.write("started", resumed_from_step=checkpointer.restore())
            run(job, checkpointer.steps(options.steps), events, step_seconds=step_seconds)
        if not checkpointer.stopping:
            _finished(job, options.steps, events)
    events.close()


def _finished(job: Job, steps: int, events: EventLog) -> None:
    digest = state_digest(job.model, job.optimizer)
    accuracy = job.accuracy()
    events.write("finished", step=steps, sha256=digest, accuracy=accuracy)
    print(f"finished step {steps}, accuracy {accuracy:.3f}, state {digest}")


if __name__ == "__main__":
    main()
