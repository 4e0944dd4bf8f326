"""An image GAN: transposed convolutions, spectral norms, networks that are frozen in turn."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import spectral_norm

nz, ngf, ndf, nc = 6, 4, 4, 1


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False),
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, nc, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, input):
        return self.main(input)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            spectral_norm(nn.Conv2d(nc, ndf, 4, 2, 1, bias=False)),
            nn.LeakyReLU(0.2, inplace=True),
            spectral_norm(nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False)),
            nn.LeakyReLU(0.2, inplace=True),
        )
        self.fc = spectral_norm(nn.Linear(ndf * 2 * 4, 1))

    def forward(self, input):
        return self.fc(self.main(input).view(input.size(0), -1)).view(-1)


def set_requires_grad(net, requires_grad):
    for param in net.parameters():
        param.requires_grad = requires_grad


class Trainer:
    def __init__(self):
        self.G, self.D = Generator(), Discriminator()
        self.model = nn.ModuleDict(dict(g=self.G, d=self.D))
        self.opt_g = torch.optim.Adam(self.G.parameters(), lr=2e-4, betas=(0.5, 0.9))
        self.opt_d = torch.optim.Adam(self.D.parameters(), lr=5e-3, betas=(0.5, 0.9))

    def step(self, real, z):
        set_requires_grad(self.D, True)
        self.D.zero_grad()
        fake = self.G(z).detach()
        loss_d = F.relu(1.0 - self.D(real)).mean() + F.relu(1.0 + self.D(fake)).mean()
        loss_d.backward()
        self.opt_d.step()
        set_requires_grad(self.D, False)
        self.G.zero_grad()
        loss_g = -self.D(self.G(z)).mean()
        loss_g.backward()
        self.opt_g.step()
        return loss_d

    def evaluate(self, real, z):
        return self.D(real)


def batch(rng):
    return (
        rng.random((5, 1, 8, 8)).astype("float32") * 2 - 1,
        rng.standard_normal((5, nz, 1, 1)).astype("float32"),
    )
