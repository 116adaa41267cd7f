"""Reports: right figures, nothing from outside, legible without a browser's help."""

import csv
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from tensortune.cli.compare import report as command
from tensortune.data.install import InstallError
from tensortune.search.compare_stats import summarise
from tensortune.search.report import check_packages, write_report
from tensortune.search.report_cells import seconds_text
from tensortune.search.report_curves import mean_band, reached, steps
from tensortune.search.report_data import ReportError, entrant_text, read_comparison
from tensortune.search.report_view import sections

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

BROWSER = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
OPERATORS = ("matmul(m=512,n=512,k=512)", "softmax(m=512,n=512)", "custom:attention@0f3a")
EVIL = 'exit code 1: <script src="http://example.com/x.js"></script> & more | less'


def cell(label: str, key: str, seed: int, factor: float, told: bool = True) -> dict[str, Any]:
    """A run whose best falls in steps, found 1.5 times slower by its own timing."""
    rng = np.random.default_rng([seed, len(key), len(label)])
    final = 1e-3 * factor * (1 + OPERATORS.index(key)) * float(np.exp(rng.normal(0, 0.02)))
    best = [final * 1.5 * (1 + 9 / trial) for trial in range(1, 65)]
    curve = [(i, 2 + 0.1 * i if told else None, s) for i, s in enumerate(best, start=1)]
    curve[0] = (1, curve[0][1], None)
    seconds = {"setup": 2.0, "compile": 5.0, "time": 4.0, "search": 1.0, "model": 1.0}
    return {
        "workload": key,
        "label": label,
        "seed": seed,
        "best_s": final,
        "wall_s": 15.0 if told else 80.0,
        "trials": 64,
        "failures": {"timeout": 2, "invalid": 7},
        "seconds": seconds if told else {},
        "curve": curve,
    }


def comparison(seeds: int = 3) -> dict[str, Any]:
    """Three entrants on three operators; the peer fails on one of them."""
    cells = []
    for key in OPERATORS:
        for seed in range(seeds):
            cells.append(cell("annealing", key, seed, 1.0))
            cells.append(cell("half", key, seed, 1.2))
            if key.startswith("custom"):
                failed = {"workload": key, "label": "metaschedule", "seed": seed, "wall_s": 3.0}
                cells.append({**failed, "error": EVIL})
            else:
                cells.append(cell("metaschedule", key, seed, 1.1, told=False))
        cells.append({"workload": key, "label": "untuned", "seed": 0, "best_s": 0.3})
    entrants = [
        {"label": "annealing", "strategy": "annealing", "model": "xgb", "space": "sketch"},
        {"label": "half", "strategy": "annealing", "space": "sketch", "trials": 32},
        {"label": "metaschedule", "strategy": "metaschedule", "model": "xgb"},
    ]
    return {
        **summarise(cells, ["annealing", "half", "metaschedule"]),
        "settings": {
            "trials": 64,
            "seeds": seeds,
            "host": "amd-epyc-2c-000000",
            "target": '{"kind":"llvm"}',
            "entrants": entrants,
        },
        "versions": {"apache-tvm": "0.27.0.post1"},
    }


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("comparison")
    (folder / "compare.json").write_text(json.dumps(comparison()))
    return write_report(folder)


