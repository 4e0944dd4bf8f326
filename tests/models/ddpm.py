"""A step of denoising diffusion: schedules as buffers, time embeddings, averaged weights."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def cosine_beta_schedule(timesteps, s=0.008):
    steps = timesteps + 1
    x = torch.linspace(0, timesteps, steps, dtype=torch.float64)
    alphas_cumprod = torch.cos(((x / timesteps) + s) / (1 + s) * math.pi * 0.5) ** 2
    alphas_cumprod = alphas_cumprod / alphas_cumprod[0]
    betas = 1 - (alphas_cumprod[1:] / alphas_cumprod[:-1])
    return torch.clip(betas, 0, 0.999)


def extract(a, t, x_shape):
    b, *_ = t.shape
    out = a.gather(-1, t)
    return out.reshape(b, *((1,) * (len(x_shape) - 1)))


class SinusoidalPosEmb(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        device = x.device
        half_dim = self.dim // 2
        emb = math.log(10000) / (half_dim - 1)
        emb = torch.exp(torch.arange(half_dim, device=device) * -emb)
        emb = x[:, None] * emb[None, :]
        return torch.cat((emb.sin(), emb.cos()), dim=-1)


class ResnetBlock(nn.Module):
    def __init__(self, dim, time_dim, groups=2):
        super().__init__()
        self.mlp = nn.Sequential(nn.SiLU(), nn.Linear(time_dim, dim * 2))
        self.proj = nn.Conv2d(dim, dim, 3, padding=1)
        self.norm = nn.GroupNorm(groups, dim)
        self.act = nn.SiLU()

    def forward(self, x, time_emb):
        scale, shift = self.mlp(time_emb)[:, :, None, None].chunk(2, dim=1)
        h = self.norm(self.proj(x))
        h = h * (scale + 1) + shift
        return self.act(h) + x


class Denoiser(nn.Module):
    def __init__(self, dim=8, channels=1):
        super().__init__()
        self.init_conv = nn.Conv2d(channels, dim, 3, padding=1)
        self.time_mlp = nn.Sequential(
            SinusoidalPosEmb(dim), nn.Linear(dim, dim * 4), nn.GELU(), nn.Linear(dim * 4, dim * 4)
        )
        self.blocks = nn.ModuleList([ResnetBlock(dim, dim * 4) for _ in range(2)])
        self.final_conv = nn.Conv2d(dim, channels, 1)

    def forward(self, x, time):
        x = self.init_conv(x)
        t = self.time_mlp(time)
        for block in self.blocks:
            x = block(x, t)
        return self.final_conv(x)


class GaussianDiffusion(nn.Module):
    def __init__(self, model, timesteps=50):
        super().__init__()
        self.model = model
        self.num_timesteps = timesteps
        betas = cosine_beta_schedule(timesteps)
        alphas = 1.0 - betas
        alphas_cumprod = torch.cumprod(alphas, dim=0)
        alphas_cumprod_prev = F.pad(alphas_cumprod[:-1], (1, 0), value=1.0)

        def register_buffer(name, val):
            self.register_buffer(name, val.to(torch.float32))

        register_buffer("betas", betas)
        register_buffer("alphas_cumprod", alphas_cumprod)
        register_buffer("sqrt_alphas_cumprod", torch.sqrt(alphas_cumprod))
        register_buffer("sqrt_one_minus_alphas_cumprod", torch.sqrt(1.0 - alphas_cumprod))
        register_buffer("sqrt_recip_alphas", torch.sqrt(1.0 / alphas))
        posterior_variance = betas * (1.0 - alphas_cumprod_prev) / (1.0 - alphas_cumprod)
        register_buffer("posterior_variance", posterior_variance)

    def q_sample(self, x_start, t, noise):
        return (
            extract(self.sqrt_alphas_cumprod, t, x_start.shape) * x_start
            + extract(self.sqrt_one_minus_alphas_cumprod, t, x_start.shape) * noise
        )

    def forward(self, img):
        b, c, h, w = img.shape
        t = torch.randint(0, self.num_timesteps, (b,), device=img.device).long()
        noise = torch.randn_like(img)
        x = self.q_sample(img * 2 - 1, t, noise)
        return F.mse_loss(self.model(x, t), noise)

    @torch.inference_mode()
    def sample(self, shape, steps):
        img = torch.randn(shape)
        for i in reversed(range(0, steps)):
            t = torch.full((shape[0],), i, dtype=torch.long)
            mean = extract(self.sqrt_recip_alphas, t, shape) * (
                img
                - extract(self.betas, t, shape)
                / extract(self.sqrt_one_minus_alphas_cumprod, t, shape)
                * self.model(img, t)
            )
            noise = torch.randn_like(img) if i > 0 else 0.0
            img = mean + (extract(self.posterior_variance, t, shape) ** 0.5) * noise
        return (img.clamp(-1, 1) + 1) * 0.5


class EMA:
    def __init__(self, model, decay=0.9):
        self.decay = decay
        self.model = copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for ema, p in zip(self.model.parameters(), model.parameters()):
            ema.copy_(ema.lerp(p, 1 - self.decay))


class Trainer:
    def __init__(self):
        self.model = GaussianDiffusion(Denoiser())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3, betas=(0.9, 0.99))
        self.ema = EMA(self.model)

    def step(self, img):
        loss = self.model(img)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.ema.update(self.model)
        return loss

    def evaluate(self, img):
        return self.model.model(img, torch.arange(img.shape[0]))


def batch(rng):
    return (rng.random((4, 1, 8, 8)).astype("float32"),)
