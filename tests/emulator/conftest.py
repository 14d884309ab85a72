"""One emulator for all tests of this folder: they keep apart by using instances, tokens and pools of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.emulator.world import World, emulator


@pytest.fixture(scope="session")
def credentials() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "test")
        environment.delenv("AWS_SESSION_TOKEN", raising=False)
        environment.delenv("AWS_PROFILE", raising=False)
        environment.delenv("AWS_ENDPOINT_URL", raising=False)
        yield


@pytest.fixture(scope="session")
def shared_world(credentials: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    run_dir = tmp_path_factory.mktemp("emulator").resolve()
    with emulator(run_dir, "--instance-path", "/usr/local/bin:/usr/bin:/bin") as (_, endpoint), World.over(endpoint, run_dir) as world:
        yield world


@pytest.fixture
def world(shared_world: World) -> Iterator[World]:
    yield shared_world
    shared_world.control("PUT", "faults", {})
    living = [
        each["instance_id"] for each in shared_world.control("GET", "instances")["instances"] if each["state"] in {"pending", "running"}
    ]
    if living:
        shared_world.ec2.terminate_instances(InstanceIds=living)
