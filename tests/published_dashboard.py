"""The dashboard for Grafana, made with its SDK; `python -m tests.published` writes it into `buckets/metrics`."""

from dataclasses import dataclass

from grafana_foundation_sdk.builders import common, prometheus, stat, timeseries
from grafana_foundation_sdk.builders.dashboard import (
    Dashboard,
    DatasourceVariable,
    QueryVariable,
    Row,
    ThresholdsConfig,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import BigValueColorMode, LegendDisplayMode, LegendPlacement
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
    VariableSort,
)

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
OF = 'instance=~"$instance"'
WIDTH, HEIGHT = 24, 8


@dataclass(frozen=True)
class Query:
    """A line of a panel: PromQL, in which OF chooses the job, and what it is called."""

    expr: str
    legend: str


def rate(metric: str, *by: str, labels: str = "") -> str:
    """How often something happens a second, by some labels."""
    return f"sum by ({', '.join(by)}) (rate({metric}{{{OF}{labels}}}[$__rate_interval]))"


def quantiles(metric: str, label: str) -> list[Query]:
    """The middle and the slowest hundredth of a histogram, by a label."""
    of = rate(f"{metric}_bucket", "le", label)
    return [Query(f"histogram_quantile({share}, {of})", f"{share} {{{{{label}}}}}") for share in (0.5, 0.99)]


def number(title: str, query: str, unit: str, *steps: tuple[float | None, str]) -> stat.Panel:
    """A number that stands large, coloured by steps."""
    thresholds = ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE)
    thresholds = thresholds.steps([Threshold(value=at, color=colour) for at, colour in steps or ((None, "green"),)])
    panel = stat.Panel().title(title).unit(unit).datasource(SOURCE).height(4).span(4).thresholds(thresholds)
    panel = panel.color_mode(BigValueColorMode.VALUE).reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    return panel.with_target(prometheus.Dataquery().expr(query).legend_format("{{instance}}").instant())


