"""denoising-diffusion-pytorch: the U-Net, the losses and the chain of sampling steps."""

import torch
from common import data, finish, prepared, record, record_step
from denoising_diffusion_pytorch import (
    GaussianDiffusion,
    GaussianDiffusion1D,
    KarrasUnet,
    Unet,
    Unet1D,
)

torch.set_default_dtype(torch.float64)
model = prepared(Unet(dim=8, dim_mults=(1, 2), flash_attn=False, attn_heads=2, attn_dim_head=8))
image, time = data(2, 3, 16, 16), torch.tensor([3.0, 7.0])
step = torch.tensor([3, 7])
record_step("unet", model, model(image, time))
self_conditioned = prepared(Unet(dim=8, dim_mults=(1, 2), self_condition=True)).eval()
record("unet.self", self_conditioned(image, time, image * 0.5))
for objective in ("pred_noise", "pred_x0", "pred_v"):
    diffusion = GaussianDiffusion(model, image_size=16, timesteps=10, objective=objective).double()
    diffusion.sampling_timesteps = 4
    loss = diffusion.p_losses(image.sigmoid(), step, noise=data(2, 3, 16, 16, seed=5))
    record(f"{objective}.loss", loss)
    loss.backward()
    with torch.no_grad():
        found = diffusion.p_mean_variance(image, step, clip_denoised=True)
        record(f"{objective}.posterior", list(found))
        record(f"{objective}.start", diffusion.q_sample(image, step, data(2, 3, 16, 16, seed=6)))
diffusion = GaussianDiffusion(model, image_size=16, timesteps=10, sampling_timesteps=4).double()
assert diffusion.sample(batch_size=1).shape == (1, 3, 16, 16)
optimizer = torch.optim.Adam(diffusion.parameters(), lr=1e-3, betas=(0.9, 0.99))
for i in range(3):
    optimizer.zero_grad()
    loss = diffusion.p_losses(image.sigmoid(), step, noise=data(2, 3, 16, 16, seed=i))
    loss.backward()
    optimizer.step()
    record(f"step.{i}", loss)
one = prepared(Unet1D(dim=8, dim_mults=(1, 2), channels=4))
record_step("unet1d", one, one(data(2, 4, 16), time))
diffusion = GaussianDiffusion1D(one, seq_length=16, timesteps=10, objective="pred_v").double()
record("loss1d", diffusion.p_losses(data(2, 4, 16).sigmoid(), step, noise=data(2, 4, 16, seed=2)))
karras = KarrasUnet(image_size=16, dim=8, dim_max=16, num_downsamples=1, num_blocks_per_stage=1,
                    attn_res=(8,), attn_dim_head=8, fourier_dim=8)  # fmt: skip
karras = prepared(karras).eval()
for _, buffer in sorted(karras.named_buffers()):
    if buffer.is_floating_point():
        buffer.copy_(data(*buffer.shape))
record("karras", karras(data(2, 4, 16, 16), time))
finish()
