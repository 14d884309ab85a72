"""A whole world on this machine: Valkey, the emulated AWS, a Slack, the service, each a process of its own below one supervisor."""

from __future__ import annotations

import base64
import json
import os
import secrets
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from watchdog.cli.demo.doors import EmulatorDoor, ServiceDoor, SlackDoor
from watchdog.cli.demo.steplog import StepLog, read_step_log
from watchdog.emulator.account import Account, provision
from watchdog.emulator.processes import Supervisor
from watchdog.emulator.valkey import ValkeyServer, free_port, start_valkey

INSTANCE_TYPE = "g5.xlarge"
SPOT_QUOTA_CODE = "L-3819A6DF"
"""All G and VT Spot Instance Requests, in vCPUs (Service Quotas)."""
SPOT_QUOTA_VCPUS = 4.0
"""Room for one g5.xlarge."""
REGION = "us-east-1"
ZONE_IDS = ("use1-az1", "use1-az2", "use1-az4", "use1-az6")
"""Where the account has subnets, the cheapest pool first."""
DEPLOYMENT = "demo"
CHECKPOINT_SECONDS = 4
STEP_MILLISECONDS = 40
"""What a step of the demo's job takes at least, as on a GPU."""
_FIRST_PRICE = 0.40
_PRICE_STEP = 0.03
_READY_SECONDS = 60.0
_PROCESSES = ("valkey", "emulator", "slack", "service")
_STEP_LOG = "steps.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Digits:
    """The training job: a small classifier of handwritten digits."""

    steps: int
    step_milliseconds: int = STEP_MILLISECONDS
    seed: int = 7

    def command(self, *extra: str, log: str, step_milliseconds: int | None = None) -> list[str]:
        """Return the argv that writes its step log to `log`."""
        pace = self.step_milliseconds if step_milliseconds is None else step_milliseconds
        flags = {"--steps": self.steps, "--step-milliseconds": pace, "--seed": self.seed, "--log": log}
        words = [word for flag, value in flags.items() for word in (flag, str(value))]
        return [sys.executable, "-m", "spot_watchdog_agent.examples.digits", *words, *extra]


@dataclass(slots=True, kw_only=True)
class World:
    """Everything that runs, and how to reach it."""

    supervisor: Supervisor
    run_dir: Path
    valkey: ValkeyServer
    account: Account
    emulator: EmulatorDoor
    slack: SlackDoor
    service: ServiceDoor
    service_environment: Mapping[str, str]
    token: str
    service_pid: int = 0
    setup_seconds: float = 0.0
    needs: Sequence[str] = field(default=_PROCESSES)
    """The processes without which nothing works."""

    def log_path(self, name: str) -> Path:
        """Return the log of one process."""
        return _log(self.run_dir, name)

    def register(self, job: Digits, *, checkpoint_seconds: int = CHECKPOINT_SECONDS) -> str:
        """Register the job with the service and return its id."""
        # The instance's HOME is known only on the instance, and so a shell has to put it in.
        words = job.command(log="LOG")
        script = "exec " + " ".join('"$HOME"/' + _STEP_LOG if word == "LOG" else shlex.quote(word) for word in words)
        body = {
            "name": "digits",
            "instance_types": [INSTANCE_TYPE],
            "markets": ["spot", "on_demand"],
            "availability_zone_ids": None,
            "launch_template": self.account.launch_template_id,
            "command": ["sh", "-c", script],
            "checkpoint_seconds": checkpoint_seconds,
        }
        return str(self.service.register(body)["job_id"])

    def start_reference(self, job: Digits) -> Path:
        """Start the same job as a plain process that nobody interrupts, in the background, and return its step log."""
        log = self.run_dir / "reference.jsonl"
        argv = ["nice", "-n", "19", *job.command("--plain", log=str(log), step_milliseconds=0)]
        self.supervisor.start("reference", argv, env=_base_environment(self.run_dir), log=self.log_path("reference"))
        return log

    def start_service(self) -> None:
        """Start the service, which must not be running, and wait until it is ready."""
        argv = [sys.executable, "-m", "watchdog.cli", "serve"]
        self.service_pid = self.supervisor.start("service", argv, env=self.service_environment, log=self.log_path("service"))
        self._wait("the service is ready", lambda: self.service.answers("/readyz"), "service")

    def instances_of(self, job_id: str) -> list[dict[str, Any]]:
        """Return every instance that was ever started for a job, the oldest first."""
        ours = [instance for instance in self.emulator.instances() if job_id in instance["tags"].values()]
        return sorted(ours, key=lambda instance: str(instance["launched_at"]))

    def alive_of(self, job_id: str) -> list[dict[str, Any]]:
        """Return those that EC2 calls pending or running and that are not past their reclaim time."""
        now = datetime.now(UTC)
        return [
            instance
            for instance in self.instances_of(job_id)
            if instance["state"] in {"pending", "running"}
            and (instance["reclaim_at"] is None or datetime.fromisoformat(instance["reclaim_at"]) > now)
        ]

    def step_log(self, instance: Mapping[str, Any]) -> StepLog:
        """Return what the job on this instance wrote so far."""
        return read_step_log(Path(instance["home"]) / _STEP_LOG)

    def newest_checkpoint(self, job_id: str) -> Mapping[str, Any]:
        """Return the newest checkpoint that the job's agent reported, empty if there is none."""
        return self.service.job(job_id).get("checkpoint") or {}

    def scheduler_messages(self) -> list[dict[str, Any]]:
        """Return what the scheduler was sent: each with `type` and `data` (docs/protocols.md, section 4)."""
        return [json.loads(message["body"]) for message in self.slack.messages() if message["to"] == "scheduler"]

    def _wait(self, what: str, condition: Callable[[], bool], *needs: str) -> None:
        self.supervisor.wait_until(what, condition, needs=needs, timeout_seconds=_READY_SECONDS)


