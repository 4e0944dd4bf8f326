"""The update of deep Q-learning: replayed transitions, a target network, soft updates."""

from collections import namedtuple

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward", "done"))

GAMMA = 0.99
TAU = 0.05


class DQN(nn.Module):
    def __init__(self, n_observations, n_actions):
        super(DQN, self).__init__()
        self.layer1 = nn.Linear(n_observations, 32)
        self.layer2 = nn.Linear(32, 32)
        self.layer3 = nn.Linear(32, n_actions)

    def forward(self, x):
        x = F.relu(self.layer1(x))
        x = F.relu(self.layer2(x))
        return self.layer3(x)


class Trainer:
    def __init__(self):
        self.policy_net = DQN(4, 3)
        self.target_net = DQN(4, 3)
        self.target_net.load_state_dict(self.policy_net.state_dict())
        self.model = nn.ModuleList([self.policy_net, self.target_net])
        self.optimizer = optim.AdamW(self.policy_net.parameters(), lr=1e-3, amsgrad=True)

    def step(self, *arrays):
        batch = Transition(*arrays)
        state_action_values = self.policy_net(batch.state).gather(1, batch.action)
        with torch.no_grad():
            next_state_values = self.target_net(batch.next_state).max(1).values
            next_state_values = next_state_values.masked_fill(batch.done, 0.0)
        expected_state_action_values = (next_state_values * GAMMA) + batch.reward

        criterion = nn.SmoothL1Loss()
        loss = criterion(state_action_values, expected_state_action_values.unsqueeze(1))
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(self.policy_net.parameters(), 100)
        self.optimizer.step()

        with torch.no_grad():
            for target, param in zip(self.target_net.parameters(), self.policy_net.parameters()):
                target.mul_(1 - TAU).add_(param, alpha=TAU)
        return loss

    def evaluate(self, state, *rest):
        return self.policy_net(state).max(1).indices.view(-1, 1)


def batch(rng):
    return (
        rng.standard_normal((16, 4)).astype("float32"),
        rng.integers(0, 3, (16, 1)),
        rng.standard_normal((16, 4)).astype("float32"),
        rng.standard_normal(16).astype("float32"),
        rng.random(16) < 0.2,
    )
