"""Service Quotas for EC2's vCPU limits; moto itself knows only those of VPC."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.servicequotas.responses import ServiceQuotasResponse

from watchdog.emulator import vcpu_quotas
from watchdog.emulator.event_bus import ACCOUNT_ID
from watchdog.emulator.market import SpotMarket
from watchdog.emulator.vcpu_quotas import VcpuQuota

_LARGEST_PAGE = 100


def install(market: SpotMarket) -> None:
    """Answer for the service code `ec2` from `market`; everything else stays moto's. Once per process."""
    others: Callable[[ServiceQuotasResponse], str] = ServiceQuotasResponse.get_service_quota
    other_defaults: Callable[[ServiceQuotasResponse], str] = ServiceQuotasResponse.list_aws_default_service_quotas

    def get_service_quota(self: ServiceQuotasResponse) -> str:
        if self._get_param("ServiceCode") != "ec2":
            return others(self)
        quota = _find(self._get_param("QuotaCode"))
        return json.dumps({"Quota": _shape(quota, market.quota(quota.code), self.region)})

    def get_aws_default_service_quota(self: ServiceQuotasResponse) -> str:
        _require_ec2(self)
        quota = _find(self._get_param("QuotaCode"))
        return json.dumps({"Quota": _shape(quota, quota.aws_default, self.region)})

    def list_service_quotas(self: ServiceQuotasResponse) -> str:
        _require_ec2(self)
        return _page(self, [_shape(quota, market.quota(quota.code), self.region) for quota in vcpu_quotas.QUOTAS])

    def list_aws_default_service_quotas(self: ServiceQuotasResponse) -> str:
        if self._get_param("ServiceCode") != "ec2":
            return other_defaults(self)
        return _page(self, [_shape(quota, quota.aws_default, self.region) for quota in vcpu_quotas.QUOTAS])

    for method in (get_service_quota, get_aws_default_service_quota, list_service_quotas, list_aws_default_service_quotas):
        setattr(ServiceQuotasResponse, method.__name__, method)


def _require_ec2(response: ServiceQuotasResponse) -> None:
    if response._get_param("ServiceCode") != "ec2":  # noqa: SLF001 - how every response class of moto reads its parameters
        raise _no_such_resource()


def _find(code: str) -> VcpuQuota:
    if code not in vcpu_quotas.BY_CODE:
        raise _no_such_resource()
    return vcpu_quotas.BY_CODE[code]


def _no_such_resource() -> JsonRESTError:
    return JsonRESTError("NoSuchResourceException", "The request failed because the specified quota does not exist.")


def _page(response: ServiceQuotasResponse, quotas: list[dict[str, Any]]) -> str:
    start = int(response._get_param("NextToken") or 0)  # noqa: SLF001
    end = start + min(int(response._get_param("MaxResults") or _LARGEST_PAGE), _LARGEST_PAGE)  # noqa: SLF001
    answer: dict[str, Any] = {"Quotas": quotas[start:end]}
    if end < len(quotas):
        answer["NextToken"] = str(end)
    return json.dumps(answer)


def _shape(quota: VcpuQuota, value: float, region: str) -> dict[str, Any]:
    return {
        "ServiceCode": "ec2",
        "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
        "QuotaArn": f"arn:aws:servicequotas:{region}:{ACCOUNT_ID}:ec2/{quota.code}",
        "QuotaCode": quota.code,
        "QuotaName": quota.name,
        "Value": value,
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
        "UsageMetric": {
            "MetricNamespace": "AWS/Usage",
            "MetricName": "ResourceCount",
            "MetricDimensions": {"Class": quota.usage_class, "Resource": "vCPU", "Service": "EC2", "Type": "Resource"},
            "MetricStatisticRecommendation": "Maximum",
        },
        "QuotaAppliedAtLevel": "ACCOUNT",
    }
