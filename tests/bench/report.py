"""What a benchmark measured, against the limits it has to keep."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One number, measured in every run."""

    key: str
    """Name with the unit at its end."""
    meaning: str
    values: Sequence[float]
    at_most: float | None = None
    at_least: float | None = None

    @property
    def median(self) -> float:
        """The median of all runs."""
        return round(median(self.values), 4)

    @property
    def kept(self) -> bool:
        """Whether the median keeps its limits; a number without a limit always does."""
        return (self.at_most is None or self.median <= self.at_most) and (self.at_least is None or self.median >= self.at_least)

    @property
    def limit(self) -> str:
        """The limit in words."""
        if self.at_most is not None:
            return f"≤ {self.at_most:g}"
        return "" if self.at_least is None else f"≥ {self.at_least:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All numbers of one benchmark."""

    title: str
    measurements: Sequence[Measurement]
    notes: Sequence[str] = field(default=())
    detail: Mapping[str, Any] = field(default_factory=dict)
    """Everything that was seen in every run, beyond the numbers."""

    @property
    def kept(self) -> bool:
        """Whether every limit is kept."""
        return all(measurement.kept for measurement in self.measurements)

    def print(self, console: Console) -> None:
        """Show the table and the notes."""
        table = Table(title=self.title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for column in ("key", "median", "limit", "range (runs)"):
            table.add_column(column, justify="left" if column in {"key", "limit"} else "right", no_wrap=True)
        table.add_column("meaning")
        for each in self.measurements:
            style = None if each.limit == "" else ("green" if each.kept else "bold red")
            span = f"{min(each.values):.2f}-{max(each.values):.2f} ({len(each.values)})"
            limit = each.limit if each.kept else f"{each.limit} BROKEN"
            table.add_row(each.key, f"{each.median:.2f}", limit, span, each.meaning, style=style)
        console.print(table)
        for note in self.notes:
            console.print(f"  {note}", markup=False)

    def write(self, file: Path) -> None:
        """Write one flat object, key to median, with every run under `detail`."""
        values = {measurement.key: list(measurement.values) for measurement in self.measurements}
        body = {measurement.key: measurement.median for measurement in self.measurements}
        file.write_text(json.dumps({**body, "detail": {**values, **self.detail}}, indent=2, default=str) + "\n")
