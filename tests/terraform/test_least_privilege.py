"""The contract of the Terraform module against the code: rights, settings and tags."""

import re
from pathlib import Path

import pytest

from tests.terraform.aws_calls import UnreadableCall, actions_called
from watchdog.adapters.aws import tags
from watchdog.settings import Settings

ROOT = Path(__file__).parents[2]
CONTRACT = ROOT / "terraform/modules/contract/main.tf"

# Rights that no call is named after, and what asks for them.
BEHIND_OTHER_CALLS = {
    "ec2:CreateTags": "RunInstances tags what it starts",
    "iam:PassRole": "RunInstances gives the instance its role",
    "s3:ListBucket": "without it a missing key answers 403 instead of 404",
}


def actions_granted() -> frozenset[str]:
    """Return the actions that the service's statements allow."""
    text = CONTRACT.read_text("utf-8")
    service = text[text.index("service_statements = ") : text.index("ecs_trust = ")]
    granted = re.findall(r"\bAction\s*=\s*(\[[^\]]*\]|\"[^\"]*\")", service)
    return frozenset(action for each in granted for action in re.findall(r'"([^"]+)"', each))


def test_the_service_may_do_what_it_does_and_nothing_else() -> None:
    called = actions_called(ROOT / "watchdog/adapters/aws")

    assert called - actions_granted() == set(), "calls that IAM would refuse: grant them in terraform/modules/contract/main.tf"
    assert actions_granted() - called == set(BEHIND_OTHER_CALLS), "rights that nothing uses: take them back"


@pytest.mark.parametrize(
    ("source", "actions"),
    [
        ("aws.call(aws.ec2.terminate_instances, InstanceIds=[])", {"ec2:TerminateInstances"}),
        ("self._aws.ec2_launch.run_instances()", {"ec2:RunInstances"}),
        ("pages = self._aws.service_quotas.get_paginator('list_service_quotas').paginate", {"servicequotas:ListServiceQuotas"}),
        ("self._aws.s3.head_object(Key='HEAD')", {"s3:GetObject"}),
        ("raised = self._aws.s3.exceptions.NoSuchKey", set()),
    ],
)
def test_the_reader_finds_a_call(tmp_path: Path, source: str, actions: set[str]) -> None:
    (tmp_path / "adapter.py").write_text(source)

    assert actions_called(tmp_path) == actions


@pytest.mark.parametrize("source", ["ec2 = aws.ec2", "aws.ec2.get_paginator(name)", "helper(self._aws.sqs)"])
def test_the_reader_refuses_what_it_cannot_follow(tmp_path: Path, source: str) -> None:
    (tmp_path / "adapter.py").write_text(source)

    with pytest.raises(UnreadableCall):
        actions_called(tmp_path)


def test_the_module_speaks_of_settings_that_the_service_has() -> None:
    text = (ROOT / "terraform/outputs.tf").read_text("utf-8") + (ROOT / "terraform/README.md").read_text("utf-8")
    named = set(re.findall(r"SPOT_WATCHDOG_([A-Z_]+)", text))

    assert named
    assert {name.lower() for name in named} - Settings.model_fields.keys() == set()


def test_iam_asks_for_the_tags_that_the_service_writes() -> None:
    (specification,) = tags.specifications(["instance"], deployment="demo", tags={})
    written = {tag["Key"]: tag["Value"] for tag in specification["Tags"] if "Key" in tag}

    asked = CONTRACT.read_text("utf-8")
    block = asked[asked.index("tags = {") :]
    wanted = dict(re.findall(r'"([^"]+)"\s*=\s*(?:"([^"]+)"|var\.name)', block[: block.index("}")]))

    assert wanted.keys() == written.keys()
    assert wanted[tags.MANAGED_BY] == written[tags.MANAGED_BY]
