"""Soft actor-critic: squashed normal actions, twin critics with slow copies, a learned weight."""

import math
from copy import deepcopy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

LOG_STD_MAX, LOG_STD_MIN = 2, -5


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 16), nn.ReLU())
        self.fc_mean = nn.Linear(16, 2)
        self.fc_logstd = nn.Linear(16, 2)

    def forward(self, x):
        x = self.trunk(x)
        log_std = torch.tanh(self.fc_logstd(x))
        log_std = LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (log_std + 1)
        return self.fc_mean(x), log_std

    def get_action(self, x):
        mean, log_std = self(x)
        std = log_std.exp()
        x_t = mean + std * torch.randn_like(mean)
        y_t = torch.tanh(x_t)
        log_prob = -((x_t - mean) ** 2) / (2 * std**2) - log_std - math.log(math.sqrt(2 * math.pi))
        log_prob -= torch.log(1 - y_t.pow(2) + 1e-6)
        return y_t, log_prob.sum(1, keepdim=True)


def critic():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))


class Trainer:
    def __init__(self):
        self.actor, self.qf1, self.qf2 = Actor(), critic(), critic()
        self.target1, self.target2 = deepcopy(self.qf1), deepcopy(self.qf2)
        self.log_alpha = nn.Parameter(torch.zeros(1))
        self.model = nn.ModuleList([self.actor, self.qf1, self.qf2, self.target1, self.target2])
        both = list(self.qf1.parameters()) + list(self.qf2.parameters())
        self.q_optimizer = torch.optim.Adam(both, lr=1e-2)
        self.actor_optimizer = torch.optim.Adam(list(self.actor.parameters()), lr=1e-3)
        self.a_optimizer = torch.optim.Adam([self.log_alpha], lr=1e-3)

    def step(self, obs, act, rew, done, nxt):
        alpha = self.log_alpha.exp().detach()
        with torch.no_grad():
            next_act, next_log_pi = self.actor.get_action(nxt)
            both = torch.cat([nxt, next_act], 1)
            q = torch.min(self.target1(both), self.target2(both)) - alpha * next_log_pi
            target = rew.flatten() + (1 - done.flatten()) * 0.9 * q.view(-1)
        both = torch.cat([obs, act], 1)
        qf_loss = F.mse_loss(self.qf1(both).view(-1), target)
        qf_loss = qf_loss + F.mse_loss(self.qf2(both).view(-1), target)
        self.q_optimizer.zero_grad()
        qf_loss.backward()
        self.q_optimizer.step()

        pi, log_pi = self.actor.get_action(obs)
        both = torch.cat([obs, pi], 1)
        actor_loss = ((alpha * log_pi) - torch.min(self.qf1(both), self.qf2(both))).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()
        self.actor_optimizer.step()

        alpha_loss = (-self.log_alpha.exp() * (log_pi.detach() - 2.0)).mean()
        self.a_optimizer.zero_grad()
        alpha_loss.backward()
        self.a_optimizer.step()
        for net, slow in ((self.qf1, self.target1), (self.qf2, self.target2)):
            for param, target_param in zip(net.parameters(), slow.parameters()):
                target_param.data.copy_(0.05 * param.data + (1 - 0.05) * target_param.data)
        return qf_loss

    def evaluate(self, obs, act, rew, done, nxt):
        return self.actor(obs)[0]


def batch(rng):
    obs, act, rew, nxt = (rng.standard_normal(s) for s in ((9, 4), (9, 2), 9, (9, 4)))
    done = rng.random(9) < 0.2
    return tuple(np.asarray(a, "float32") for a in (obs, np.tanh(act), 3 * rew, done, nxt))
