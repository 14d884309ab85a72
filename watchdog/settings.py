"""Every setting of the service: read from the environment once, checked together, then passed in."""

from __future__ import annotations

import ipaddress
import json
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict, SettingsError

from watchdog.errors import SettingsInvalid

PREFIX = "SPOT_WATCHDOG_"


def _is_http_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("must be an http:// or https:// URL")
    return value.rstrip("/")


def _is_redis_url(value: str) -> str:
    if urlsplit(value).scheme not in {"redis", "rediss", "unix"}:
        raise ValueError("must be a redis://, rediss:// or unix:// URL")
    return value


def _is_secret_http_url(value: SecretStr) -> SecretStr:
    _is_http_url(value.get_secret_value())
    return value


def _split(value: Any) -> Any:
    """Read a list as JSON or as names separated by commas."""
    if not isinstance(value, str):
        return value
    if not value.lstrip().startswith("["):
        return [each.strip() for each in value.split(",") if each.strip()]
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        raise ValueError(f"must be a JSON list of names, or names separated by commas ({error})") from None


HttpUrl = Annotated[str, AfterValidator(_is_http_url)]
SecretHttpUrl = Annotated[SecretStr, AfterValidator(_is_secret_http_url)]
RedisUrl = Annotated[str, AfterValidator(_is_redis_url)]
# pydantic-settings alone would insist on JSON.
NameList = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]


class Settings(BaseSettings):
    """What an operator decides. Each field is the environment variable `SPOT_WATCHDOG_<NAME>`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore", hide_input_in_errors=True)

    deployment: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,31}$")] = "default"
    """Name of this deployment: in keys, tags and messages. Two services with the same name share their work."""
    redis_url: RedisUrl = "redis://127.0.0.1:6379/0"
    """Where the working record is."""
    aws_region: Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]+$")]
    """The Region of the jobs, e.g. `us-east-1`."""
    aws_endpoint_url: HttpUrl | None = None
    """Another endpoint for every AWS service, e.g. the emulator's; absent: real AWS."""
    queue_url: HttpUrl
    """The SQS queue that the EventBridge rules write to."""
    checkpoint_store: Annotated[str, Field(pattern=r"^s3://[a-z0-9][a-z0-9.-]{2,62}(/.*)?$")]
    """Where checkpoints go: `s3://bucket` or `s3://bucket/prefix`."""
    launch_templates: Annotated[NameList, Field(min_length=1)]
    """Ids or names of the EC2 launch templates that jobs may use. A job runs with its template's role."""
    subnets: NameList = ()
    """Ids of the subnets to launch in; empty: the default subnet of every zone."""
    public_url: HttpUrl
    """Where the agents reach this service."""
    api_token: Annotated[SecretStr, Field(min_length=16)]
    """Bearer token of the REST API, at least 16 characters. Agents' tokens are derived from it."""
    host: str = "127.0.0.1"
    """The address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """The port to listen on."""
    slack_webhook_url: SecretHttpUrl | None = None
    """An incoming webhook of Slack; the URL is a secret."""
    scheduler_webhook_url: HttpUrl | None = None
    """Where the scheduler hears of addresses and moves."""
    scheduler_webhook_secret: Annotated[SecretStr | None, Field(validate_default=True)] = None
    """`whsec_…`: signs the scheduler's webhook."""
    silence_check_seconds: Annotated[float, Field(gt=0, le=600)] = 5
    """Seconds between looks at instances whose agents fell silent."""
    market_poll_seconds: Annotated[float, Field(ge=1, le=86400)] = 60
    """Seconds between polls of prices and offerings."""
    quota_poll_seconds: Annotated[float, Field(ge=1, le=86400)] = 60
    """Seconds between polls of Service Quotas."""
    sweep_seconds: Annotated[float, Field(ge=1, le=86400)] = 30
    """Seconds between comparisons of the cloud with our records."""

    @field_validator("scheduler_webhook_secret", mode="after")
    @classmethod
    def _goes_with_its_url(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if value is None and info.data.get("scheduler_webhook_url"):
            raise ValueError(f"is needed with {PREFIX}SCHEDULER_WEBHOOK_URL")
        return value

    @property
    def listens_on_loopback(self) -> bool:
        """Return whether nobody but this machine can connect."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def load_settings() -> Settings:
    """Return the settings of the environment.

    Raises:
        SettingsInvalid: all faults at once, each with the variable's name; values are not repeated, some are secrets.
    """
    try:
        return Settings()
    except ValidationError as error:
        faults = [_fault(str(each["loc"][0]) if each["loc"] else None, each["msg"], each["type"]) for each in error.errors()]
        raise SettingsInvalid("\n".join(faults)) from None
    except (SettingsError, ValueError) as error:
        raise SettingsInvalid(f"the environment cannot be read: {error}") from None


def _fault(field: str | None, message: str, kind: str) -> str:
    said = "is not set, and is needed" if kind == "missing" else message.removeprefix("Value error, ")
    return f"{PREFIX}{field.upper()}: {said}" if field else said
