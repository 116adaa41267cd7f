"""The models that can be trained on a dataset, by name: their features, and what makes them."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from .base import CostModel
from .combined import features_of
from .files import make_model

PEER = "metaschedule-xgb"
"""The model that the others are compared with."""

# For thousands of programs of many workloads; the defaults of `XGBModel` are for the few dozen of
# one workload that a tuning run has.
LARGE: dict[str, Any] = {
    "rounds": 200,
    "max_depth": 6,
    "learning_rate": 0.12,
    "min_child_weight": 1.0,
}

# The same where nobody has to wait for a prediction, and a file may be larger.
DEEP: dict[str, Any] = {
    "rounds": 200,
    "max_depth": 8,
    "learning_rate": 0.1,
    "min_child_weight": 4.0,
}

# Members' seeds are further apart than the seeds that a user counts up.
_APART = 1_000_003

_NAME = re.compile(r"([\w-]+)\((.*)\)", re.DOTALL)


@dataclass(frozen=True)
class Part:
    """A model on one kind of features, not made yet.

    Attributes:
        features: The kind of its features.
        made_by: Import path of the class, within this package where it begins with a dot.
        arguments: What the class is made with, besides the seed.
        needs: An optional package that it needs.
        member: Tells parts from one another that differ by their seed alone.
    """

    features: str
    made_by: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""
    member: int = 0

    @property
    def key(self) -> str:
        """Equal for equal parts."""
        what = [self.features, self.made_by, dict(self.arguments)]
        return json.dumps(what + [self.member] * bool(self.member), sort_keys=True)

    def make(self, seed: int) -> CostModel:
        """The untrained model.

        Raises:
            ValueError: it can't be made of the arguments, or a package is missing.
        """
        if not self.made_by.startswith("."):
            return make_model(self.made_by, seed)
        if self.needs and find_spec(self.needs) is None:
            raise ValueError(
                f"this model needs {self.needs}: pip install 'tensortune[neural]', or leave it out"
            )
        module, _, name = self.made_by.partition(":")
        made = getattr(import_module(module, __package__), name)
        known = [n for n in inspect.signature(made).parameters if n not in ("seed", "self")]
        wrong = [name for name in self.arguments if name not in known]
        if wrong:
            raise ValueError(f"`{name}` has no `{wrong[0]}`; there are {', '.join(known)}")
        model: CostModel = made(seed=seed + _APART * self.member, **self.arguments)
        return model


_XGB = Part("statements", ".xgb:XGBModel", LARGE)
_XGB_RELATIONS = Part("relations", ".xgb:XGBModel", LARGE)
_DRAFT = Part("general", ".xgb:XGBModel", {**LARGE, "rounds": 150, "learning_rate": 0.1})
_DEEP = tuple(
    Part(features, ".xgb:XGBModel", DEEP)
    for features in ("statements", "relations", "general", "relations+general")
)
_TREEGRU = tuple(Part("loops", ".treegru:TreeGRU", needs="torch", member=i) for i in range(5))
# Two votes for the joint row, which ranks best alone, and for the one without decision trees.
_ALL = (*_DEEP, replace(_DEEP[-1], member=1), *_TREEGRU[:2])

MODELS: dict[str, tuple[Part, ...]] = {
    "xgb": (_XGB,),
    "xgb-small": (Part("statements", ".xgb:XGBModel"),),
    "xgb-relations": (_XGB_RELATIONS,),
    "draft": (_DRAFT,),
    "verify": (_XGB, _XGB_RELATIONS),
    "xgb-joint": (_DEEP[-1],),
    "xgb-all": _DEEP,
    "treegru": _TREEGRU[:1],
    "treegru-5": _TREEGRU,
    "all": _ALL,
    PEER: (Part("statements", ".peer_metaschedule:MetaScheduleXGB"),),
}
"""The models that can be trained, by name; one of several parts adds up their scores."""


def parts_of(name: str) -> tuple[Part, ...]:
    """What a model consists of.

    Args:
        name: One of `MODELS`, with arguments of its class in brackets if others than the usual
            ones are wanted, as in `xgb(max_depth=4,objective=regression)`; or
            `package.module:Name` of a class of one's own (see `files.make_model`), whose attribute
            `features` says which kind it takes.

    Raises:
        ValueError: there is no such model, or it takes no such arguments.
    """
    if name in MODELS:
        return MODELS[name]
    given = _NAME.fullmatch(name)
    if given and given[1] in MODELS:
        parts = MODELS[given[1]]
        if len(parts) > 1:
            raise ValueError(f"`{given[1]}` has several parts and takes no arguments")
        part = replace(parts[0], arguments=dict(parts[0].arguments) | _arguments(given[2]))
        part.make(0)
        return (part,)
    if ":" in name:
        return (Part(features_of(make_model(name))[0], name),)
    raise ValueError(
        f"there is no model `{name}`: choose {', '.join(MODELS)}, or name a class of your own as "
        "package.module:Name"
    )


def _arguments(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in filter(None, text.split(",")):
        name, equals, value = (piece.strip() for piece in pair.partition("="))
        if not (name and equals and value):
            raise ValueError(f"arguments are written as name=value, not `{pair}`")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def usual_models() -> list[str]:
    """The names of `MODELS` whose packages are installed."""
    return [
        name
        for name, parts in MODELS.items()
        if all(not part.needs or find_spec(part.needs) is not None for part in parts)
    ]