class Elements(HTMLParser):
    """All elements of a page, with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)


def test_the_page_asks_for_nothing_from_outside(written: list[Path]) -> None:
    page = written[0].read_text()
    for tag, attributes in Elements(page).found:
        assert tag not in ("script", "img", "iframe", "object", "embed", "audio", "video")
        for name in ("src", "href", "xlink:href", "data", "action"):
            value = attributes.get(name) or "#"
            assert value == "data:," or value.startswith("#"), (tag, attributes)
    assert not re.search(r"url\((?!#)|@import|@font-face", page)
    assert "default-src 'none'" in page, "and the browser is told to refuse it"


def test_ids_are_unique_and_what_they_are_referred_by_is_there(written: list[Path]) -> None:
    page = written[0].read_text()
    ids = [attributes["id"] for _, attributes in Elements(page).found if "id" in attributes]
    assert len(ids) == len(set(ids)) > 0
    assert set(re.findall(r'(?:url\(#|href="#)([\w-]+)', page)) == set(ids)


def test_figures_have_alternatives_text_and_the_pages_colours(written: list[Path]) -> None:
    page = written[0].read_text()
    figures = [a for tag, a in Elements(page).found if tag == "svg" and a.get("role") == "img"]
    # The ratios, the time, best so far and each operator against trials and seconds.
    assert len(figures) == 2 + 2 * (1 + len(OPERATORS))
    assert all(len(figure["aria-label"] or "") > 20 for figure in figures)
    drawn = "".join(re.findall(r'<svg role="img".*?</svg>', page, re.DOTALL))
    assert "<text" in drawn
    assert "metaschedule" in drawn
    assert "DejaVu" not in drawn, "the page's own type"
    assert not re.search(r"#fe0[12]", drawn)
    assert not re.search(r"(fill|stroke): #(?!ffffff)", drawn), "every colour follows the theme"


def test_what_went_wrong_is_told_and_cannot_get_into_the_page(written: list[Path]) -> None:
    page, markdown = written[0].read_text(), written[1].read_text()
    assert "&lt;script src=" in page
    assert "What could not be run" in markdown
    assert "| custom:attention@0f3a (seed 0, 1, 2) |" in markdown, "one reason, one row"
    assert "lost to time-outs" in markdown
    assert "metaschedule (2 of 3)" in markdown


def test_the_figures_are_those_of_the_comparison(written: list[Path]) -> None:
    result = json.loads((written[0].parent / "compare.json").read_text())
    ratio = result["strategies"]["annealing"]["geomean_speed_vs"]["metaschedule"]
    low, high = result["strategies"]["annealing"]["geomean_speed_vs_ci95"]["metaschedule"]
    assert f"**{ratio:.3f}** ({low:.3f}–{high:.3f})" in written[1].read_text()
    assert f"<b>{ratio:.3f}</b> <small>{low:.3f}–{high:.3f}</small>" in written[0].read_text()
    soon = result["strategies"]["annealing"]["wall_to_near"]["metaschedule"]
    assert f"| {soon['ratio']:.3f} (2 of 2) |" in written[1].read_text()
    assert "| at equal seconds, against | annealing | half |" in written[1].read_text()
    with written[2].open() as file:
        rows = {(row["workload"], row["label"]): row for row in csv.DictReader(file)}
    assert len(rows) == 4 * len(OPERATORS)
    own = rows[OPERATORS[0], "annealing"]
    expected = result["workloads"][OPERATORS[0]]["annealing"]
    assert float(own["best_s"]) == expected["best_s"]
    assert float(own["gflops"]) == pytest.approx(2 * 512**3 / expected["best_s"] / 1e9)
    assert float(own["speed_vs_half_low"]) == expected["speed_vs"]["half"][1]
    assert rows[OPERATORS[2], "annealing"]["gflops"] == "", "nobody knows what it computes"
    assert rows[OPERATORS[2], "metaschedule"]["best_s"] == ""


def test_markdown_tables_are_whole(written: list[Path]) -> None:
    lines = written[1].read_text().splitlines()
    tables = "\n".join(line for line in lines if line.startswith("|") or not line)
    blocks = [block.split("\n") for block in re.split(r"\n\n+", tables.strip())]
    assert len(blocks) == 10 + len(OPERATORS)
    for block in blocks:
        columns = {len(re.findall(r"(?<!\\)\|", line)) for line in block}
        assert len(columns) == 1, block


def test_the_command_can_be_typed_again(written: list[Path]) -> None:
    data = read_comparison(written[0].parent)
    assert data.command == (
        "tensortune compare 'matmul(m=512,n=512,k=512)' 'softmax(m=512,n=512)' "
        "custom:attention@0f3a --strategies annealing:model=xgb,half=annealing:trials=32,"
        "metaschedule "
        "--trials 64 --seeds 3"
    )
    assert entrant_text({"label": "Mine", "strategy": "own:Mine", "model": "none"}) == (
        "own:Mine:model=none"
    )
    peer = {"label": "metaschedule", "strategy": "metaschedule", "model": "xgb", "seeds": 1}
    assert entrant_text(peer) == "metaschedule:seeds=1"


@pytest.mark.parametrize(
    ("seeds", "text"),
    [(3, "--seeds 3"), ([0, 1], "--seeds 2"), ([0, 2], "--seeds 0,2"), ([5], "--seeds 5,")],
)
def test_seeds_can_be_typed_again(tmp_path: Path, seeds: Any, text: str) -> None:
    result = comparison()
    result["settings"] |= {"seeds": seeds, "asked_target": "llvm -num-cores=1"}
    result["settings"]["entrants"][0]["strategy"] = "autotvm"
    (tmp_path / "compare.json").write_text(json.dumps(result))
    command = read_comparison(tmp_path).command
    assert command.endswith(f"{text} --target 'llvm -num-cores=1' --autotvm-python PATH")


def test_the_peak_and_a_packed_kernel_are_shown(tmp_path: Path) -> None:
    result = comparison()
    flops = 2 * 512**3
    result["peak"] = {"flops": 4e11, "flops_core": 2e11, "bandwidth": 3e10, "threads": 2}
    found = result["workloads"][OPERATORS[0]]["metaschedule"]
    about = {"template": "pack.x86", "space": "1200", "tvm": "0.16.dev0", "xgboost": "1.7.6"}
    found |= {"best_s": flops / 1e11, "packed_s": [flops / 2e11] * 3, "about": about}
    (tmp_path / "compare.json").write_text(json.dumps(result))
    _, markdown_file, table = write_report(tmp_path)
    markdown = markdown_file.read_text()
    assert re.search(r"\| metaschedule \| 2\.68 ms .*\| 100 \| 25\.0% \|", markdown)
    packed = "metaschedule, without layout conversion"
    assert f"| {packed} | 1.34 ms | 200 | 50.0% | - |" in markdown
    assert "| machine's peak | 671 us | 400 | 100.0% | - |" in markdown
    assert f"| untuned | {packed} | of peak |" in markdown, "in the overview, too"
    assert "metaschedule: template `pack.x86`, 1,200 configurations" in markdown
    assert "metaschedule: tvm 0.16.dev0, xgboost 1.7.6" in markdown
    assert "400 GFLOP/s in float32 on 2 threads" in markdown
    assert "3.15 MB of arguments; 105 us of memory traffic" in markdown
    with table.open() as file:
        row = next(row for row in csv.DictReader(file) if row["label"] == "metaschedule")
    assert float(row["packed_s"]) == pytest.approx(flops / 2e11)
    assert float(row["of_peak"]) == pytest.approx(0.25)


def test_the_peak_is_that_of_float32(tmp_path: Path) -> None:
    key = "matmul(m=512,n=512,k=512,dtype=float64)"
    cells = [
        {"workload": key, "label": "random", "seed": 0, "best_s": 1e-3, "wall_s": 1.0, "trials": 4}
    ]
    peak = {"flops": 4e11, "flops_core": 2e11, "bandwidth": 3e10, "threads": 2}
    result = {**summarise(cells, ["random"]), "peak": peak}
    (tmp_path / "compare.json").write_text(json.dumps(result))
    markdown = write_report(tmp_path)[1].read_text()
    assert "| random | 1.00 ms | 268.4 |" in markdown
    assert "of peak" not in markdown


def test_who_cannot_run_an_operator_is_marked_and_says_why(tmp_path: Path) -> None:
    result = comparison()
    why = "TOPI has no x86 template for norm"
    found = result["workloads"][OPERATORS[0]]["metaschedule"]
    found |= {"best_s": None, "best_s_by_seed": [], "error": why, "unable": True}
    result["missing"] = {
        OPERATORS[0]: {},
        OPERATORS[1]: {"numpy": "NumPy has no call for softmax in float32"},
        OPERATORS[2]: {"numpy": "NumPy has no call for attention in float16", "torch": "none"},
    }
    (tmp_path / "compare.json").write_text(json.dumps(result))
    markdown = write_report(tmp_path)[1].read_text()
    overview = markdown.split("## Latency")[1].split("##")[0]
    assert re.search(r"matmul.* \| can't run \| 300 ms \|", overview)
    assert re.search(r"attention.* \| failed \| 300 ms \|", overview)
    assert f"metaschedule: {why}" in markdown
    assert "speed against | metaschedule (1 of 3) |" in markdown
    assert "| metaschedule (1 of 3) | - |" in markdown
    rest = "all operators but matmul(512,512,512)"
    assert f"| numpy | NumPy has no call | {rest} |" in markdown, "one row, whatever the operators"
    assert f"| torch | none | {OPERATORS[2]} |" in markdown


def test_where_and_when_it_was_measured_stands_at_the_top(tmp_path: Path) -> None:
    result = comparison()
    began, ended = "2026-11-30 01:00+00:00", "2026-11-30 09:30+00:00"
    (tmp_path / "compare.json").write_text(json.dumps({**result, "began": began, "ended": ended}))
    lines = write_report(tmp_path)[1].read_text().splitlines()
    assert lines[4] == f"Measured on `amd-epyc-2c-000000`, from {began} to {ended}."
    assert f"| measured | {began} to {ended} |" in lines


def test_one_seed_and_no_curve_is_enough(tmp_path: Path) -> None:
    result = comparison(seeds=1)
    for by_label in result["workloads"].values():
        for found in by_label.values():
            found["curves"] = []
    (tmp_path / "one.json").write_text(json.dumps(result))
    page, markdown, _ = write_report(tmp_path / "one.json", tmp_path / "new" / "one.html")
    assert "Best so far" not in page.read_text()
    assert "1 seed" in markdown.read_text()
    assert "nan" not in markdown.read_text().lower()


def test_stored_results_of_record_can_be_reported(clone: Path, tmp_path: Path) -> None:
    source = clone / "docs/results/two-operators-8-seeds.json"
    assert "GFLOP/s" in write_report(source, tmp_path / "report.html")[1].read_text()


def test_everything_failed_is_a_report_too(tmp_path: Path) -> None:
    cells = [
        {"workload": key, "label": "annealing", "seed": 0, "error": "boom"} for key in OPERATORS
    ]
    (tmp_path / "compare.json").write_text(json.dumps(summarise(cells, ["annealing"])))
    assert "boom" in write_report(tmp_path)[1].read_text()


def test_a_missing_package_is_named_with_what_to_install() -> None:
    def no_jinja2(package: str) -> str | None:
        return None if package == "jinja2" else "1"

    with pytest.raises(InstallError, match=r"needs jinja2: pip install 'tensortune\[report\]'"):
        check_packages(no_jinja2)
    check_packages(lambda _: "1")


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda folder: None, "holds no comparison"),
        (lambda folder: (folder / "runs").mkdir(), "is not finished"),
        (lambda folder: (folder / "compare.json").write_text("{"), "can't be read"),
        (lambda folder: (folder / "compare.json").write_text("[]"), "no results"),
    ],
)
def test_what_is_no_comparison_is_refused(
    tmp_path: Path, prepare: Callable[[Path], object], message: str
) -> None:
    prepare(tmp_path)
    with pytest.raises(ReportError, match=message):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_the_command_says_where_the_report_is(written: list[Path], tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(command)
    folder, out = str(written[0].parent), tmp_path / "a.html"
    done = CliRunner().invoke(app, [folder, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert str(out) in done.output
    assert (tmp_path / "a.csv").exists()
    done = CliRunner().invoke(app, [folder, "--out", str(tmp_path / "compare.json")])
    assert done.exit_code == 2
    assert not (tmp_path / "compare.json").exists()


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((1.2e-3,), "1.20 ms"),
        ((0.9996e-3,), "1.00 ms"),
        ((49.7e-6,), "49.7 us"),
        ((0.3086,), "309 ms"),
        ((2.5,), "2.50 s"),
        ((3e-10,), "0.30 ns"),
        ((0.95e-3, 1.05e-3), "0.95–1.05 ms"),
    ],
)
def test_latencies_are_written_in_three_digits(values: tuple[float, ...], text: str) -> None:
    assert seconds_text(*values) == text


def test_curves_are_geometric_means_of_steps() -> None:
    first = [(1, 1.0, None), (2, 2.0, 4.0), (3, 3.0, 1.0)]
    other = [(1, 0.5, 1.0), (2, 4.0, 1.0), (3, 5.0, 1.0), (4, 6.0, 0.25)]
    assert [a.tolist() for a in steps(other, "trials") or ()] == [[1, 4, 4], [1, 0.25, 0.25]]
    found = mean_band([[(first, 1.0), (other, 1.0)]], "trials")
    assert found is not None
    assert found.x.tolist() == [2, 3, 4], "from where both have found something"
    assert found.middle.tolist() == pytest.approx([0.5, 1.0, 2.0])
    assert found.low.tolist() == pytest.approx([0.25, 1.0, 1.0])
    assert found.high.tolist() == pytest.approx([1.0, 1.0, 4.0])
    timed = mean_band([[(first, 1.0), (other, 1.0)]], "seconds")
    assert timed is not None
    assert timed.x.tolist() == [2, 3, 6]
    both = mean_band([[(first, 1.0)], [(other, 4.0)]], "trials")
    assert both is not None
    assert both.middle.tolist() == pytest.approx([1.0, 2.0, 4.0])
    assert reached(first, 1.0, "seconds") == 3.0
    assert reached(first, 0.5, "trials") == float("inf")


def test_a_curve_without_times_or_success_is_none() -> None:
    untimed = [(1, None, 4.0), (2, None, 1.0)]
    assert steps(untimed, "trials") is not None
    assert steps(untimed, "seconds") is None
    assert mean_band([[([(1, 1.0, None)], 1.0)]], "trials") is None
    assert mean_band([], "trials") is None


def test_a_long_run_is_thinned_out_and_keeps_its_ends(tmp_path: Path) -> None:
    long = [(i, float(i), 1.0 / i) for i in range(1, 3001)]
    found = mean_band([[(long, 1.0)]], "trials")
    assert found is not None
    assert len(found.x) <= 200
    assert (found.x[0], found.x[-1], found.middle[-1]) == (1, 3000, pytest.approx(3000))


def test_an_operator_that_a_peer_lacks_keeps_its_own_table(written: list[Path]) -> None:
    by_title = {s.title: s for s in sections(read_comparison(written[0].parent))}
    parts = by_title["Operator by operator"].parts
    assert [part.title for part in parts] == list(OPERATORS)
    assert parts[0].tables[0].columns == ("", "latency", "GFLOP/s", "vs metaschedule")
    assert parts[2].tables[0].columns == ("", "latency", "GFLOP/s")


def browse(page: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    options = [
        *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
        *("--disable-background-networking", "--disable-component-update", "--disable-quic"),
        *("--enable-logging=stderr", f"--user-data-dir={folder / 'profile'}"),
    ]
    return subprocess.run(
        [str(BROWSER), *options, *arguments, page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
@pytest.mark.parametrize("width", [400, 1200])
def test_a_browser_shows_it_without_complaint(
    written: list[Path], tmp_path: Path, width: int
) -> None:
    shown = browse(written[0], tmp_path, "--dump-dom")
    assert "CONSOLE" not in shown.stderr, "its own policy would report a request"
    # In a frame of that width, since a window can't be as narrow as a phone.
    policy = re.compile(r"<meta http-equiv=\"Content-Security-Policy\"[^>]*>")
    inner = policy.sub("", written[0].read_text())
    frame = tmp_path / "frame.html"
    frame.write_text(
        f"<iframe id=f width={width} height=900 srcdoc='{inner.replace(chr(39), '&#39;')}'>"
        "</iframe><script>onload = () => { const d = f.contentDocument.documentElement;"
        "document.title = [d.scrollWidth, d.clientWidth].join(); }</script>"
    )
    seen = re.search(r"<title>(\d+),(\d+)</title>", browse(frame, tmp_path, "--dump-dom").stdout)
    assert seen is not None
    assert int(seen[1]) <= int(seen[2]), "nothing is wider than the page"