@contextmanager
def open_world(
    *,
    say: Callable[[str], None],
    arrange: Callable[[EmulatorDoor], None] = lambda _: None,
    keep: bool = False,
    boot_seconds: float = 3.0,
) -> Iterator[World]:
    """Start everything, tell each step to `say`, and end everything on the way out.

    Args:
        say: told of each step.
        arrange: changes the market before the service first looks at it.
        keep: leave the run directory in place.
        boot_seconds: from RunInstances until an instance runs its user data.

    Raises ProcessFailed, with the end of the guilty log, if something does not start.
    """
    began = time.monotonic()
    run_dir = Path(tempfile.mkdtemp(prefix="spot-watchdog-")).resolve()
    say(f"run directory {run_dir}")
    with ExitStack() as stack:
        supervisor = stack.enter_context(Supervisor(run_dir, keep=keep))
        for folder in ("logs", "home", "tmp"):
            (run_dir / folder).mkdir()
        emulator_port, service_port = free_port(), free_port()
        slack_ready = run_dir / "slack.json"
        environment = _base_environment(run_dir)
        # All at once: each of them spends its first second importing.
        say("starting the emulated AWS, Slack and Valkey")
        supervisor.start(
            "emulator",
            _emulator_command(run_dir, port=emulator_port, boot_seconds=boot_seconds),
            env=environment,
            log=_log(run_dir, "emulator"),
        )
        slack_command = [sys.executable, "-m", "watchdog.emulator.slack", "--ready", str(slack_ready)]
        supervisor.start("slack", slack_command, env=environment, log=_log(run_dir, "slack"))
        valkey = start_valkey(supervisor, run_dir / "valkey", log=_log(run_dir, "valkey"))
        supervisor.wait_until("Slack listens", slack_ready.exists, needs=["slack"], timeout_seconds=_READY_SECONDS)
        slack_urls = json.loads(slack_ready.read_text())
        endpoint = f"http://127.0.0.1:{emulator_port}"
        emulator = stack.enter_context(EmulatorDoor("emulator", endpoint))
        supervisor.wait_until(
            "the emulated AWS serves", lambda: emulator.answers("/_emulator/health"), needs=["emulator"], timeout_seconds=_READY_SECONDS
        )
        say("setting up the account: subnets in four zones, queue, rules, bucket, launch template")
        account = provision(endpoint, region=REGION, deployment=DEPLOYMENT, zones=ZONE_IDS)
        for place, zone in enumerate(ZONE_IDS):
            emulator.set_pool(zone, INSTANCE_TYPE, "spot", price=round(_FIRST_PRICE + place * _PRICE_STEP, 3))
        arrange(emulator)
        token = f"demo_{secrets.token_urlsafe(24)}"
        public_url = f"http://127.0.0.1:{service_port}"
        world = World(
            supervisor=supervisor,
            run_dir=run_dir,
            valkey=valkey,
            account=account,
            emulator=emulator,
            slack=stack.enter_context(SlackDoor("slack", slack_urls["base_url"])),
            service=stack.enter_context(ServiceDoor(public_url, token=token)),
            service_environment={
                **environment,
                **_service_settings(account, endpoint=endpoint, redis_url=valkey.url, slack_urls=slack_urls),
                "SPOT_WATCHDOG_PUBLIC_URL": public_url,
                "SPOT_WATCHDOG_HOST": "127.0.0.1",
                "SPOT_WATCHDOG_PORT": str(service_port),
                "SPOT_WATCHDOG_API_TOKEN": token,
            },
            token=token,
        )
        say("starting the service")
        world.start_service()
        world.setup_seconds = time.monotonic() - began
        say(f"everything is up after {world.setup_seconds:.1f} s")
        yield world


def _log(run_dir: Path, name: str) -> Path:
    return run_dir / "logs" / f"{name}.log"


def _emulator_command(run_dir: Path, *, port: int, boot_seconds: float) -> list[str]:
    options = {"--run-dir": run_dir, "--port": port, "--boot-seconds": boot_seconds}
    return [sys.executable, "-m", "watchdog.emulator", *(str(word) for option in options.items() for word in option)]


def _base_environment(run_dir: Path) -> dict[str, str]:
    """Return an environment in which nothing of the user's own AWS set-up, proxies or settings can be seen."""
    return {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "HOME": str(run_dir / "home"),
        "TMPDIR": str(run_dir / "tmp"),
        "PYTHONUNBUFFERED": "1",
    }


def _service_settings(account: Account, *, endpoint: str, redis_url: str, slack_urls: Mapping[str, str]) -> dict[str, str]:
    settings = {
        "DEPLOYMENT": DEPLOYMENT,
        "REDIS_URL": redis_url,
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": endpoint,
        "QUEUE_URL": account.queue_url,
        "CHECKPOINT_STORE": f"s3://{account.bucket}",
        "LAUNCH_TEMPLATES": json.dumps([account.launch_template_id]),
        "SUBNETS": json.dumps(list(account.subnets.values())),
        "SLACK_WEBHOOK_URL": slack_urls["slack_url"],
        "SCHEDULER_WEBHOOK_URL": slack_urls["scheduler_url"],
        "SCHEDULER_WEBHOOK_SECRET": "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode(),
    }
    credentials = {"AWS_ACCESS_KEY_ID": "emulated", "AWS_SECRET_ACCESS_KEY": "emulated"}
    return {**{f"SPOT_WATCHDOG_{name}": value for name, value in settings.items()}, **credentials}
