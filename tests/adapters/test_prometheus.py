"""Measurements as Prometheus scrapes them."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from watchdog.adapters.prometheus import PrometheusTelemetry


def samples(telemetry: PrometheusTelemetry) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(telemetry.render().decode())
    return {(each.name, tuple(sorted(each.labels.items()))): each.value for family in families for each in family.samples}


def test_counters_gauges_and_timings_are_rendered() -> None:
    telemetry = PrometheusTelemetry()
    telemetry.count("spot_watchdog_notices_total", kind="spot_interruption")
    telemetry.count("spot_watchdog_notices_total", 2, kind="spot_interruption")
    telemetry.count("spot_watchdog_instances_swept_total")
    telemetry.gauge("spot_watchdog_price_dollars", 0.41, pool="use1-az4/g5.xlarge/spot")
    telemetry.gauge("spot_watchdog_price_dollars", 0.39, pool="use1-az4/g5.xlarge/spot")
    telemetry.observe("spot_watchdog_notice_to_resumed_seconds", 22.5)
    seen = samples(telemetry)
    assert seen["spot_watchdog_notices_total", (("kind", "spot_interruption"),)] == 3
    assert seen["spot_watchdog_instances_swept_total", ()] == 1
    assert seen["spot_watchdog_price_dollars", (("pool", "use1-az4/g5.xlarge/spot"),)] == 0.39
    assert seen["spot_watchdog_notice_to_resumed_seconds_sum", ()] == 22.5
    assert seen["spot_watchdog_notice_to_resumed_seconds_bucket", (("le", "20.0"),)] == 0
    assert seen["spot_watchdog_notice_to_resumed_seconds_bucket", (("le", "30.0"),)] == 1


def test_two_registries_do_not_mix() -> None:
    first, second = PrometheusTelemetry(), PrometheusTelemetry()
    first.count("spot_watchdog_notices_total")
    second.count("spot_watchdog_notices_total")
    assert samples(first)["spot_watchdog_notices_total", ()] == 1


def test_the_labels_of_a_metric_cannot_change() -> None:
    telemetry = PrometheusTelemetry()
    telemetry.count("spot_watchdog_notices_total", kind="x")
    with pytest.raises(ValueError, match="label"):
        telemetry.count("spot_watchdog_notices_total", outcome="y")
