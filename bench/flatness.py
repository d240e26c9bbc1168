"""Does the rate depend on how many events a window holds?

A window of an hour with 10 to 10,000 events of each key, one aggregate (a sum) and five, micro-batches of 600,000 rows,
alerts only and thrown away. At 100 in the window also against the prototype: its `alerts` beside ours thrown away, its
`all` beside the main job with Delta tables.
"""

from matplotlib.axes import Axes
from measure import DATA, Side, alternate
from report import Report
from sides import ours, prototype
from steady import Steady, write_steady
from trial import FIVE, Trial

IN_WINDOW = (10, 100, 1_000, 10_000)
EVENTS_AN_HOUR = 100_000
COMPARED = 100
FUNCTIONS = {"one aggregate": ("sum",), "five aggregates": FIVE}
FLAT = 0.7
OF_PROTOTYPE = 0.8


def ours_name(functions: str, in_window: int) -> str:
    """The name of a side."""
    return f"ours, {functions}, {in_window:,} in the window"


def in_windows(report: Report) -> tuple[int, ...]:
    """How many events of a key the window holds."""
    return IN_WINDOW[1::2] if report.quick else IN_WINDOW


def sides(report: Report) -> list[Side]:
    """All sides, those that are compared close to each other."""
    found: list[Side] = []
    for in_window in in_windows(report):
        data = write_steady(report.sized(Steady(EVENTS_AN_HOUR // in_window, in_window)), DATA)
        for name, functions in FUNCTIONS.items():
            found.append(ours(ours_name(name, in_window), Trial(str(data), functions)))
        if in_window == COMPARED:
            if report.prototype:
                found.append(prototype("prototype, alerts", report.prototype, data, "alerts"))
                found.append(prototype("prototype, all", report.prototype, data, "all"))
            found.append(ours("ours, main job into Delta", Trial(str(data), sink="alerts")))
    return found


def main() -> None:
    """Measure."""
    report = Report("flatness", __doc__)
    runs = alternate(sides(report), report.repeats, report.console)
    rates = report.rates("Flatness", runs)
    for name in FUNCTIONS:
        fewer, more = ours_name(name, COMPARED), ours_name(name, IN_WINDOW[-1])
        report.ratio(f"{name}: {IN_WINDOW[-1]:,} in the window, of {COMPARED}", more, fewer, runs, FLAT)
    five = ours_name("five aggregates", COMPARED)
    report.ratio("thrown away, of the prototype's alerts", five, "prototype, alerts", runs, OF_PROTOTYPE)
    delta = "ours, main job into Delta"
    report.ratio("into Delta, of the prototype's all", delta, "prototype, all", runs, OF_PROTOTYPE)

    def draw(axes: Axes) -> None:
        for name in FUNCTIONS:
            of_name = {each: rates[ours_name(name, each)] for each in in_windows(report)}
            axes.plot(list(of_name), list(of_name.values()), "o-", label=f"ours, {name}, thrown away")
        for side in ("prototype, alerts", "prototype, all", delta):
            if side in rates:
                axes.plot([COMPARED], [rates[side]], "s", label=side)
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("events of a key in the window of an hour")
        axes.set_ylabel("events a second")
        axes.set_title("The rate, by how many events a window holds")
        axes.legend()

    report.write(draw)


if __name__ == "__main__":
    main()
