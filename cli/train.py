"""The `tensortune train` and `tensortune evaluate` commands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from .common import guard, load
from .train_view import METRICS, Shown, note, number, say, show_report, write_folder, write_json

Records = Annotated[
    Path,
    typer.Argument(
        help="A dataset (a Parquet file, or a folder of them), a file of records, the folder of a "
        "run or of `collect`, or a MetaSchedule database.",
        show_default=False,
    ),
]
Workers = Annotated[
    int | None, typer.Option(help="Processes that compute features; by default one a CPU.", min=1)
]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the figures to a file.")]


def train(
    records: Records,
    out: Annotated[Path, typer.Option("--out", help="The file of the trained model.")],
    model: Annotated[
        str,
        typer.Option(
            help="xgb, xgb-small, xgb-relations, draft, verify, xgb-joint, xgb-all, treegru, "
            "treegru-5 or all; with arguments as in 'xgb(max_depth=4)'; or package.module:Name of "
            "your own."
        ),
    ] = "xgb",
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Go on with this trained model; `pretrained` is the one of this package that "
            "--model names, xgb or treegru.",
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="Train on one side of a split by record, shape, operator or host, and judge the "
            "model by the other."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split and of the model.")] = 0,
    allow_held_out: Annotated[
        bool, typer.Option("--allow-held-out", help="Train on what is held out for evaluation.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file of --out.")] = False,
    workers: Workers = None,
    json_file: JsonFile = None,
) -> None:
    """Train a cost model on records, or go on with a trained one, and save it.

    Records of held-out workloads (the Ansor suite, LoopTune's test split and others) are left out,
    unless they are allowed: a model that has seen them can't be judged by them.

    Examples:
    tensortune train data/collected --model xgb --out xgb.model

    tensortune train runs/matmul --from xgb.model --out mine.model --allow-held-out
    """

    def body() -> None:
        module = load(".costmodel.train")
        if out.is_dir():
            raise ValueError(f"{out} is a folder; name a file in it, such as {out}/{model}.model")
        if out.exists() and not force:
            raise ValueError(f"{out} exists; choose another name, or add --force to replace it")
        found = module.read_records(records)
        made = None if split is None else load(".data.splits").split(found, split, seed)
        with Shown() as show:
            source = module.Source(
                found,
                positions=None if made is None else made.train,
                allow_held_out=allow_held_out,
                workers=workers,
                progress=show.features,
            )
            if start is None:
                trained = module.train(source, model, seed)
            else:
                given = start != "pretrained"
                path = Path(start) if given else load(".costmodel.pretrained").path(model)
                trained = module.train_further(source, path)
            trained.save(out)
        summary = _summary(trained, model, start, out)
        if made is not None:
            summary |= {"split": split, "seed": seed}
            summary["test"] = module.judge(trained.model, source, made.test)
        _say_trained(summary)
        write_json(json_file, summary)

    guard(body)


def _summary(trained: Any, model: str, start: str | None, out: Path) -> dict[str, Any]:
    return {
        "model": model if start is None else None,
        "from": start,
        "file": str(out),
        "bytes": out.stat().st_size,
        "features": list(trained.features),
        "programs": trained.programs,
        "valid": trained.valid,
        "workloads": list(trained.workloads),
        "held_out": dict(trained.held_out),
        "missing": dict(trained.missing),
        "fit_seconds": trained.seconds,
    }


def _say_trained(summary: Mapping[str, Any]) -> None:
    for key, count in summary["held_out"].items():
        note(f"left out: {count} records of {key}, which is held out for evaluation")
    for why, count in summary["missing"].items():
        note(f"{count} records have no features: {why}")
    say(
        f"{summary['file']}: trained on {summary['programs']} programs ({summary['valid']} ran) in "
        f"{summary['fit_seconds']:.1f} s; {summary['bytes'] / 1e6:.2f} MB; it has seen "
        f"{len(summary['workloads'])} workloads"
    )
    if "test" in summary:
        figures = ", ".join(f"{name} {number(summary['test'][name])}" for name in METRICS)
        say(f"on the other side of the split by {summary['split']}: {figures}")


def evaluate(
    records: Records,
    models: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated, as `train --model` takes them; by default all that are "
            "installed. The others are compared with metaschedule-xgb."
        ),
    ] = None,
    splits: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated: record, shape, operator, host; by default all, host only where "
            "there are several."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many times each split is drawn.", min=1)] = 5,
    sizes: Annotated[
        str | None,
        typer.Option(help="For a learning curve: train on so many programs too, e.g. 500,2000."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder of the figures and plots. What each training came to is kept in it, so "
            "that the same command goes on after an interruption.",
        ),
    ] = None,
    saved: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Train nothing: judge this trained model by the workloads that it has not seen; "
            "`pretrained` is the one of this package.",
        ),
    ] = None,
    workers: Workers = None,
    json_file: JsonFile = None,
) -> None:
    """Train models on one side of every split of a dataset, and judge them by the other.

    Metrics are means over workloads, with 95% intervals. `noise ceiling` is the pairwise accuracy
    that measurements made again reach; no model can be expected to do better.

    Examples:
    tensortune evaluate data/collected --out evaluated

    tensortune evaluate data/collected --models xgb,metaschedule-xgb --splits shape,operator

    tensortune evaluate runs/matmul --saved pretrained
    """

    def body() -> None:
        module, training = load(".costmodel.evaluate"), load(".costmodel.train")
        found = training.read_records(records)
        if saved is not None:
            if models or splits or sizes or out:
                raise ValueError("--saved judges one model as it is: leave out the other options")
            path = load(".costmodel.pretrained").path("verify") if saved == "pretrained" else saved
            with Shown() as show:
                source = training.Source(found, workers=workers, progress=show.features)
                judged = training.judge_saved(path, source)
            say(f"{judged['programs']} programs of {judged['workloads']} workloads it has not seen")
            say(", ".join(f"{name} {number(judged[name])}" for name in METRICS))
            write_json(json_file, {"model": saved, **judged})
            return
        chosen = _models(models)
        hosts = {record.host for record in found.records}
        usual = "record,shape,operator" + (",host" if len(hosts) > 1 else "")
        with Shown() as show:
            report = module.evaluate(
                found,
                chosen,
                (splits or usual).split(","),
                range(seeds),
                sizes=_sizes(sizes),
                results=None if out is None else out / "results",
                workers=workers,
                features_progress=show.features,
                progress=show.trainings,
            ).to_json()
        show_report(report)
        if out is not None:
            write_folder(out, report)
        write_json(json_file, report)

    guard(body)


def _models(given: str | None) -> list[str]:
    module = load(".costmodel.train_models")
    if given is not None:
        # Not at the commas between a model's arguments.
        return [name.strip() for name in re.split(r",(?![^(]*\))", given)]
    usual: list[str] = module.usual_models()
    left_out = [name for name in module.MODELS if name not in usual]
    if left_out:
        note(f"without {', '.join(left_out)}, which need: pip install 'tensortune[neural]'")
    return usual


def _sizes(given: str | None) -> list[int]:
    try:
        found = [int(size) for size in (given or "").split(",") if size]
    except ValueError:
        found = [0]
    if any(size < 2 for size in found):
        raise ValueError(f"--sizes takes numbers of programs, as in 500,2000, not {given}")
    return found
