"""An explanation as text, 80 columns wide."""

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from buckets.cli.console import Terminal
from buckets.history.explain.explanation import Explanation, FeatureThen
from buckets.history.explain.words import (
    event_lines,
    feature_lines,
    headline,
    number_text,
    part_lines,
    part_text,
    rule_lines,
    warm_words,
)
from buckets.moment import exact_time_text
from buckets.printable import one_line

_MARKS = {"true": "yes", "false": "no", "unknown": "?", "uncertain": "?"}
_SETTLED = {"alert": "bold red", "did not fire": "bold", "not evaluated": "bold"}


def show(explanation: Explanation) -> None:
    """Print an explanation."""
    console = Terminal()

    def line(text: str, indent: int = 0, style: str = "") -> None:
        console.print(Padding(Text(one_line(text), style=style), (0, 0, 0, indent)))

    def title(text: str) -> None:
        console.print()
        line(text, style="bold")

    line(headline(explanation), style=_SETTLED.get(explanation.outcome, "bold yellow"))
    for reason in explanation.reasons:
        line(reason.sentence, 2)
    for text in event_lines(explanation):
        line(text, 2)
    if explanation.rule is not None:
        title(f"The rule in version {explanation.rule.ruleset_version} of the rules")
        for text in rule_lines(explanation.rule):
            line(text, 2)
        if explanation.warmth:
            line(f"its windows: {explanation.warmth}{warm_words(explanation)}", 2)
    if explanation.policy:
        title("Its policy")
        for reason in explanation.policy:
            line(reason.sentence, 2)
    if explanation.condition is not None:
        title("The condition")
        for depth, part in part_lines(explanation.condition):
            line(f"{_MARKS[part.truth]:>3}  {part_text(part)}", 2 + 2 * depth)
    for feature in explanation.features:
        title(f"{feature.name}: {feature.phrase}")
        for text in feature_lines(feature):
            line(text, 2)
        if feature.entries:
            console.print(_entries(feature))
    for note in (*explanation.notes, *([explanation.origin] if explanation.origin else [])):
        console.print()
        line(note)


def _entries(feature: FeatureThen) -> Padding:
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    has_so_far = any(entry.so_far is not None for entry in feature.entries)
    table.add_column("Time (UTC)", no_wrap=True)
    table.add_column("Event", overflow="fold")
    table.add_column(feature.unit or "", justify="right", overflow="fold")
    if has_so_far:
        table.add_column("So far", justify="right", overflow="fold")
    table.add_column("Batch", justify="right")
    table.add_column("")
    half = len(feature.entries) // 2
    for index, entry in enumerate(feature.entries):
        if feature.left_out and index == half:
            table.add_row(f"… {feature.left_out:,} more (--all)")
        note = entry.note if entry.counts or not entry.note else f"- {entry.note}"
        numbers = [number_text(entry.value), *([number_text(entry.so_far)] if has_so_far else [])]
        cells = [exact_time_text(entry.time_ms), entry.event_id, *numbers, f"{entry.batch_id}", note]
        style = "red" if entry == feature.over else "" if entry.counts else "dim"
        table.add_row(*map(one_line, cells), style=style)
    return Padding(table, (0, 0, 0, 2))
