"""Settings are checked together, and every fault is named."""

from __future__ import annotations

import pytest

from watchdog.errors import SettingsInvalid
from watchdog.settings import load_settings

GOOD = {
    "AWS_REGION": "us-east-1",
    "QUEUE_URL": "http://127.0.0.1:1/queue",
    "CHECKPOINT_STORE": "s3://bucket/prefix",
    "LAUNCH_TEMPLATES": '["lt-1", "lt-2"]',
    "PUBLIC_URL": "http://127.0.0.1:8080/",
    "API_TOKEN": "0123456789abcdef",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in GOOD.items():
        monkeypatch.setenv(f"SPOT_WATCHDOG_{name}", value)
    return monkeypatch


def test_good_settings_are_read() -> None:
    settings = load_settings()
    assert settings.launch_templates == ("lt-1", "lt-2")
    assert settings.public_url == "http://127.0.0.1:8080"
    assert settings.aws_endpoint_url is None


def test_a_list_may_be_written_with_commas(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("SPOT_WATCHDOG_SUBNETS", "subnet-1, subnet-2")
    assert load_settings().subnets == ("subnet-1", "subnet-2")


def test_all_faults_are_reported_at_once_by_the_names_of_their_variables(environment: pytest.MonkeyPatch) -> None:
    environment.delenv("SPOT_WATCHDOG_QUEUE_URL")
    environment.setenv("SPOT_WATCHDOG_PORT", "eighty")
    environment.setenv("SPOT_WATCHDOG_CHECKPOINT_STORE", "ftp://bucket")
    environment.setenv("SPOT_WATCHDOG_REDIS_URL", "localhost")
    environment.setenv("SPOT_WATCHDOG_LAUNCH_TEMPLATES", "")
    environment.setenv("SPOT_WATCHDOG_SCHEDULER_WEBHOOK_URL", "https://scheduler.example/hook")
    with pytest.raises(SettingsInvalid) as refused:
        load_settings()
    said = str(refused.value)
    for name in (
        "QUEUE_URL: is not set",
        "PORT: ",
        "CHECKPOINT_STORE: ",
        "REDIS_URL: must be a redis://",
        "LAUNCH_TEMPLATES: ",
        "SCHEDULER_WEBHOOK_SECRET: ",
    ):
        assert f"SPOT_WATCHDOG_{name}" in said


def test_i06_a_secret_is_never_repeated_in_a_fault(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("SPOT_WATCHDOG_API_TOKEN", "tooshortsecret")
    environment.setenv("SPOT_WATCHDOG_SLACK_WEBHOOK_URL", "hooks.slack.com/services/T0/B0/secretpart")
    with pytest.raises(SettingsInvalid) as refused:
        load_settings()
    assert "tooshortsecret" not in str(refused.value)
    assert "secretpart" not in str(refused.value)
    assert "SPOT_WATCHDOG_API_TOKEN" in str(refused.value)


@pytest.mark.parametrize("unreadable", ["[", '["lt-1"', "[1, 2"])
def test_an_unreadable_list_is_a_fault_with_a_name(environment: pytest.MonkeyPatch, unreadable: str) -> None:
    environment.setenv("SPOT_WATCHDOG_LAUNCH_TEMPLATES", unreadable)
    with pytest.raises(SettingsInvalid, match="LAUNCH_TEMPLATES"):
        load_settings()


def test_an_empty_allow_list_is_refused(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("SPOT_WATCHDOG_LAUNCH_TEMPLATES", "[]")
    with pytest.raises(SettingsInvalid, match="LAUNCH_TEMPLATES"):
        load_settings()


def test_a_scheduler_webhook_needs_its_secret(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("SPOT_WATCHDOG_SCHEDULER_WEBHOOK_URL", "https://scheduler.example/hook")
    with pytest.raises(SettingsInvalid, match="SCHEDULER_WEBHOOK_SECRET"):
        load_settings()
