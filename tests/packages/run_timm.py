"""timm: models of several families, in training and in evaluation; optimizers and schedules."""

import timm
import torch
from common import data, finish, prepared, record, record_step
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler

MODELS = {
    "resnet18": {},
    "efficientnet_b0": {},
    "mobilenetv3_small_050": {},
    "convnext_atto": {},
    "regnetx_002": {},
    "ghostnet_050": {},
    "vit_tiny_patch16_224": {"img_size": 64, "depth": 2},
    "deit_tiny_patch16_224": {"img_size": 64, "depth": 2},
    "mixer_s32_224": {"img_size": 64},
    "swin_tiny_patch4_window7_224": {"img_size": 64, "window_size": 2, "depths": (1, 1, 2, 1)},
    "cait_xxs24_224": {"img_size": 64, "depth": 2},
    "edgenext_xx_small": {},
}
x = data(2, 3, 64, 64)
for name, options in MODELS.items():
    model = prepared(timm.create_model(name, pretrained=False, num_classes=7, **options))
    model.eval()
    record(f"{name}.features", model.forward_features(x))
    record_step(name, model, model(x))
    if name in ("resnet18", "efficientnet_b0"):
        record_step(f"{name}.train", model.train(), model(x))
        record(f"{name}.buffers", dict(model.named_buffers()))

for kind in ("adamw", "lamb", "sgd", "nadamw", "lion", "adabelief", "adopt"):
    model = prepared(
        torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.GELU(), torch.nn.Linear(4, 2))
    )
    optimizer = create_optimizer_v2(model, opt=kind, lr=1e-2, weight_decay=0.05)
    schedule = CosineLRScheduler(optimizer, t_initial=5, warmup_t=2, warmup_lr_init=1e-4)
    for step in range(4):
        optimizer.zero_grad()
        model(data(6, 5, seed=step)).pow(2).mean().backward()
        optimizer.step()
        schedule.step(step + 1)
    record(f"optimizer.{kind}", dict(model.named_parameters()))
finish()
