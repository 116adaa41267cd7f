"""The folder of a training.

It holds `config.json`, the last `checkpoint.ttc`, the policy of that moment (`policy.ttp`), the
learning curve and what was noted on the way (`training.json`), and TensorBoard's files. With
`reward = "model"` there are also the programs that were measured (`records.jsonl`), and the model
that was fitted to them (`policy.ttm`), which ranks what the policy makes.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import filelock

from ..run_folder import write_json
from .config import TrainConfig

CONFIG, CHECKPOINT, POLICY = "config.json", "checkpoint.ttc", "policy.ttp"
RECORDS, MODEL, RESULTS = "records.jsonl", "policy.ttm", "training.json"


class TrainingError(ValueError):
    """The folder can't take this training; the message says what to do."""


def claim(folder: Path, config: TrainConfig, resume: bool) -> filelock.BaseFileLock:
    """The folder's lock, once the folder is known to be for this run.

    Raises:
        TrainingError: it is not.
    """
    file = folder / CONFIG
    if file.exists() and not resume:
        raise TrainingError(
            f"{folder} holds a training already: go on with it (--resume), or choose another folder"
        )
    if resume and not file.exists():
        raise TrainingError(f"{folder} holds no training to go on with: leave --resume out")
    if not file.exists() and folder.exists() and any(folder.iterdir()):
        raise TrainingError(f"{folder} holds something else: choose an empty or a new folder")
    if resume:
        held = TrainConfig.read(file).to_json()
        for name, value in json.loads(json.dumps(config.to_json())).items():
            if json.loads(json.dumps(held[name])) != value:
                raise TrainingError(
                    f"{folder} holds a training with `{name}` {held[name]}, not {value}: go on "
                    "without --config and other settings, or choose another folder"
                )
    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / "training.lock", timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        raise TrainingError(f"another process trains in {folder}: wait, or end it") from error
    write_json(file, config.to_json())
    return lock


def read_config(folder: str | os.PathLike[str]) -> TrainConfig:
    """The configuration of the training in a folder.

    Raises:
        TrainingError: there is none.
    """
    file = Path(folder) / CONFIG
    if not file.exists():
        raise TrainingError(f"{folder} holds no training to go on with: leave --resume out")
    return TrainConfig.read(file)
