"""The networks of policies: an encoder for each kind of observation, and what chooses actions.

Plain torch: what was trained acts without stable-baselines3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

try:
    import torch
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"a policy needs {error.name}: pip install 'tensortune[rl]'", name=error.name
    ) from error

from .observe import ACCESS_COLUMNS, EDGE_COLUMNS, LOOP_COLUMNS, GraphShape

_CURSOR, _THERE = LOOP_COLUMNS.index("cursor"), LOOP_COLUMNS.index("there")
# Numbers of each loop that are handed on as they are, so that an action can be about its level.
_KEPT = 8


class FlatEncoder(torch.nn.Module):
    """Takes a vector as it is: what it means is for the layers behind it to find out.

    Args:
        inputs: Its length.
    """

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.width = inputs

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Features of shape (batch, `width`)."""
        return observation


class GraphEncoder(torch.nn.Module):
    """Passes messages along the graph of loops and accesses that `GraphObserver` shows.

    In each round every access hears from the loops that move it, with their strides, and every loop
    hears from the accesses and from the loops right above and below it. What is read out are the
    nest's globals, the mean and the maximum over the loops, the loop at the cursor, and a few
    numbers of each level.

    Args:
        shape: How large the graph's matrices are.
        hidden: Numbers that a loop or an access is described by.
        rounds: How often messages are passed.
    """

    def __init__(self, shape: GraphShape, hidden: int = 32, rounds: int = 2) -> None:
        super().__init__()
        self.shape = shape
        linear = torch.nn.Linear
        self.loops = linear(len(LOOP_COLUMNS), hidden)
        self.accesses = linear(len(ACCESS_COLUMNS), hidden)
        self.to_access = torch.nn.ModuleList(_Messages(hidden) for _ in range(rounds))
        self.to_loop = torch.nn.ModuleList(_Messages(hidden) for _ in range(rounds))
        self.access = torch.nn.ModuleList(linear(2 * hidden, hidden) for _ in range(rounds))
        self.loop = torch.nn.ModuleList(linear(4 * hidden, hidden) for _ in range(rounds))
        self.kept = linear(hidden, _KEPT)
        self.width = shape.globals + 3 * hidden + shape.loops * _KEPT

    def forward(self, observation: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Features of shape (batch, `width`)."""
        parts = self.shape.split(dict(observation))
        # Most nests have a few loops and accesses: rows that none of the batch uses cost time only.
        used = parts["accesses"][..., 0]
        rows, columns = _last(parts["loops"][..., _THERE]), _last(used)
        shown = parts["loops"][:, :rows]
        edges, there = parts["edges"][:, :rows, :columns], shown[..., _THERE, None]
        used = used[:, :columns, None]
        loops = torch.relu(self.loops(shown)) * there
        accesses = torch.relu(self.accesses(parts["accesses"][:, :columns])) * used
        for to_access, to_loop, access, loop in zip(
            self.to_access, self.to_loop, self.access, self.loop, strict=True
        ):
            heard = to_access(loops[:, :, None], edges, there[:, :, None]).sum(1)
            accesses = torch.relu(access(torch.cat([accesses, heard], -1))) * used
            heard = to_loop(accesses[:, None], edges, used[:, None]).sum(2)
            around = [loops, heard, _shifted(loops, 1), _shifted(loops, -1)]
            loops = torch.relu(loop(torch.cat(around, -1))) * there
        cursor = (loops * shown[..., _CURSOR, None]).sum(1)
        mean = loops.sum(1) / there.sum(1).clamp(min=1.0)
        kept = (self.kept(loops) * there).flatten(1)
        kept = torch.nn.functional.pad(kept, (0, self.shape.loops * _KEPT - kept.shape[1]))
        return torch.cat([parts["globals"], mean, loops.amax(1), cursor, kept], -1)


def _last(flags: torch.Tensor) -> int:
    """How many rows a batch uses, at least one."""
    return max(1, int(flags.sum(1).amax()))


class _Messages(torch.nn.Module):
    """What is sent along the edges: a layer on the sender and the edge, as if side by side."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.sender = torch.nn.Linear(hidden, hidden)
        self.edge = torch.nn.Linear(len(EDGE_COLUMNS), hidden, bias=False)

    def forward(
        self, senders: torch.Tensor, edges: torch.Tensor, there: torch.Tensor
    ) -> torch.Tensor:
        """Messages of shape (batch, loops, accesses, hidden); none from rows that are not there."""
        return torch.relu(self.sender(senders) + self.edge(edges)) * there


def _shifted(loops: torch.Tensor, by: int) -> torch.Tensor:
    """For each loop the one `by` levels above it; zeros beyond the ends."""
    return torch.nn.functional.pad(loops, (0, 0, by, -by))


Encoder = FlatEncoder | GraphEncoder


def make_encoder(observation: Mapping[str, int], hidden: int) -> Encoder:
    """The encoder of an observation.

    Args:
        observation: `{"inputs": ...}` for a vector, the fields of `GraphShape` for a graph.
        hidden: See `GraphEncoder`.
    """
    if "inputs" in observation:
        return FlatEncoder(observation["inputs"])
    return GraphEncoder(GraphShape(**observation), hidden)


class Actor(torch.nn.Module):
    """From observations to the preferences for actions.

    Args:
        observation: See `make_encoder`.
        graph_hidden: See `GraphEncoder`.
        layers: Sizes of the layers behind the encoder.
        actions: How many actions there are, or values of all dimensions together.
        activation: `tanh` or `relu`.
    """

    def __init__(
        self,
        *,
        observation: Mapping[str, int],
        graph_hidden: int,
        layers: Sequence[int],
        actions: int,
        activation: str,
    ) -> None:
        super().__init__()
        self.arguments = {
            "observation": dict(observation),
            "graph_hidden": graph_hidden,
            "layers": list(layers),
            "actions": actions,
            "activation": activation,
        }
        self.encoder = make_encoder(observation, graph_hidden)
        parts: list[torch.nn.Module] = []
        before = self.encoder.width
        for size in layers:
            parts += [torch.nn.Linear(before, size), ACTIVATIONS[activation]()]
            before = size
        self.body = torch.nn.Sequential(*parts)
        self.head = torch.nn.Linear(before, actions)

    def forward(self, observation: Any) -> torch.Tensor:
        """Logits of shape (batch, actions)."""
        logits: torch.Tensor = self.head(self.body(self.encoder(observation)))
        return logits


ACTIVATIONS: dict[str, type[torch.nn.Module]] = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}
"""Activations by name."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute on one thread: for networks this small a second one costs time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
