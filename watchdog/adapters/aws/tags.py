"""The tags by which we know our own instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import TagSpecificationTypeDef, TagTypeDef

# Only characters that are also allowed where InstanceMetadataTags is enabled.
DEPLOYMENT = "spot-watchdog:deployment"
MANAGED_BY = "managed-by"
_OURSELVES = "spot-watchdog"

_VALUE_CHARACTERS = 256
_DIGEST_CHARACTERS = 12


def specifications(resources: Sequence[str], *, deployment: str, tags: Mapping[str, str]) -> list[TagSpecificationTypeDef]:
    """Return the tags of a launch for each kind of resource; those that say whose it is cannot be overridden."""
    owned = {**tags, DEPLOYMENT: deployment, MANAGED_BY: _OURSELVES}
    listed: list[TagTypeDef] = [{"Key": key, "Value": _fitting(value)} for key, value in owned.items()]
    return [{"ResourceType": resource, "Tags": listed} for resource in resources]  # type: ignore[typeddict-item]


def as_mapping(tags: Sequence[TagTypeDef]) -> dict[str, str]:
    """Return EC2's list of tags as a mapping."""
    return {tag["Key"]: tag.get("Value", "") for tag in tags if "Key" in tag}


def _fitting(value: str) -> str:
    """Cut a value that EC2 would refuse, so that two different ones stay different."""
    if len(value) <= _VALUE_CHARACTERS:
        return value
    digest = sha256(value.encode("utf-8", "replace")).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{value[: _VALUE_CHARACTERS - _DIGEST_CHARACTERS - 1]}~{digest}"
