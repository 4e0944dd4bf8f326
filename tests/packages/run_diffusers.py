"""diffusers: networks, schedulers and a pipeline."""

import torch
from common import data, finish, prepared, record, record_step
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    DDPMPipeline,
    DDPMScheduler,
    DPMSolverMultistepScheduler,
    EulerDiscreteScheduler,
    UNet2DConditionModel,
    UNet2DModel,
)

unet = UNet2DModel(
    sample_size=8, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(8, 16),
    down_block_types=("DownBlock2D", "AttnDownBlock2D"), norm_num_groups=4,
    up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=4,
)  # fmt: skip
unet = prepared(unet).eval()
x = data(2, 3, 8, 8)
record_step("unet", unet, unet(x, 5).sample)
conditioned = UNet2DConditionModel(
    sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(8, 16),
    down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), cross_attention_dim=12,
    up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), attention_head_dim=4, norm_num_groups=4,
)  # fmt: skip
conditioned = prepared(conditioned).eval()
out = conditioned(data(2, 4, 8, 8), 7, encoder_hidden_states=data(2, 5, 12)).sample
record_step("conditioned", conditioned, out)
vae = AutoencoderKL(
    block_out_channels=(8, 16), down_block_types=("DownEncoderBlock2D",) * 2,
    up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=2, norm_num_groups=4,
)  # fmt: skip
vae = prepared(vae).eval()
record_step("vae", vae, vae(x).sample)
with torch.no_grad():
    for kind in (DDIMScheduler, DPMSolverMultistepScheduler, EulerDiscreteScheduler):
        scheduler = kind(num_train_timesteps=100)
        scheduler.set_timesteps(5)
        sample = x * scheduler.init_noise_sigma
        for t in scheduler.timesteps:
            scaled = scheduler.scale_model_input(sample, t)
            sample = scheduler.step(unet(scaled, t).sample, t, sample).prev_sample
        record(kind.__name__, sample)
    noisy = DDPMScheduler(100).add_noise(x, data(2, 3, 8, 8, seed=3), torch.tensor([3, 90]))
record("noisy", noisy)
pipeline = DDPMPipeline(unet.float(), DDPMScheduler(100))
images = pipeline(num_inference_steps=2, output_type="np").images
record("pipeline", images.shape)
finish()
