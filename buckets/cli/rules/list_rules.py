"""The command `buckets rules list`: rules where a job reads them, their policies, and since when they are complete."""

from buckets.changes.origin import listed_rule
from buckets.changes.versions import read_completions
from buckets.cli.console import echo_json, print_table
from buckets.cli.options import AsJson
from buckets.cli.rules.change import Conf, rules_of
from buckets.cli.rules.show import rules_table
from buckets.config.job import load_job
from buckets.printable import one_line


def list_rules(conf: Conf, as_json: AsJson = False) -> None:
    """Show the rules where a job reads them, and since when each is complete.

    A rule is complete for events whose windows reach no further back than what
    is kept for it. "complete" alone is since the first event. Times are event
    times in UTC.

    \b
    Examples:
      buckets rules list --conf conf/kafka.yaml
      buckets rules list --conf conf/kafka.yaml --json
    """  # noqa: D301 - click needs the backspace itself
    job = load_job(conf)
    rules = rules_of(job)
    completions = read_completions(job, rules.rules)
    if as_json:
        echo_json([listed_rule(kept, completions[kept.rule.rule_id]) for kept in rules.kept])
        return
    title = one_line(f"{len(rules.kept)} rules of {rules.name}")
    print_table(rules_table(title, rules.kept, completions), f"no rules in {rules.name}")
