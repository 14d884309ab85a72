"""Terraform, and where its AWS provider is found, without asking the network."""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

MODULE = Path(__file__).parents[2] / "terraform"
PROVIDER = "registry.terraform.io/hashicorp/aws"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terraform:
    """The terraform program, run in a copy of the module: nothing of it is left in the tree."""

    program: str
    root: Path
    environment: Mapping[str, str]
    provider_arguments: Sequence[str] | None
    """What `terraform init` needs to find the AWS provider; None if this machine has none."""

    def init(self, folder: str = ".") -> None:
        """Set up one folder, offline."""
        self.run("init", "-backend=false", "-input=false", "-no-color", *(self.provider_arguments or ()), folder=folder)

    def run(self, *arguments: str, folder: str = ".") -> str:
        """Run one command in `folder` of the copy and return its output; a failure shows all of it."""
        done = subprocess.run(
            [self.program, *arguments], cwd=self.root / folder, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"terraform {' '.join(arguments)}:\n{done.stdout}\n{done.stderr}"
        return done.stdout


def cli_config(environment: Mapping[str, str], home: Path) -> Path | None:
    """Return the CLI configuration file that terraform reads, if there is one."""
    path = Path(environment.get("TF_CLI_CONFIG_FILE") or home / ".terraformrc")
    return path if path.is_file() else None


def mirrors(environment: Mapping[str, str], home: Path) -> Iterator[Path]:
    """Yield the folders that may mirror providers, the most explicit first."""
    yield from (Path(environment[name]) for name in ("TF_PLUGIN_DIR", "TF_PLUGIN_CACHE_DIR") if environment.get(name))
    yield from (home / ".terraform.d" / name for name in ("plugins", "plugin-cache", "providers"))
    data_folders = [environment.get("XDG_DATA_HOME") or str(home / ".local/share")]
    data_folders += (environment.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share").split(":")
    yield from (Path(folder) / "terraform" / name for folder in data_folders for name in ("plugins", "providers"))
    yield from sorted(Path("/opt").glob("*"))
    yield from sorted(Path("/opt").glob("terraform/*"))


def this_target() -> str:
    """Return this machine as Terraform names it, e.g. `linux_amd64`."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return f"{platform.system().lower()}_{machine}"


def holds_provider(mirror: Path) -> bool:
    """Whether `mirror` has the AWS provider for this machine, unpacked or packed."""
    target = this_target()
    provider = mirror / PROVIDER
    return any(provider.glob(f"*/{target}/terraform-provider-aws*")) or any(provider.glob(f"terraform-provider-aws_*_{target}.zip"))


def provider_arguments(environment: Mapping[str, str], home: Path) -> Sequence[str] | None:
    """Return what `terraform init` needs to find the provider offline, or None if this machine has none."""
    if environment.get("TF_PLUGIN_DIR"):
        return [f"-plugin-dir={environment['TF_PLUGIN_DIR']}"]
    config = cli_config(environment, home)
    if config is not None and "provider_installation" in config.read_text():
        return []
    mirror = next((folder for folder in mirrors(environment, home) if holds_provider(folder)), None)
    return None if mirror is None else [f"-plugin-dir={mirror}"]


@pytest.fixture(scope="session")
def terraform(tmp_path_factory: pytest.TempPathFactory) -> Terraform:
    """Terraform in a copy of the module."""
    program = shutil.which("terraform")
    if program is None:
        pytest.skip("terraform is not on PATH: none of the module was checked (install 1.7 or newer)")
    root = tmp_path_factory.mktemp("terraform") / "module"
    shutil.copytree(MODULE, root, ignore=shutil.ignore_patterns(".terraform", ".terraform.lock.hcl", "*.tfstate*"))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TF_", "AWS_"))}
    config = cli_config(os.environ, Path.home())
    found = {"TF_CLI_CONFIG_FILE": str(config)} if config else {}
    return Terraform(
        program=program,
        root=root,
        environment=kept | found | {"TF_IN_AUTOMATION": "1", "CHECKPOINT_DISABLE": "1"},
        provider_arguments=provider_arguments(os.environ, Path.home()),
    )


@pytest.fixture(scope="session")
def terraform_with_provider(terraform: Terraform) -> Terraform:
    """The same, with the root module initialised, once for all tests."""
    if terraform.provider_arguments is None:
        pytest.skip(
            "no AWS provider on this machine: the modules with resources were not checked. Set TF_PLUGIN_DIR to a folder that holds "
            f"{PROVIDER}/<version>/<os>_<arch>/, or configure provider_installation (terraform providers mirror makes such a folder)"
        )
    terraform.init()
    return terraform


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say aloud what was not checked, and why: a skip is a single letter otherwise."""
    reasons = {
        report.longrepr[2]
        for report in terminalreporter.stats.get("skipped", [])
        if "tests/terraform/" in report.nodeid and report.longrepr
    }
    for reason in sorted(reasons):
        terminalreporter.write_line(f"tests/terraform: {reason}", yellow=True)
