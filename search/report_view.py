"""A report's sections, figures and tables, from a comparison's figures."""

from __future__ import annotations

import numpy as np

from . import report_runs as history
from . import report_tables as tables
from .report_cells import seconds_text
from .report_curves import Axis, Curve, mean_band
from .report_data import PEAK, Comparison
from .report_made import how_it_was_made, where_and_when
from .report_parts import Bars, Curves, Figure, Forest, Line, Ratio, Section

_TRIALS: Axis = "trials"
_SECONDS: Axis = "seconds"
_LONGEST = 160


def sections(data: Comparison) -> list[Section]:
    """All of the report, what an engineer asks first at the top."""
    found = [_headline(data), _latencies(data), _lost(data), _progress(data), _time(data)]
    found += [_failures(data), _operators(data), how_it_was_made(data)]
    return [section for section in found if section is not None]


def _headline(data: Comparison) -> Section:
    table = tables.headline(data)
    notes = [
        "Geometric means over the operators of the row's speed against the column's; above 1, the "
        "row is faster. Intervals (95%) are bootstrapped over the seeds, so they speak of these "
        "operators and not of operators at large; bold where they are above 1."
    ]
    if any("(" in name for name in table.columns):
        notes.append(
            "A ratio is over the operators that both sides have; in brackets, how many one has."
        )
    if data.replayed:
        notes.append(
            "Nothing was measured: the runs were played back from stored records, which alone "
            "the strategies could propose."
        )
    made = where_and_when(data)
    notes = [made, *notes] if made else notes
    timely = tables.equal_seconds(data)
    if timely is not None:
        notes.append(
            "At equal seconds: what both had found when the first run of either was through, by "
            "the runs' own timings and without the start of Python; on the operators where both "
            "had anything."
        )
    return Section("Speed", notes, _forests(data), [table, *([timely] if timely else [])])


def _forests(data: Comparison) -> list[Figure]:
    """Ratios against each of the peers and random search, or else every entrant, on one scale."""
    strategies = data.result["strategies"]
    named = [*data.peers, *(label for label in data.labels if label == "random")]
    groups: dict[str, list[Ratio]] = {}
    for other in dict.fromkeys(named or data.labels):
        ratios = []
        for number, label in enumerate(data.labels):
            ratio = strategies[label]["geomean_speed_vs"].get(other)
            if ratio is not None:
                low, high = strategies[label]["geomean_speed_vs_ci95"][other]
                ratios.append(Ratio(number, label, ratio, low, high))
        if ratios:
            groups[other] = ratios
    ends = [1.0]
    for one in (one for ratios in groups.values() for one in ratios):
        ends += [one.low or one.ratio, one.high or one.ratio]
    span = (min(ends), max(ends))
    alt = "Speed ratios with their intervals against {}, as in the table."
    return [
        Forest(f"forest{number}", alt.format(other), other, ratios, span)
        for number, (other, ratios) in enumerate(groups.items())
    ]


def _latencies(data: Comparison) -> Section:
    how = (
        "Stored latency of the best candidate of a run, median over the seeds."
        if data.replayed
        else "All winners of an operator were timed side by side in one interleaved run; median "
        "over the seeds."
    )
    table = tables.overview(data)
    notes = [f"{how} Bold: the fastest entrant."]
    if any(data.told.values()) and any("conversion" in name for name in table.columns):
        notes.append(
            "AutoTVM's templates want another layout than the operator's. Its latency has the "
            "conversions in it, for the others get the operator as it is, too; the column without "
            "them is what a network would see that keeps its data in that layout."
        )
    if "of peak" in table.columns:
        notes.append(
            "`of peak` is the fastest entrant's arithmetic over what the cores can do: multiply-"
            "adds in registers, measured on the same threads. Operators that do little arithmetic "
            "for each byte can't come near it; one that spreads its input out with zeros, as a "
            "transposed convolution does, can go beyond it by leaving the zeros out."
        )
    return Section("Latency", notes, [], [table])


def _progress(data: Comparison) -> Section | None:
    figures = [_overall(data, _TRIALS), _overall(data, _SECONDS)]
    shown = [figure for figure in figures if figure is not None]
    near = history.near_the_best(data)
    if not shown and not near.rows:
        return None
    best = "the fastest stored candidate" if data.replayed else "the best that any run found"
    notes = [
        f"Speed of the best so far, as a share of {best} on the operator: geometric mean over "
        "operators and seeds, with the lowest and the highest seed as a band."
        + ("" if data.replayed else " By the runs' own timings, unlike the latencies above."),
        "The table counts runs that came near that best; trials and seconds are medians over all "
        "runs, `-` where fewer than half came that near.",
    ]
    if any(line.end for figure in shown for line in figure.lines):
        notes.append(
            "A tuner that tells no times has a mark where it ended, at its whole wall-clock. "
            "The others' seconds leave out the start of Python and its imports."
        )
    missing = _partial(data)
    if missing:
        notes.append(f"Not on all operators: {missing}.")
    soon = history.near_the_peers(data)
    if soon is not None:
        notes.append(
            "Wall-clock, from the start of Python, until a run's best was within 2% of what a peer "
            "ended with, over the peer's wall-clock: median over the seeds, geometric mean over "
            "the operators where half of the runs came that near; in brackets, on how many."
        )
    return Section("Best so far", notes, [*shown], [near, *([soon] if soon else [])])


def _partial(data: Comparison) -> str:
    """Which entrants have curves for some of the operators only."""
    all_of = len(data.best_s)
    counts = {
        label: sum(bool(data.curves(key, label)) for key in data.best_s) for label in data.labels
    }
    some = {label: n for label, n in counts.items() if n < all_of}
    return ", ".join(f"{label} ({n} of {all_of})" for label, n in some.items())


