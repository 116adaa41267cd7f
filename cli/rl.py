"""The `tensortune rl` commands: train a policy, and judge it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .common import errors, guard, load
from .rl_evaluate import rl_evaluate
from .train_view import note, say, write_json

rl_app = typer.Typer(
    no_args_is_help=True, help="Policies that shape loop nests, learnt by reinforcement."
)
rl_app.command("evaluate")(rl_evaluate)


@rl_app.command("train")
def rl_train(
    out: Annotated[Path, typer.Option("--out", help="Folder of the training.")],
    config: Annotated[
        Path | None,
        typer.Option(
            help="TOML or JSON; what it leaves out is as it was for the policy of this package.",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the training in the folder.")
    ] = False,
    reward: Annotated[
        str | None,
        typer.Option(
            help="What pays: model (learnt of measured programs on the way), measured, or toy.",
            show_default=False,
        ),
    ] = None,
    environment: Annotated[
        str | None, typer.Option("--env", help="cursor, transform or knob.", show_default=False)
    ] = None,
    algorithm: Annotated[str | None, typer.Option(help="ppo or dqn.", show_default=False)] = None,
    steps: Annotated[
        int | None, typer.Option(help="Steps of the environments.", show_default=False)
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of all that is drawn.", show_default=False)
    ] = None,
    cores: Annotated[
        int | None, typer.Option(help="Cores that kernels run on.", show_default=False)
    ] = None,
    show_config: Annotated[
        bool, typer.Option("--show-config", help="Print the configuration, and train nothing.")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write what it came to to a file.")
    ] = None,
) -> None:
    """Train a policy. What it makes of the folder is `policy.ttp`, for `--strategy rl`.

    Interrupted, it goes on from its last checkpoint with --resume. The curves are in the folder's
    `training.json`, and for TensorBoard in `tensorboard/`.

    Examples:
    tensortune rl train --out policies/mine

    tensortune rl train --config transform.toml --seed 1 --out policies/transform-1

    tensortune rl train --out policies/mine --resume
    """

    def body() -> None:
        settings, training = load(".search.rl.config"), load(".search.rl.training")
        if resume:
            made = load(".search.rl.folder").read_config(out)
        else:
            made = settings.TrainConfig() if config is None else settings.TrainConfig.read(config)
        if resume and config is not None:
            made = settings.TrainConfig.read(config)
        given: dict[str, Any] = {"reward": reward, "environment": environment}
        given |= {"algorithm": algorithm, "steps": steps, "seed": seed, "cores": cores}
        made = made.changed(**given)
        if show_config:
            say(settings.to_toml(made))
            return
        progress = load(".search.rl.progress").TrainProgress(made.steps, errors)
        try:
            with progress:
                trained = training.train(
                    made,
                    out,
                    resume=resume,
                    on_point=progress.point,
                    on_measured=progress.measured,
                )
        except KeyboardInterrupt:
            note(f"to go on: tensortune rl train --out {out} --resume")
            raise
        _say_trained(trained)
        write_json(json_file, trained.results)

    guard(body)


def _say_trained(trained: Any) -> None:
    results = trained.results
    for entry in results["rounds"]:
        unseen = entry["unseen"] or {}
        parts = [f"{name} {value:.3f}" for name, value in unseen.items() if name != "programs"]
        fared = [f"{name} {value:.2f}" for name, value in entry["of_best"].items()]
        say(
            f"round {entry['round'] + 1}: {entry['programs']} programs; of the best known: "
            f"{', '.join(fared)}" + (f"; on new programs: {', '.join(parts)}" if parts else "")
        )
    seconds = ", ".join(f"{part} {took:.0f} s" for part, took in results["seconds"].items())
    last = results["curve"][-1]["log_speedup"] if results["curve"] else float("nan")
    say(
        f"{trained.path}: {results['steps']} steps ({seconds}), log speed-up {last:.2f}, "
        f"{trained.path.stat().st_size / 1e3:.0f} kB"
    )
