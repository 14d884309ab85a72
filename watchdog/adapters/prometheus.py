"""Measurements for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TypeVar

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

M = TypeVar("M", Counter, Gauge, Histogram)

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 45, 60, 90, 120, 180, 300, 600)
"""Around the two minutes that everything here is about."""


class PrometheusTelemetry:
    """`ports.Telemetry` with a registry of its own, so that two of them in one process do not mix.

    A metric is made when it is first used; its label names are fixed from then on, and other ones are a ValueError.
    """

    content_type = CONTENT_TYPE_LATEST
    """Of what `render` returns."""

    def __init__(self) -> None:
        """Start with no metrics."""
        self._registry = CollectorRegistry()
        self._lock = Lock()
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter; Prometheus wants its name to end in `_total`."""
        counter = self._metric(self._counters, name, lambda: Counter(name, _said(name), sorted(labels), registry=self._registry))
        (counter.labels(**labels) if labels else counter).inc(amount)

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        gauge = self._metric(self._gauges, name, lambda: Gauge(name, _said(name), sorted(labels), registry=self._registry))
        (gauge.labels(**labels) if labels else gauge).set(value)

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        """Record one duration in seconds."""
        histogram = self._metric(
            self._histograms, name, lambda: Histogram(name, _said(name), sorted(labels), registry=self._registry, buckets=_SECONDS)
        )
        (histogram.labels(**labels) if labels else histogram).observe(seconds)

    def render(self) -> bytes:
        """Return everything in the text format that Prometheus scrapes."""
        return generate_latest(self._registry)

    def _metric(self, metrics: dict[str, M], name: str, make: Callable[[], M]) -> M:
        with self._lock:
            if name not in metrics:
                metrics[name] = make()
            return metrics[name]


def _said(name: str) -> str:
    """Return a help text: the names are made to be read."""
    return name.removeprefix("spot_watchdog_").replace("_", " ").capitalize()
