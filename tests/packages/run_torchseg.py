"""torchseg: seven decoders on a small encoder, losses."""

import torch
import torchseg
from common import data, finish, prepared, record, record_step

x = data(2, 3, 32, 32)
for kind in ("Unet", "UnetPlusPlus", "MAnet", "Linknet", "FPN", "PSPNet", "DeepLabV3Plus"):
    model = torchseg.create_model(
        kind.lower(), encoder_name="resnet18", encoder_weights=None, in_channels=3, classes=3
    )
    model = prepared(model).eval()
    record_step(kind, model, model(x))

scores, truth = data(2, 3, 8, 8), data(2, 8, 8, high=3)
for name in ("DiceLoss", "JaccardLoss", "FocalLoss", "TverskyLoss"):
    loss = getattr(torchseg.losses, name)(mode="multiclass")
    given = scores.clone().requires_grad_()
    value = loss(given, truth)
    record(f"loss.{name}", [value, *torch.autograd.grad(value, given)])
finish()
