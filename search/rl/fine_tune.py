"""Training a policy on with what is measured in a tuning run."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .networks import one_thread  # first: its absence says which extra to install

# isort: split

import torch

from .policy import Episode, Policy, batch

# What a distribution that has settled loses, so that something new is still drawn.
_ENTROPY = 0.01
_MASKED = -1e9


class FineTuner:
    """Makes a policy's episodes likelier the faster the programs are that they came to.

    Self-imitation (Oh et al., ICML 2018): the log-likelihood of an episode's actions is raised in
    proportion to how many standard deviations its program's log-speed is above the mean of all
    that was measured; what is below it is left alone. The policy given is not changed.

    Args:
        policy: The policy to begin with.
        learning_rate: Adam's step.
        passes: How often all episodes are gone through each time.
    """

    def __init__(self, policy: Policy, *, learning_rate: float = 1e-3, passes: int = 4) -> None:
        self.policy = replace(policy, net=copy.deepcopy(policy.net))
        self.passes = passes
        self._adam = torch.optim.Adam(self.policy.net.parameters(), lr=learning_rate)

    def learn(self, episodes: Sequence[Episode], log_speeds: Sequence[float]) -> None:
        """Learn from all episodes that were measured so far.

        Args:
            episodes: The episodes.
            log_speeds: For each the logarithm of its program's speed; -inf for one that failed.
        """
        speed = np.asarray(log_speeds, dtype=np.float64)
        valid = np.isfinite(speed)
        if valid.sum() < 2 or speed[valid].std() == 0.0:
            return
        centred = np.where(valid, speed - speed[valid].mean(), 0.0)
        weight = np.maximum(centred / speed[valid].std(), 0.0)
        chosen = np.flatnonzero(weight).tolist()
        with one_thread():
            for _ in range(self.passes):
                loss = self._loss([episodes[at] for at in chosen], weight[chosen])
                self._adam.zero_grad()
                loss.backward()
                self._adam.step()

    def _loss(self, episodes: Sequence[Episode], weight: np.ndarray) -> torch.Tensor:
        seen = batch([one for episode in episodes for one in episode.observations])
        masks = torch.from_numpy(np.concatenate([episode.masks for episode in episodes]))
        actions = torch.from_numpy(np.concatenate([episode.actions for episode in episodes]))
        each = np.repeat(weight, [len(episode.actions) for episode in episodes])
        logits = self.policy.net(seen).masked_fill(~masks.bool(), _MASKED)
        # One distribution for each dimension of an action.
        log = logits.reshape(len(logits), actions.shape[1], -1).log_softmax(dim=-1)
        said = log.gather(2, actions.unsqueeze(2)).squeeze(2).sum(dim=1)
        entropy = -(log.exp() * log).sum(dim=(1, 2))
        share = torch.from_numpy((each / each.sum()).astype(np.float32))
        return -(share * (said + _ENTROPY * entropy)).sum()
