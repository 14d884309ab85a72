"""The Terraform module: formatted, valid, and its own tests pass without an AWS account."""

import re
from pathlib import Path

import pytest

from tests.terraform.conftest import PROVIDER, Terraform, cli_config, holds_provider, provider_arguments, this_target

# What the README takes for granted.
SURROUNDINGS = """
data "aws_ami" "pytorch" {
  most_recent = true
  owners      = ["amazon"]
}

resource "aws_security_group" "gpu" {}

locals {
  vpc = "vpc-0123456789abcdef0"
}
""" + "".join(f'resource "aws_subnet" "{zone}" {{ vpc_id = local.vpc }}\n' for zone in "abc")

pytestmark = pytest.mark.timeout(300)


def test_the_module_is_formatted(terraform: Terraform) -> None:
    terraform.run("fmt", "-check", "-diff", "-recursive")


def test_the_contract_keeps_its_promises_without_a_provider(terraform: Terraform) -> None:
    terraform.init("modules/contract")
    terraform.run("validate", "-no-color", folder="modules/contract")

    terraform.run("test", "-no-color", folder="modules/contract")

    assert not list((terraform.root / "modules/contract/.terraform").glob("providers/**/terraform-provider-*"))


def test_the_usage_in_the_readme_is_valid(terraform_with_provider: Terraform) -> None:
    """Validates the module too, and shows that template and instance profile, which name each other, make no cycle."""
    usage = next(re.finditer(r"```hcl\n(.*?)```", (terraform_with_provider.root / "README.md").read_text("utf-8"), re.DOTALL)).group(1)
    folder = terraform_with_provider.root / "usage"
    folder.mkdir()
    (folder / "main.tf").write_text(usage.replace('"./terraform"', '"../"') + SURROUNDINGS)

    terraform_with_provider.init("usage")
    terraform_with_provider.run("validate", "-no-color", folder="usage")


@pytest.mark.long
def test_a_deployment_is_planned_as_promised(terraform_with_provider: Terraform) -> None:
    terraform_with_provider.run("test", "-no-color")


def test_no_lock_file_is_part_of_the_module() -> None:
    """A module leaves the choice of provider versions to its caller; a lock made from a mirror names one platform only."""
    module = Path(__file__).parents[2] / "terraform"
    ignored = (module.parent / ".gitignore").read_text().splitlines()

    assert {".terraform/", ".terraform.lock.hcl"} <= set(ignored)


def test_a_named_mirror_is_taken_before_all_others(tmp_path: Path) -> None:
    assert provider_arguments({"TF_PLUGIN_DIR": "/elsewhere"}, tmp_path) == ["-plugin-dir=/elsewhere"]


def test_the_users_own_installation_is_left_to_terraform(tmp_path: Path) -> None:
    (tmp_path / ".terraformrc").write_text('provider_installation { filesystem_mirror { path = "/elsewhere" } }')

    assert provider_arguments({}, tmp_path) == []


def test_a_configuration_that_does_not_exist_is_not_believed(tmp_path: Path) -> None:
    assert cli_config({"TF_CLI_CONFIG_FILE": str(tmp_path / "missing")}, tmp_path) is None


@pytest.mark.parametrize("layout", ["5.100.0/{target}/terraform-provider-aws_v5.100.0_x5", "terraform-provider-aws_5.100.0_{target}.zip"])
def test_a_mirror_is_found_unpacked_or_packed_for_this_machine_only(tmp_path: Path, layout: str) -> None:
    mirror = tmp_path / ".terraform.d" / "plugins"
    wrong, right = (mirror / PROVIDER / layout.format(target=target) for target in ("plan9_mips", this_target()))
    wrong.parent.mkdir(parents=True)
    wrong.touch()

    assert not holds_provider(mirror)

    right.parent.mkdir(parents=True, exist_ok=True)
    right.touch()
    assert provider_arguments({}, tmp_path) == [f"-plugin-dir={mirror}"]
