"""Quotas, prices, faults, objects, and the emulator as a process."""

from __future__ import annotations

import signal
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.emulator.world import World, emulator, error_of, sleepers, until
from watchdog.emulator.account import provision

CODE = "L-88CF9481"


def test_a_quota_is_told_as_service_quotas_tells_it(world: World) -> None:
    world.control("PUT", f"quotas/{CODE}", {"value": 24})
    quotas = world.client("service-quotas")
    applied = quotas.get_service_quota(ServiceCode="ec2", QuotaCode=CODE)["Quota"]
    default = quotas.get_aws_default_service_quota(ServiceCode="ec2", QuotaCode=CODE)["Quota"]
    assert (applied["Value"], default["Value"]) == (24.0, 0.0)
    assert applied["UsageMetric"]["MetricDimensions"] == {"Class": "F/Spot", "Resource": "vCPU", "Service": "EC2", "Type": "Resource"}
    assert (applied["Unit"], applied["QuotaAppliedAtLevel"]) == ("None", "ACCOUNT")


def test_the_list_of_quotas_comes_in_pages(world: World) -> None:
    pages = list(
        world.client("service-quotas").get_paginator("list_service_quotas").paginate(ServiceCode="ec2", PaginationConfig={"PageSize": 4})
    )
    codes = [quota["QuotaCode"] for page in pages for quota in page["Quotas"]]
    assert len(pages) > 1
    assert len(codes) == len(set(codes))
    assert {"L-3819A6DF", "L-7212CCBC", "L-C4BD4855", "L-DB2E81BA", "L-417A185B"} <= set(codes)


