"""A recurrent neural network over loop trees as a cost model (torch, in the `neural` extra)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

try:
    from safetensors import SafetensorError
    from safetensors.torch import load, save
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"the TreeGRU model needs {error.name}: pip install 'tensortune[neural]'", name=error.name
    ) from error

from .base import FeatureSchema, ModelFileError, Samples
from .features.schemas import VERSIONS
from .model_file import ModelFile, StrPath, arguments_of, check_samples, describe
from .treegru_net import TreeNet
from .treegru_training import Epoch, Training, scores_of, tells_apart, workers

Array = npt.NDArray[np.float64]

Progress = Callable[[int, int, float], None]
"""Called with an epoch, of how many, and the pairwise accuracy on validation programs (or NaN)."""

# With fewer groups single programs are held out for validation, and with fewer of them none are.
_FEWEST_GROUPS = 5
_FEWEST_PROGRAMS = 20


class TreeGRU:
    """Ranks programs with a child-sum gated recurrent unit over their loop trees.

    After AutoTVM's TreeGRU (Chen et al., NeurIPS 2018, section 3.1). It learns from pairs of one
    group's programs, which is the faster: `log(1 + exp(-(score_fast - score_slow)))`, where a pair
    counts the more the further apart its latencies are, and not at all within the noise. Some of
    the groups are held out of the fit, and what ranked their programs best is kept.

    Samples are trees: a row is a node, and the first column says how many rows above it the
    parent's is, 0 for a root, as in loop features; a parent's row comes before its children's.

    Steps and penalty are larger than AutoTVM's (7e-4 and 1e-4), which in as many epochs came to a
    pairwise accuracy of 0.73 instead of 0.75 on held-out programs of four measured workloads.

    Programs that failed are left out of the fit, as those of `XGBModel` are. The same seed gives
    the same model on one machine, whatever its load and the number of cores that may be used, and
    scores do not depend on which programs are scored together (if `hidden` is a multiple of 32).

    Args:
        embedding: Size of what a node's features are turned into.
        hidden: Size of a node's state.
        epochs: How often a fit sees each program, at most.
        learning_rate: Adam's step at the beginning; it falls to 0 along a cosine.
        weight_decay: L2 penalty on the weights.
        clip: Longest gradient; a longer one is shortened.
        holdout: Share of the groups that a fit leaves out to validate on, at least one. With fewer
            than five groups it is a share of the programs, unless they are too few.
        patience: After how many epochs without a better validation a fit ends.
        seed: Seed of the weights, of the batches and of what is held out.
    """

    kind = "treegru"
    features = "loops"

    def __init__(
        self,
        *,
        embedding: int = 128,
        hidden: int = 128,
        epochs: int = 40,
        learning_rate: float = 3e-3,
        weight_decay: float = 1e-3,
        clip: float = 5.0,
        holdout: float = 0.1,
        patience: int = 10,
        seed: int = 0,
    ) -> None:
        self.embedding = embedding
        self.hidden = hidden
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.clip = clip
        self.holdout = holdout
        self.patience = patience
        self.seed = seed
        self.schema: FeatureSchema | None = None
        self.history: list[Epoch] = []
        self._net: TreeNet | None = None

    def fit(self, samples: Samples, progress: Progress | None = None) -> None:
        """Learn from measured samples; what was learnt before is replaced.

        `history` then has what each epoch came to.

        Args:
            samples: The samples.
            progress: Told after every epoch how far the fit is.

        Raises:
            ValueError: they are features of another kind, which are no trees.
        """
        if samples.schema.name in VERSIONS and samples.schema.name != self.features:
            raise ValueError(
                f"a TreeGRU learns from `{self.features}` features, "
                f"and is given {describe(samples.schema)}"
            )
        measured = samples.take(np.isfinite(samples.latency_s))
        self.schema, self._net, self.history = samples.schema, None, []
        if not tells_apart(measured):
            return
        rng = np.random.default_rng(self.seed)
        learnt, judged = self._split(measured, rng)
        net = TreeNet(samples.schema.width - 1, self.embedding, self.hidden, rng)
        net.standardise(learnt.rows[:, 1:])
        best, best_accuracy, since = copy.deepcopy(net.state_dict()), -1.0, 0
        for epoch in self._training().run(net, learnt, judged, rng):
            self.history.append(epoch)
            if progress is not None:
                progress(len(self.history), self.epochs, epoch.accuracy)
            since += 1
            if epoch.accuracy > best_accuracy or np.isnan(epoch.accuracy):
                best, since = copy.deepcopy(net.state_dict()), 0
                best_accuracy = np.nan_to_num(epoch.accuracy, nan=-1.0)
            if since >= self.patience:
                break
        net.load_state_dict(best)
        self._net = net

    def fine_tune(self, samples: Samples, *, epochs: int = 8, learning_rate: float = 3e-4) -> None:
        """Go on from what was learnt, with a task's own measured samples; a fit if that is nothing.

        Nothing is held out, and what features are standardised by is kept.

        Args:
            samples: The samples.
            epochs: How often each program is seen.
            learning_rate: Adam's step at the beginning.

        Raises:
            ValueError: the samples are of another schema than the model was fitted to.
        """
        check_samples(self.schema, samples)
        if self._net is None:
            self.fit(samples)
            return
        measured = samples.take(np.isfinite(samples.latency_s))
        rng = np.random.default_rng([self.seed, 1])
        training = replace(self._training(), epochs=epochs, learning_rate=learning_rate)
        for _ in training.run(self._net, measured, measured.take([]), rng):
            pass

    def predict(self, samples: Samples) -> Array:
        """Scores of shape (programs,): higher is faster, comparable within a group.

        Raises:
            ValueError: the samples are of another schema than the model was fitted to.
        """
        check_samples(self.schema, samples)
        if self._net is None:
            return np.zeros(len(samples))
        with workers() as pool:
            return scores_of(self._net, samples, pool)

    def _training(self) -> Training:
        return Training(self.epochs, self.learning_rate, self.weight_decay, self.clip)

    def _split(self, measured: Samples, rng: np.random.Generator) -> tuple[Samples, Samples]:
        """What to learn from, and what to validate on."""
        groups = np.unique(measured.groups)
        if self.holdout > 0 and len(groups) >= _FEWEST_GROUPS:
            n = max(1, round(self.holdout * len(groups)))
            out = np.isin(measured.groups, rng.choice(groups, n, replace=False))
        else:
            n = int(self.holdout * len(measured))
            out = np.zeros(len(measured), dtype=bool)
            if n >= _FEWEST_PROGRAMS:
                out[rng.choice(len(measured), n, replace=False)] = True
        if not tells_apart(measured.take(~out)):
            out[:] = False
        return measured.take(~out), measured.take(out)

    def save(self, path: StrPath, workloads: Sequence[str] = ()) -> None:
        """Write the model to a file, without pickle.

        Args:
            path: The file.
            workloads: Identities of the workloads that it was trained on.
        """
        parts = {} if self._net is None else {"weights": save(self._net.state_dict())}
        curve = [[e.loss, None if np.isnan(e.accuracy) else e.accuracy] for e in self.history]
        ModelFile(
            self.kind,
            arguments_of(self),
            self.schema,
            parts,
            state={"history": curve},
            workloads=tuple(workloads),
        ).write(path)

    @classmethod
    def load(cls, path: StrPath, schema: FeatureSchema | None = None) -> TreeGRU:
        """Read what `save` wrote; the predictions are the same to the last bit.

        Args:
            path: The file.
            schema: The features that the model will be given; see `ModelFile.read`.

        Raises:
            ModelFileError: it is no whole file of such a model, or of features of another schema.
        """
        file = ModelFile.read(path, cls.kind, schema)
        model = file.build(cls)
        model.schema = file.schema
        for loss, accuracy in file.state.get("history", []):
            model.history.append(Epoch(loss, float("nan") if accuracy is None else accuracy))
        if "weights" in file.parts and file.schema is not None:
            rng = np.random.default_rng(0)
            net = TreeNet(file.schema.width - 1, model.embedding, model.hidden, rng)
            try:
                net.load_state_dict(load(file.parts["weights"]))
            except (SafetensorError, RuntimeError) as error:
                raise ModelFileError(f"{path} has weights of another model: {error}") from error
            model._net = net
        return model
