"""The API's description is a contract: checked in, whole, and about the service only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from api.app import create_app

DOCUMENT: dict[str, Any] = create_app(None).openapi()
CHECKED_IN = Path(__file__).parents[2] / "docs" / "openapi.json"
OPERATIONS = [(path, method, operation) for path, methods in DOCUMENT["paths"].items() for method, operation in methods.items()]
NAMES = [operation["operationId"] for _, _, operation in OPERATIONS]


def test_the_checked_in_document_is_the_present_one() -> None:
    assert json.loads(CHECKED_IN.read_text()) == DOCUMENT, "run: ./run exec spot-watchdog openapi > docs/openapi.json"


@pytest.mark.parametrize(("path", "method", "operation"), OPERATIONS, ids=NAMES)
def test_every_operation_is_described_and_its_errors_are_problems_only(path: str, method: str, operation: dict[str, Any]) -> None:
    assert operation["summary"]
    assert operation["description"]
    assert operation["tags"]
    for status, response in operation["responses"].items():
        if int(status) >= 400:
            assert list(response["content"]) == ["application/problem+json"], f"{method} {path} {status}"


def test_exactly_the_operations_endpoints_are_public() -> None:
    public = {operation["operationId"] for _, _, operation in OPERATIONS if not operation.get("security")}
    assert public == {"get_health", "get_readiness", "get_metrics"}


def test_every_reference_leads_somewhere() -> None:
    text = json.dumps(DOCUMENT)
    wanted = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert wanted <= set(DOCUMENT["components"]["schemas"])
