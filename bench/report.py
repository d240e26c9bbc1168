"""What a benchmark leaves behind: a table on the screen, its goals, and `results/NAME.json` with `results/NAME.png`."""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from measure import HERE, Runs, machine, median_rates, rate_text
from rich.console import Console
from rich.table import Table
from sides import PROTOTYPE
from steady import Steady

mpl.use("Agg")
RESULTS = HERE / "results"
QUICK_ROWS = 20_000
"""Rows of a file with `--quick`."""
OUR_COLOUR, OTHER_COLOUR = "tab:blue", "tab:gray"


@dataclass(frozen=True)
class Goal:
    """A number and what it should be.

    Attributes:
        what: in words.
        value: what was measured.
        at_least: the least that is good enough; None where less is better.
        at_most: the most that is good enough; None where more is better.
    """

    what: str
    value: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def met(self) -> bool:
        """Whether it is good enough."""
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )

    @property
    def wanted(self) -> str:
        """The bound, in words."""
        return f"at least {self.at_least:g}" if self.at_least is not None else f"at most {self.at_most:g}"


class Report:
    """Collects what one benchmark found."""

    def __init__(self, name: str, description: str, repeats: int = 3, options: Mapping[str, str] | None = None) -> None:
        """Read the command line: `--repeats`, `--quick`, `--prototype`, `--out`, and options of one benchmark alone.

        Args:
            name: of the benchmark and its files.
            description: for `--help`.
            repeats: how often each side is run, unless the command line says so.
            options: further options and their defaults.
        """
        parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--repeats", type=int, help=f"runs of each side (default {repeats}, 1 with --quick)")
        parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs; writes no results")
        parser.add_argument("--prototype", type=Path, default=PROTOTYPE, help="the prototype's script")
        parser.add_argument("--out", type=Path, help="folder for results (default: bench/results, none with --quick)")
        for option, default in (options or {}).items():
            parser.add_argument(option, default=default, help=f"default: {default or 'none'}")
        parsed = parser.parse_args()
        self._options = vars(parsed)
        self.name = name
        self.quick: bool = parsed.quick
        self.repeats: int = parsed.repeats or (1 if parsed.quick else repeats)
        self.prototype: Path | None = parsed.prototype.resolve() if parsed.prototype.exists() else None
        self.console = Console(width=max(Console().width, 150))
        self.found: dict[str, Any] = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "quick": parsed.quick,
            "repeats": self.repeats,
        }
        self._out: Path | None = parsed.out or (None if parsed.quick else RESULTS)
        self._goals: list[Goal] = []
        if self.prototype is None:
            self.console.print(f"no prototype at {parsed.prototype}: nothing is compared with it")

    def option(self, name: str) -> str:
        """What the command line says of a further option."""
        return str(self._options[name.removeprefix("--").replace("-", "_")])

    def sized(self, steady: Steady) -> Steady:
        """A data set as it is, or tiny."""
        return replace(steady, files=6, rows_per_file=QUICK_ROWS) if self.quick else steady

    def goal(self, goal: Goal) -> None:
        """Take down a goal."""
        self._goals.append(goal)

    def ratio(self, what: str, side: str, of: str, runs: Runs, at_least: float) -> None:
        """Take down as a goal how fast one side is, measured by another; nothing if one of them was not run."""
        if side in runs and of in runs:
            rates = median_rates(runs)
            self.goal(Goal(what, rates[side] / rates[of], at_least=at_least))

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table; all columns but the first are numbers."""
        table = Table(title=title, title_justify="left")
        for column in columns:
            table.add_column(column, justify="left" if column == columns[0] else "right")
        for row in rows:
            table.add_row(*row)
        self.console.print(table, highlight=False)

    def rates(self, title: str, runs: Runs, within: str | None = None) -> dict[str, float]:
        """Print and keep the rates of all sides.

        Args:
            title: of the table.
            runs: of all sides.
            within: where they are kept among what was found; None for the top.

        Returns:
            The median of each side.
        """
        rates = median_rates(runs)
        lines = [
            (side, rate_text(median), ", ".join(rate_text(run.rate) for run in runs[side]))
            for side, median in rates.items()
        ]
        self.table(f"{title}: events a second", ("Side", "Median", "Runs"), lines)
        kept = self.found if within is None else self.found.setdefault(within, {})
        kept |= {"rates": rates, "runs": {side: [asdict(run) for run in done] for side, done in runs.items()}}
        return rates

    def write(self, draw: Callable[[Axes], None]) -> None:
        """Print the goals; write everything found, and a picture."""
        if self._goals:
            lines = [(g.what, f"{g.value:.3g}", g.wanted, "yes" if g.met else "NO") for g in self._goals]
            title = "Goals (sizes are too small to tell)" if self.quick else "Goals"
            self.table(title, ("Goal", "Measured", "Wanted", "Met"), lines)
            self.found["goals"] = [asdict(goal) | {"met": goal.met} for goal in self._goals]
        if self._out is None:
            return
        self._out.mkdir(parents=True, exist_ok=True)
        target = self._out / f"{self.name}.json"
        target.write_text(json.dumps(self.found, indent=1), encoding="utf-8")
        figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
        draw(axes)
        figure.savefig(target.with_suffix(".png"), dpi=110)
        plt.close(figure)
        self.console.print(f"written to {target} and {target.with_suffix('.png').name}", highlight=False)


def bars(axes: Axes, rates: Mapping[str, float], runs: Runs, title: str) -> None:
    """A bar a side for its median rate, with a dot for each run."""
    sides = list(rates)
    colours = [OUR_COLOUR if side.startswith("ours") else OTHER_COLOUR for side in sides]
    axes.barh(sides, [rates[side] for side in sides], color=colours, alpha=0.6)
    for side in sides:
        axes.plot([run.rate for run in runs[side]], [side] * len(runs[side]), "k.", markersize=5)
    axes.invert_yaxis()
    axes.set_xlabel("events a second")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_title(title)
