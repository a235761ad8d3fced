"""Put the metrics of several processes together, each series with the number of its process."""

from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

LABEL = "process"
"""
The label that names the process of a series.

Sums over processes would fall when one starts again, which Prometheus takes for a restart of all.
"""


def together(texts: Iterable[tuple[int, str]]) -> Iterator[Metric]:
    """
    Yield the metrics of all processes, from the text of each with its number.

    Raises:
        ValueError: a text is none of metrics.
    """
    found: dict[str, Metric] = {}
    for number, text in texts:
        for family in text_string_to_metric_families(text):
            kept = found.setdefault(
                family.name, Metric(family.name, family.documentation, family.type)
            )
            for each in family.samples:
                labels = {**each.labels, LABEL: str(number)}
                kept.add_sample(each.name, labels, each.value, each.timestamp)
    yield from found.values()
