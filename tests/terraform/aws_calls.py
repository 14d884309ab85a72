"""The AWS actions that the service's adapters call, read from their source."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import botocore.session
from botocore import xform_name

# The clients of `watchdog.adapters.aws.session.Aws`, by boto3's name of their service.
CLIENTS = {"ec2": "ec2", "ec2_launch": "ec2", "sqs": "sqs", "s3": "s3", "service_quotas": "service-quotas"}
IAM_PREFIX = {"service-quotas": "servicequotas"}
# S3 names its permissions after what is done to a bucket or object, not after the call. S3 User Guide, "Required permissions for API operations".
IAM_NAMES = {"s3:HeadBucket": "s3:ListBucket", "s3:ListObjectsV2": "s3:ListBucket", "s3:HeadObject": "s3:GetObject"}
NO_CALLS = frozenset({"exceptions", "meta"})
MAKES_THE_CLIENTS = "session.py"
"""Opens and closes them, and asks AWS nothing."""


class UnreadableCall(Exception):
    """A client is used in a way that this reader does not follow, so a call could be missed."""


def actions_called(folder: Path) -> frozenset[str]:
    """Return the IAM actions behind every call on a boto3 client under `folder`. Raises UnreadableCall."""
    called = set()
    for path in sorted(path for path in folder.rglob("*.py") if path.name != MAKES_THE_CLIENTS):
        for client, method in _methods(ast.parse(path.read_text("utf-8")), path.name):
            service = CLIENTS[client]
            action = f"{IAM_PREFIX.get(service, service)}:{_operations(service)[method]}"
            called.add(IAM_NAMES.get(action, action))
    return frozenset(called)


def _methods(tree: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    """Yield client and method of each `….client.method`; a paginator counts as the method that it calls."""
    paginators = {
        id(call.func): call.args[0].value
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str)
    }
    followed = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (client := _client(node.value)):
            followed.add(id(node.value))
            if node.attr in {"get_paginator", "get_waiter"}:
                if id(node) not in paginators:
                    raise UnreadableCall(f"{name}:{node.lineno}: {node.attr} without a literal name")
                yield client, paginators[id(node)]
            elif node.attr not in NO_CALLS:
                yield client, node.attr
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _client(node) and id(node) not in followed:
            raise UnreadableCall(f"{name}:{node.lineno}: call the client's method where the client is named")


def _client(node: ast.AST) -> str | None:
    """Return which client `….ec2` is. A bare `ec2` is none: clients are reached through `Aws`."""
    return node.attr if isinstance(node, ast.Attribute) and node.attr in CLIENTS else None


@cache
def _operations(service: str) -> dict[str, str]:
    """Return the API's name of each client method, e.g. `RunInstances` for `run_instances`."""
    model = botocore.session.get_session().get_service_model(service)
    return {xform_name(operation): operation for operation in model.operation_names}
