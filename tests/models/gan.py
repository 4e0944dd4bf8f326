"""A generative adversarial network: two networks, two optimizers, detached fakes."""

import numpy as np
import torch
import torch.nn as nn

img_shape = (1, 8, 8)
latent_dim = 10


class Generator(nn.Module):
    def __init__(self):
        super(Generator, self).__init__()

        def block(in_feat, out_feat, normalize=True):
            layers = [nn.Linear(in_feat, out_feat)]
            if normalize:
                layers.append(nn.BatchNorm1d(out_feat, 0.8))
            layers.append(nn.LeakyReLU(0.2, inplace=True))
            return layers

        self.model = nn.Sequential(
            *block(latent_dim, 16, normalize=False),
            *block(16, 32),
            nn.Linear(32, int(np.prod(img_shape))),
            nn.Tanh(),
        )

    def forward(self, z):
        img = self.model(z)
        return img.view(img.size(0), *img_shape)


class Discriminator(nn.Module):
    def __init__(self):
        super(Discriminator, self).__init__()
        self.model = nn.Sequential(
            nn.Linear(int(np.prod(img_shape)), 32),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(32, 16),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(16, 1),
            nn.Sigmoid(),
        )

    def forward(self, img):
        img_flat = img.view(img.size(0), -1)
        return self.model(img_flat)


class Trainer:
    def __init__(self):
        self.generator = Generator()
        self.discriminator = Discriminator()
        self.model = nn.ModuleDict({"g": self.generator, "d": self.discriminator})
        self.adversarial_loss = nn.BCELoss()
        betas = (0.5, 0.999)
        self.optimizer_G = torch.optim.Adam(self.generator.parameters(), lr=2e-3, betas=betas)
        self.optimizer_D = torch.optim.Adam(self.discriminator.parameters(), lr=2e-3, betas=betas)

    def step(self, imgs):
        valid = torch.ones(imgs.size(0), 1, requires_grad=False)
        fake = torch.zeros(imgs.size(0), 1, requires_grad=False)

        self.optimizer_G.zero_grad()
        z = torch.randn(imgs.shape[0], latent_dim)
        gen_imgs = self.generator(z)
        g_loss = self.adversarial_loss(self.discriminator(gen_imgs), valid)
        g_loss.backward()
        self.optimizer_G.step()

        self.optimizer_D.zero_grad()
        real_loss = self.adversarial_loss(self.discriminator(imgs), valid)
        fake_loss = self.adversarial_loss(self.discriminator(gen_imgs.detach()), fake)
        d_loss = (real_loss + fake_loss) / 2
        d_loss.backward()
        self.optimizer_D.step()
        return d_loss

    def evaluate(self, imgs):
        return self.discriminator(imgs)


def batch(rng):
    return (np.tanh(rng.standard_normal((6, 1, 8, 8)) + 1.0).astype("float32"),)
