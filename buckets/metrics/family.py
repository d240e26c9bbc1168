"""Metrics as they are declared, and as Prometheus reads them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
"""Of what `exposition` returns."""
Status = Mapping[str, Any]
Sample = tuple[tuple[str, ...], Any]
"""The values of the labels, and a number; of a histogram what `monitor.bounded.Histogram.to_json` returns."""
Reader = Callable[[Status], Iterable[Sample]]
"""Reads the numbers of a metric from a status."""
_FAMILIES = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}


@dataclass(frozen=True)
class Family:
    """A metric.

    Attributes:
        kind: counter, gauge or histogram.
        name: without `_total`, which a counter gets.
        text: what it is.
        samples: reads its numbers from a status.
        labels: the names of its labels.
    """

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    text: str
    samples: Reader
    labels: Sequence[str] = ()

    def of(self, status: Status) -> Metric:
        """Return the metric with the numbers of a status."""
        if self.kind == "histogram":
            histogram = HistogramMetricFamily(self.name, self.text, labels=self.labels)
            for labels, counted in self.samples(status):
                bounds = [*map(str, counted["bounds"]), "+Inf"]
                up_to = list(zip(bounds, accumulate(counted["counts"]), strict=True))
                histogram.add_metric(labels, buckets=up_to, sum_value=counted["sum"])
            return histogram
        family: CounterMetricFamily | GaugeMetricFamily = _FAMILIES[self.kind](self.name, self.text, labels=self.labels)
        for labels, number in self.samples(status):
            family.add_metric(labels, number)
        return family


@dataclass(frozen=True)
class Snapshot(Collector):
    """What a status says in some metrics."""

    families: Sequence[Family]
    status: Status

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        return [family.of(self.status) for family in self.families]


def counter(name: str, text: str, samples: Reader, *labels: str) -> Family:
    """Return a number that only grows."""
    return Family("counter", name, text, samples, labels)


def gauge(name: str, text: str, samples: Reader, *labels: str) -> Family:
    """Return a number that goes up and down."""
    return Family("gauge", name, text, samples, labels)


def histogram(name: str, text: str, samples: Reader, *labels: str) -> Family:
    """Return how often values lie between bounds."""
    return Family("histogram", name, text, samples, labels)


def one(read: Callable[[Status], Any]) -> Reader:
    """Return what reads the only number of a metric; None where there is none."""

    def samples(status: Status) -> Iterable[Sample]:
        number = read(status)
        return [] if number is None else [((), number)]

    return samples


def exposition(families: Sequence[Family], status: Status) -> bytes:
    """Return what a status says in some metrics, in the text format of Prometheus.

    Complexity: O(series).
    """
    return generate_latest(Snapshot(families, status))
