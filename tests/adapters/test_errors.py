"""What AWS's codes mean."""

import json
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    ReadTimeoutError,
)

from watchdog.adapters.aws.errors import cloud_errors, launch_failure, refusal, scope_of
from watchdog.errors import CloudUnavailable, LaunchOutcomeUnknown, LaunchRefused, LaunchScope


def client_error(code: str, status: int = 400, message: str = "(made-up text)") -> ClientError:
    response: Any = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "RunInstances")


@pytest.mark.parametrize(
    ("scope", "codes"),
    [
        (LaunchScope.POOL, ["InsufficientInstanceCapacity", "UnfulfillableCapacity", "SpotMaxPriceTooLow", "Unsupported"]),
        (LaunchScope.SUBNET, ["InsufficientFreeAddressesInSubnet"]),
        (LaunchScope.FAMILY, ["MaxSpotInstanceCountExceeded", "VcpuLimitExceeded"]),
        (LaunchScope.ACCOUNT, ["VolumeLimitExceeded", "MaxFleetCountExceeded"]),
        (LaunchScope.THROTTLED, ["RequestLimitExceeded", "Throttling", "ThrottlingException", "SlowDown"]),
        (LaunchScope.TRANSIENT, ["InternalError", "ServiceUnavailable", "InvalidInstanceID.NotFound"]),
        (LaunchScope.ATTEMPT, ["IdempotentInstanceTerminated"]),
        (LaunchScope.OURS, ["IdempotentParameterMismatch", "InvalidVolume.ZoneMismatch"]),
        (
            LaunchScope.CONFIGURATION,
            [
                "InvalidParameterValue",
                "InvalidAMIID.NotFound",
                "InvalidSubnetID.NotFound",
                "UnauthorizedOperation",
                "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
                "OptInRequired",
                "PendingVerification",
                "UnsupportedOperation",
                "InsufficientHostCapacity",
            ],
        ),
    ],
)
@pytest.mark.parametrize("status", [400, 500, 503])
def test_the_code_decides_whatever_the_status(scope: LaunchScope, codes: list[str], status: int) -> None:
    assert dict.fromkeys(codes, scope) == {code: scope_of(code, status) for code in codes}


@pytest.mark.parametrize(
    ("code", "status", "scope"),
    [
        ("SomethingNew", 400, LaunchScope.CONFIGURATION),
        ("SomethingNew", 403, LaunchScope.CONFIGURATION),
        ("SomethingNew", 500, LaunchScope.POOL),
        ("SomethingNew", 503, LaunchScope.THROTTLED),
        ("SomethingNew", 429, LaunchScope.THROTTLED),
        ("503", 503, LaunchScope.THROTTLED),
    ],
)
def test_the_status_decides_for_codes_we_do_not_know(code: str, status: int, scope: LaunchScope) -> None:
    assert scope_of(code, status) is scope


def test_a_refusal_keeps_code_and_message() -> None:
    refused = refusal(client_error("MaxSpotInstanceCountExceeded", message="Max spot instance count exceeded"))
    assert (refused.code, refused.message, refused.scope) == (
        "MaxSpotInstanceCountExceeded",
        "Max spot instance count exceeded",
        LaunchScope.FAMILY,
    )


def test_the_encoded_authorization_message_is_not_kept_e28() -> None:
    secret = "AbCdEf" * 300
    text = f"You are not authorized to perform this operation. Encoded authorization failure message: {secret}"
    refused = refusal(client_error("UnauthorizedOperation", 403, text))
    assert "AbCdEf" not in str(refused)
    assert "You are not authorized to perform this operation." in refused.message


@pytest.mark.parametrize(
    "error",
    [
        client_error("502", 502),
        client_error("500", 500),
        ReadTimeoutError(endpoint_url="http://127.0.0.1"),
        ConnectTimeoutError(endpoint_url="http://127.0.0.1"),
        EndpointConnectionError(endpoint_url="http://127.0.0.1"),
    ],
)
def test_a_launch_without_an_answer_is_unknown_and_not_refused(error: BotoCoreError | ClientError) -> None:
    assert isinstance(launch_failure(error), LaunchOutcomeUnknown)


@pytest.mark.parametrize(
    ("error", "scope"),
    [(NoCredentialsError(), LaunchScope.CONFIGURATION), (ParamValidationError(report="x"), LaunchScope.OURS)],
)
def test_a_launch_that_never_left_is_refused(error: BotoCoreError, scope: LaunchScope) -> None:
    failure = launch_failure(error)
    assert isinstance(failure, LaunchRefused)
    assert failure.scope is scope


@pytest.mark.parametrize("error", [client_error("RequestLimitExceeded", 503), ReadTimeoutError(endpoint_url="http://127.0.0.1")])
def test_every_other_call_that_fails_may_be_made_again(error: Exception) -> None:
    with pytest.raises(CloudUnavailable, match="DescribeInstances"), cloud_errors("DescribeInstances"):
        raise error


def test_every_code_of_the_recorded_errors_is_in_the_table() -> None:
    recorded = json.loads((Path(__file__).parent / "samples" / "ec2-client-errors.json").read_text())
    launches = [each for each in recorded if each["operation_name"] == "RunInstances" and each["Error"]["Code"] != "DryRunOperation"]
    assert len(launches) == 12
    for each in launches:
        code = each["Error"]["Code"]
        # A code that is not in the table would change its meaning with the status.
        assert scope_of(code, 400) is scope_of(code, 500), code