def _overall(data: Comparison, axis: Axis) -> Curves | None:
    lines = []
    for number, label in enumerate(data.labels):
        runs = [
            [(curve, 100.0 * best) for curve in data.curves(key, label)]
            for key, best in data.best_s.items()
            if data.curves(key, label)
        ]
        lines += _line(number, label, runs, axis, history.mean_seconds(data, label).get("wall"))
    if not any(line.band for line in lines):
        return None
    alt = f"Best so far against {axis}: {_ends(lines, '{:.0f}%')}."
    return Curves(f"all-{axis}", alt, lines, axis, "% of the best", axis == _SECONDS)


def _line(
    number: int, label: str, runs: list[list[tuple[Curve, float]]], axis: Axis, wall_s: float | None
) -> list[Line]:
    """An entrant's curve, or, for one that tells no times, where it ended."""
    found = mean_band(runs, axis)
    if found is not None:
        return [Line(number, label, found)]
    along = mean_band(runs, _TRIALS)
    if axis == _SECONDS and along is not None and wall_s is not None:
        return [Line(number, label, None, (wall_s, float(along.middle[-1])))]
    return []


def _ends(lines: list[Line], form: str) -> str:
    ends = {
        line.label: line.band.middle[-1] if line.band else line.end[1] if line.end else np.nan
        for line in lines
    }
    return ", ".join(f"{label} ends at {form.format(value)}" for label, value in ends.items())


def _time(data: Comparison) -> Section | None:
    table = history.where_time_went(data)
    means = {label: history.mean_seconds(data, label) for label in data.labels}
    means = {label: mean for label, mean in means.items() if mean}
    if not means:
        return None
    parts = tuple(history.shown_parts(means))
    alt = "Seconds of a run by part, as in the table."
    notes = [
        "Mean seconds of a run over the operators and seeds. `time` is running kernels, `search` "
        "proposing, `model` learning and scoring; `rest` is the start of the process and what the "
        "tuner does not tell."
    ]
    if data.replayed:
        notes = ["Seconds of proposing (`search`) and of learning and scoring (`model`) alone."]
    return Section("Where the time went", notes, [Bars("time", alt, parts, means)], [table])


def _failures(data: Comparison) -> Section:
    found = [history.failures(data)]
    notes = [
        "Candidates that did not compile, run, end in time or compute the right thing. `invalid` "
        "ones never reached the measurer and cost no trial; the others are trials lost."
    ]
    lost = history.timeouts(data)
    if lost is not None:
        found.append(lost)
        notes.append("Each tuner has time limits of its own, ours and the peers' alike.")
    return Section("Failures", notes, [], found)


def _lost(data: Comparison) -> Section | None:
    table = history.left_out(data)
    if table is None:
        return None
    notes = [
        "These runs and references are in no ratio; an operator that a side lacks is in none of "
        "its ratios."
    ]
    return Section("What could not be run", notes, [], [table])


def _operators(data: Comparison) -> Section:
    parts = [_operator(data, number, key) for number, key in enumerate(data.workloads)]
    notes = [
        "Best so far by the runs' own timings: geometric mean over the seeds, with the lowest and "
        "the highest as a band."
    ]
    drawn = any(part.figures for part in parts)
    return Section("Operator by operator", notes if drawn else [], parts=parts)


def _operator(data: Comparison, number: int, key: str) -> Section:
    flops, by_label = data.flops.get(key), data.workloads[key]
    scale = flops / 1e9 if flops else 1.0
    unit = "GFLOP/s" if flops else "runs/s"
    levels = {
        label: scale / best
        for label in data.references
        if (best := by_label.get(label, {}).get("best_s"))
    }
    if peak := data.peak_flops(key):
        levels[PEAK] = peak / 1e9
    figures: list[Figure] = []
    for axis in (_TRIALS, _SECONDS):
        lines = []
        for place, label in enumerate(data.labels):
            runs = [[(curve, scale) for curve in data.curves(key, label)]]
            walls = by_label.get(label, {}).get("wall_s")
            lines += _line(place, label, runs, axis, float(np.mean(walls)) if walls else None)
        if any(line.band for line in lines):
            alt = f"{key}, best so far against {axis}: {_ends(lines, '{:.3g} ' + unit)}."
            figures.append(
                Curves(f"op{number}-{axis}", alt, lines, axis, unit, axis == _SECONDS, levels)
            )
    return Section(key, _remarks(data, key), figures, [tables.operator(data, key)])


def _remarks(data: Comparison, key: str) -> list[str]:
    """What there is to say of an operator: its size, the peers' templates, why one is missing."""
    work, bandwidth = data.work.get(key), data.peak.get("bandwidth")
    size = ""
    if work is not None and work.flops:
        size = f"{work.flops / 1e6:,.4g} MFLOP on {work.bytes / 1e6:,.3g} MB of arguments"
        if bandwidth:
            passing = seconds_text(work.bytes / bandwidth)
            size += f"; {passing} of memory traffic where they are in no cache"
    notes = [size] if size else []
    for label, found in data.workloads[key].items():
        about = found.get("about", {})
        if "template" in about:
            text = f"{label}: template `{about['template']}`"
            text += f", {int(about['space']):,} configurations" if "space" in about else ""
            notes.append(text)
        if found.get("error"):
            notes.append(f"{label}: {_brief(found['error'])}")
    return notes


def _brief(error: str) -> str:
    text = " ".join(error.split())
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."
