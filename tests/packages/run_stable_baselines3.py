"""stable-baselines3: policies, networks and training on a small world."""

import gymnasium
import numpy as np
import torch
from common import data, finish, prepared, record
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3


class Line(gymnasium.Env):
    """Reach the right end; what happens follows from the actions alone."""

    def __init__(self, continuous=False):
        space = gymnasium.spaces
        self.observation_space = space.Box(-5, 5, (2,), np.float32)
        self.continuous = continuous
        self.action_space = space.Box(-1, 1, (1,), np.float32) if continuous else space.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.count = 0.0, 0
        return self.seen(), {}

    def seen(self):
        return np.array([self.place, self.count / 20], np.float32)

    def step(self, action):
        self.place += float(action[0]) if self.continuous else (0.5 if action == 1 else -0.5)
        self.place = float(np.clip(self.place, -5, 5))
        self.count += 1
        return self.seen(), self.place, self.place >= 3, self.count >= 20, {}


for kind in (PPO, A2C):
    model = kind("MlpPolicy", Line(), n_steps=32, seed=0, device="cpu")
    model.learn(64)
    assert all(torch.isfinite(p).all() for p in model.policy.parameters())
    fresh = prepared(kind("MlpPolicy", Line(), seed=0, device="cpu").policy).float()
    seen = data(6, 2).float()
    values, log_probabilities, entropy = fresh.evaluate_actions(seen, data(6, high=2))
    record(f"{kind.__name__}.evaluated", [values, log_probabilities, entropy])
    (values.sum() + log_probabilities.sum() + entropy.sum()).backward()
    record(f"{kind.__name__}.gradients", [p.grad for p in fresh.parameters()])
    record(f"{kind.__name__}.chosen", fresh.predict(np.zeros((3, 2)), deterministic=True)[0])
for kind in (SAC, TD3, DQN):
    world = Line(continuous=kind is not DQN)
    model = kind("MlpPolicy", world, learning_starts=16, batch_size=8, seed=0, device="cpu",
                 buffer_size=100)  # fmt: skip
    model.learn(40)
    assert all(torch.isfinite(p).all() for p in model.policy.parameters())
    policy = prepared(model.policy).float()
    record(f"{kind.__name__}.chosen", policy.predict(np.ones((3, 2)), deterministic=True)[0])
    if kind is not DQN:
        record(
            f"{kind.__name__}.critic", list(policy.critic(data(4, 2).float(), data(4, 1).float()))
        )
    else:
        record(f"{kind.__name__}.critic", policy.q_net(data(4, 2).float()))
finish()