def test_an_unknown_quota_does_not_exist(world: World) -> None:
    quotas = world.client("service-quotas")
    assert error_of(lambda: quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-00000000")) == ("NoSuchResourceException", 400)
    assert world.http.put(f"{world.endpoint}/_emulator/quotas/L-00000000", json={"value": 1}).status_code == 404


def prices(world: World, **query: Any) -> list[dict[str, Any]]:
    history: list[dict[str, Any]] = world.ec2.describe_spot_price_history(ProductDescriptions=["Linux/UNIX"], **query)["SpotPriceHistory"]
    return history


def test_the_price_of_now_is_one_row_for_each_zone_that_has_the_type(world: World) -> None:
    rows = prices(world, InstanceTypes=["g5.xlarge"], StartTime=datetime.now(UTC))
    offered = world.ec2.describe_instance_type_offerings(
        LocationType="availability-zone-id", Filters=[{"Name": "instance-type", "Values": ["g5.xlarge"]}]
    )
    assert sorted(each["Location"] for each in offered["InstanceTypeOfferings"]) == sorted(row["AvailabilityZoneId"] for row in rows)
    assert all(float(row["SpotPrice"]) > 0 for row in rows)


def test_a_price_that_is_set_is_the_price_and_the_step_before_stays_in_the_history(world: World) -> None:
    world.control("PUT", "pools/use1-az6/g6.xlarge/spot", {"price": 0.415})
    query = {"InstanceTypes": ["g6.xlarge"], "AvailabilityZone": "us-east-1a"}
    (now,) = prices(world, **query, StartTime=datetime.now(UTC) + timedelta(seconds=1))
    assert (now["SpotPrice"], now["AvailabilityZoneId"]) == ("0.415000", "use1-az6")
    assert len(prices(world, **query)) == 2


def test_prices_of_another_product_are_not_made_up(world: World) -> None:
    assert world.ec2.describe_spot_price_history(InstanceTypes=["g5.xlarge"], ProductDescriptions=["Windows"])["SpotPriceHistory"] == []


def test_price_history_comes_in_pages(world: World) -> None:
    first = world.ec2.describe_spot_price_history(InstanceTypes=["g5.2xlarge"], MaxResults=2)
    second = world.ec2.describe_spot_price_history(InstanceTypes=["g5.2xlarge"], MaxResults=1000, NextToken=first["NextToken"])
    assert len(first["SpotPriceHistory"]) == 2
    assert second.get("NextToken", "") == ""
    zones = [row["AvailabilityZone"] for page in (first, second) for row in page["SpotPriceHistory"]]
    assert len(zones) == len(set(zones)) > 2


# --- faults -----------------------------------------------------------------------------------------------------------------------------


def test_a_throttled_call_is_an_http_503_and_others_go_through(world: World) -> None:
    world.control("PUT", "faults", {"throttle_actions": ["RunInstances", "GetServiceQuota"]})
    assert error_of(world.launch) == ("RequestLimitExceeded", 503)
    assert error_of(lambda: world.client("service-quotas").get_service_quota(ServiceCode="ec2", QuotaCode=CODE))[0] == "ThrottlingException"
    assert world.ec2.describe_availability_zones()["AvailabilityZones"]
    world.control("PUT", "faults", {})
    assert world.launch().startswith("i-")


def test_an_order_of_faults_that_is_misspelt_is_refused(world: World) -> None:
    assert world.http.put(f"{world.endpoint}/_emulator/faults", json={"conditional_write": False}).status_code == 422


def put(world: World, key: str, body: str, **conditions: str) -> str:
    etag: str = world.client("s3").put_object(Bucket=world.account.bucket, Key=key, Body=body.encode(), **conditions)["ETag"]
    return etag


def test_conditional_writes_hold_until_the_fault_makes_the_store_ignore_them(world: World) -> None:
    first = put(world, "jobs/a/HEAD", "1", IfNoneMatch="*")
    assert error_of(lambda: put(world, "jobs/a/HEAD", "2", IfNoneMatch="*")) == ("PreconditionFailed", 412)
    put(world, "jobs/a/HEAD", "2", IfMatch=first)
    assert error_of(lambda: put(world, "jobs/a/HEAD", "3", IfMatch=first)) == ("PreconditionFailed", 412)
    world.control("PUT", "faults", {"conditional_writes": False})
    put(world, "jobs/a/HEAD", "4", IfMatch=first)
    assert world.client("s3").get_object(Bucket=world.account.bucket, Key="jobs/a/HEAD")["Body"].read() == b"4"


def test_of_many_writers_with_the_same_condition_exactly_one_wins(world: World) -> None:
    etag = put(world, "jobs/race/HEAD", "0")
    outcomes: list[str] = []

    def write(name: str) -> None:
        try:
            put(world, "jobs/race/HEAD", name * 1000, IfMatch=etag)
        except world.client("s3").exceptions.ClientError as error:
            outcomes.append(error.response["Error"]["Code"])
        else:
            outcomes.append("won")

    threads = [threading.Thread(target=write, args=(str(number),)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["PreconditionFailed"] * 9 + ["won"]


def test_the_timeline_knows_when_heads_and_manifests_were_written_and_only_those(world: World) -> None:
    put(world, "jobs/b/HEAD", "1", IfNoneMatch="*")
    error_of(lambda: put(world, "jobs/b/HEAD", "2", IfNoneMatch="*"))
    put(world, "jobs/b/manifests/00000001/1.json", "{}")
    put(world, "jobs/b/data/1.bin", "x")
    written = [each["detail"]["key"] for each in world.timeline("object_written") if each["detail"]["key"].startswith("jobs/b/")]
    assert written == ["jobs/b/HEAD", "jobs/b/manifests/00000001/1.json"]


def test_the_timeline_can_be_read_on_from_where_one_stopped(world: World) -> None:
    last = world.control("GET", "timeline")["entries"][-1]["seq"]
    put(world, "jobs/c/HEAD", "1")
    fresh = world.control("GET", f"timeline?after={last}")["entries"]
    assert list(range(last + 1, last + 1 + len(fresh))) == [each["seq"] for each in fresh]
    assert "jobs/c/HEAD" in {each["detail"].get("key") for each in fresh}


# --- the account and the process --------------------------------------------------------------------------------------------------------


def test_an_account_can_be_limited_to_zones_that_exist(world: World) -> None:
    two = provision(world.endpoint, deployment="two", region="us-east-1", zones=["use1-az4", "use1-az6"])
    assert list(two.subnets) == ["use1-az4", "use1-az6"]
    with pytest.raises(ValueError, match="use1-az99"):
        provision(world.endpoint, deployment="three", region="us-east-1", zones=["use1-az99"])


def test_a_message_that_nobody_deletes_ends_in_the_dead_letter_queue(world: World) -> None:
    sqs = world.client("sqs")
    policy = sqs.get_queue_attributes(QueueUrl=world.account.queue_url, AttributeNames=["RedrivePolicy"])["Attributes"]["RedrivePolicy"]
    dead = sqs.get_queue_attributes(QueueUrl=world.account.dead_letter_queue_url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    assert dead in policy


def test_sigterm_ends_the_emulator_and_every_instance(credentials: None, tmp_path: Path) -> None:
    run_dir = tmp_path.resolve()
    with emulator(run_dir) as (process, endpoint), World.over(endpoint, run_dir) as world:
        homes = [world.booted(UserData="#!/bin/sh\nsetsid sleep 611 &\nsleep 612\n")["home"] for _ in range(2)]
        until(lambda: all(len(sleepers(home)) >= 3 for home in homes), "the processes of both instances")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
        assert [sleepers(home) for home in homes] == [[], []]