def lines(title: str, unit: str, *queries: Query, text: str = "") -> timeseries.Panel:
    """Lines over time."""
    legend = common.VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM)
    panel = timeseries.Panel().title(title).unit(unit).datasource(SOURCE).height(HEIGHT).span(WIDTH // 3)
    panel = panel.legend(legend.show_legend(True)).fill_opacity(10).min(0)
    if text:
        panel = panel.description(text)
    for query in queries:
        panel = panel.with_target(prometheus.Dataquery().expr(query.expr).legend_format(query.legend).range())
    return panel


def value(metric: str) -> str:
    """The value of a metric."""
    return f"{metric}{{{OF}}}"


HEALTH = (
    number(
        "Since it last got on",
        f"time() - {value('buckets_last_progress_timestamp_seconds')}",
        "s",
        (None, "green"),
        (60, "orange"),
        (600, "red"),
    ),
    number("Since the last batch", f"time() - {value('buckets_last_batch_timestamp_seconds')}", "s"),
    number(
        "Messages that wait",
        f"sum by (instance) ({value('buckets_source_lag_messages')})",
        "short",
        (None, "green"),
        (100_000, "red"),
    ),
    number("Rules are followed", value("buckets_rules_followed"), "bool_yes_no", (None, "red"), (1, "green")),
    number("Version of the rules", value("buckets_rules_version"), "none"),
    number("Runs out soon", value("buckets_shortages"), "none", (None, "green"), (1, "red")),
)
STREAM = (
    lines("Events", "cps", Query(rate("buckets_events_total", "instance"), "{{instance}}")),
    lines(
        "Delay from arrival to result",
        "s",
        *quantiles("buckets_delay_seconds", "instance"),
        text="Of a sample of the events of each batch; only of sources that say when an event arrived.",
    ),
    lines("Lag by partition", "short", Query(value("buckets_source_lag_messages"), "{{topic}} {{partition}}")),
    lines(
        "Batches",
        "s",
        *quantiles("buckets_batch_phase_seconds", "phase"),
        text="How long batches take: score, from their rules to their results; write, until these are written.",
    ),
    lines("Phases of the latest batch, by Spark", "s", Query(value("buckets_spark_phase_seconds"), "{{phase}}")),
    lines(
        "Retries",
        "cps",
        Query(rate("buckets_kafka_retries_total", "instance"), "Kafka {{instance}}"),
        Query(rate("buckets_batches_not_counted_total", "instance"), "not counted {{instance}}"),
    ),
)
RESULTS = (
    lines(
        "Alerts by rule",
        "cps",
        Query(f"topk(15, {rate('buckets_alerts_total', 'rule', 'state')})", "{{rule}} {{state}}"),
        text="Live, held back by a policy, or of a rule on trial; the 15 that fire most.",
    ),
    lines("Events by outcome", "cps", Query(rate("buckets_group_events_total", "outcome"), "{{outcome}}")),
    lines(
        "Dead letters, messages that are skipped, values that are rounded",
        "cps",
        Query(rate("buckets_dead_letter_reasons_total", "reason"), "{{reason}}"),
        Query(rate("buckets_skipped_total", "reason"), "skipped: {{reason}}"),
        Query(rate("buckets_rounded_total", "measure"), "rounded: {{measure}}"),
    ),
    lines("Rules", "none", Query(value("buckets_rules"), "{{state}}")),
    lines(
        "Changes of rules not made",
        "cps",
        Query(rate("buckets_rule_changes_refused_total", "instance"), "{{instance}}"),
    ),
    lines(
        "Backfill",
        "short",
        Query(value("buckets_backfill_events"), "{{group}}"),
        Query(value("buckets_backfill_events_expected"), "{{group}}, in all"),
    ),
)
STATE = (
    lines(
        "State",
        "bytes",
        Query(value("buckets_state_disk_bytes"), "files"),
        Query(value("buckets_state_memory_bytes"), "JVM"),
        Query(value("buckets_state_log_bytes"), "log in workers"),
        Query(value("buckets_state_cache_bytes"), "cache in workers"),
    ),
    lines(
        "Keys",
        "cps",
        Query(rate("buckets_new_keys_total", "group"), "new: {{group}}"),
        Query(rate("buckets_evicted_keys_total", "group"), "evicted: {{group}}"),
    ),
    lines(
        "Memory",
        "bytes",
        Query(value("buckets_process_resident_memory_bytes"), "{{process}}"),
        Query(value("buckets_workers_proportional_memory_bytes"), "workers, shared pages once"),
    ),
    lines("Threads", "none", Query(value("buckets_process_threads"), "{{process}}")),
    lines("Descriptors", "none", Query(value("buckets_process_open_fds"), "{{process}}")),
)
AUDIT = (
    lines("Messages kept", "cps", Query(rate("buckets_audit_messages_total", "table"), "{{table}}")),
    lines(
        "Lag of the audit",
        "short",
        Query(f"sum by (instance, topic) ({value('buckets_audit_lag_messages')})", "{{topic}}"),
    ),
    lines(
        "Batches of the audit",
        "s",
        *quantiles("buckets_audit_batch_seconds", "instance"),
    ),
)


def dashboard() -> str:
    """The dashboard as JSON."""
    source = DatasourceVariable("datasource").label("Prometheus").type("prometheus")
    instance = QueryVariable("instance").label("Job").datasource(SOURCE).multi(True).include_all(True)
    instance = instance.query("label_values(buckets_build_info, instance)").sort(VariableSort.ALPHABETICAL_ASC)
    made = (
        Dashboard("buckets").uid("buckets").tags(["buckets"]).refresh("10s").time("now-1h", "now").timezone("browser")
    )
    made = made.with_variable(source).with_variable(instance.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED))
    rows = {"Health": HEALTH, "The stream": STREAM, "Results and rules": RESULTS, "State and processes": STATE}
    for title, panels in (rows | {"Audit": AUDIT}).items():
        made = made.with_row(Row(title))
        for panel in panels:
            made = made.with_panel(panel)
    return JSONEncoder(sort_keys=True, indent=2).encode(made.build()) + "\n"
