"""What AWS's error codes mean: the one table.

Services ask what an error means, never what it is called. Sources: Amazon EC2 API Reference, "Error codes" and "Ensuring idempotency";
Karpenter's `pkg/errors`; botocore's own set of throttling codes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, ParamValidationError, PartialCredentialsError
from botocore.parsers import ResponseParserError

from watchdog.errors import CloudUnavailable, LaunchOutcomeUnknown, LaunchRefused, LaunchScope

_CODES: Mapping[LaunchScope, tuple[str, ...]] = {
    LaunchScope.POOL: (
        "InsufficientInstanceCapacity",
        "UnfulfillableCapacity",
        "SpotMaxPriceTooLow",
        "Unsupported",  # the type is not offered in this zone
        "InsufficientVolumeCapacity",
        "InsufficientReservedInstanceCapacity",
        "ReservationCapacityExceeded",
    ),
    LaunchScope.SUBNET: ("InsufficientFreeAddressesInSubnet",),
    LaunchScope.FAMILY: ("MaxSpotInstanceCountExceeded", "VcpuLimitExceeded"),
    LaunchScope.ACCOUNT: (
        "AddressLimitExceeded",
        "Blocked",
        "InstanceLimitExceeded",
        "MaxFleetCountExceeded",
        "MaxIOPSLimitExceeded",
        "MaxSpotFleetRequestCountExceeded",
        "NetworkInterfaceLimitExceeded",
        "ResourceCountExceeded",
        "ResourceLimitExceeded",
        "VolumeLimitExceeded",
    ),
    LaunchScope.THROTTLED: (
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
        "LimitExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    ),
    LaunchScope.TRANSIENT: (
        "ExpiredToken",  # the SDK renews an instance role's credentials by itself
        "InsufficientAddressCapacity",
        "InternalError",
        "InternalFailure",
        "InvalidInstanceID.NotFound",  # an instance so new that EC2 does not show it yet
        "InvalidSpotInstanceRequestID.NotFound",
        "RequestExpired",
        "ServiceUnavailable",
        "Unavailable",
    ),
    LaunchScope.ATTEMPT: ("IdempotentInstanceTerminated",),
    LaunchScope.OURS: ("IdempotentParameterMismatch", "InvalidVolume.ZoneMismatch"),
    LaunchScope.CONFIGURATION: (
        "AuthFailure",
        "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
        "IncompleteSignature",
        "InsufficientCapacityOnHost",  # Dedicated Hosts only: the launch template asks for one
        "InsufficientHostCapacity",
        "InvalidAMIID.Malformed",
        "InvalidAMIID.NotFound",
        "InvalidAMIID.Unavailable",
        "InvalidBlockDeviceMapping",
        "InvalidClientTokenId",
        "InvalidGroup.NotFound",
        "InvalidKeyPair.NotFound",
        "InvalidLaunchTemplateId.Malformed",
        "InvalidLaunchTemplateId.NotFound",
        "InvalidLaunchTemplateName.NotFoundException",
        "InvalidParameterCombination",
        "InvalidParameterValue",
        "InvalidPlacementGroup.Unknown",
        "InvalidRequest",
        "InvalidSecurityGroupID.NotFound",
        "InvalidSubnetID.NotFound",
        "InvalidUserData.Malformed",
        "MissingAuthenticationToken",
        "MissingParameter",
        "OptInRequired",
        "PendingVerification",
        "SignatureDoesNotMatch",
        "TagPolicyViolation",
        "UnauthorizedOperation",
        "UnknownParameter",
        "UnsupportedOperation",  # the image and the type do not fit, e.g. arm64 and x86_64
    ),
}
_SCOPES: Mapping[str, LaunchScope] = {code: scope for scope, codes in _CODES.items() for code in codes}

NO_ANSWER = (BotoCoreError, ResponseParserError)
"""What boto3 raises where no answer of AWS came: timeouts, lost connections, and the HTML page of some gateway, which is no BotoCoreError."""

_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500
_SERVICE_UNAVAILABLE = 503
_ENCODED_AUTHORIZATION = "Encoded authorization failure message"
_MESSAGE_CHARACTERS = 500


def scope_of(code: str, status: int) -> LaunchScope:
    """Say what a refused launch says no to, by EC2's error code; the HTTP status decides only for codes that are not in the table.

    An unknown 4xx stops the job and tells a person, an unknown 5xx costs one pool.
    """
    if code in _SCOPES:
        return _SCOPES[code]
    if status in {_TOO_MANY_REQUESTS, _SERVICE_UNAVAILABLE}:
        return LaunchScope.THROTTLED
    return LaunchScope.POOL if status >= _SERVER_ERROR else LaunchScope.CONFIGURATION


def refusal(error: ClientError) -> LaunchRefused:
    """Return what EC2's answer to a launch means."""
    code, message, status = _parts(error)
    return LaunchRefused(code, message, scope_of(code, status))


def launch_failure(error: ClientError | BotoCoreError | ResponseParserError) -> LaunchRefused | LaunchOutcomeUnknown:
    """Return what a failed launch means: refused if EC2 said so or the call surely never left this machine, else unknown."""
    if isinstance(error, ClientError):
        code, _, status = _parts(error)
        # botocore gives the bare status as the code of an answer that is not EC2's, such as a gateway's: EC2 may have launched.
        silent = code.isdecimal() and status >= _SERVER_ERROR and status != _SERVICE_UNAVAILABLE
        return LaunchOutcomeUnknown(f"RunInstances: HTTP {status} without an error of EC2's") if silent else refusal(error)
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return LaunchRefused("NoCredentials", str(error), LaunchScope.CONFIGURATION)
    if isinstance(error, ParamValidationError):
        return LaunchRefused("ParamValidation", str(error), LaunchScope.OURS)
    return LaunchOutcomeUnknown(f"RunInstances: {_readable(str(error))}")


def code_of(error: ClientError) -> str:
    """Return AWS's error code, or the bare HTTP status where there is none."""
    return _parts(error)[0]


@contextmanager
def cloud_errors(operation: str) -> Iterator[None]:
    """Turn every failure of an AWS call, but for launches, into CloudUnavailable."""
    try:
        yield
    except ClientError as error:
        code, message, _ = _parts(error)
        raise CloudUnavailable(f"{operation}: {code}: {message}") from error
    except NO_ANSWER as error:
        raise CloudUnavailable(f"{operation}: {_readable(str(error))}") from error


def _parts(error: ClientError) -> tuple[str, str, int]:
    details = error.response.get("Error", {})
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return str(details.get("Code", status)), _readable(str(details.get("Message", ""))), status


def _readable(message: str) -> str:
    """Return AWS's sentence without the kilobyte of encoded text that follows a refused permission."""
    sentence, encoded, _ = message.partition(_ENCODED_AUTHORIZATION)
    if encoded:
        sentence += "(decode with sts:DecodeAuthorizationMessage, see CloudTrail)"
    return sentence[:_MESSAGE_CHARACTERS]
