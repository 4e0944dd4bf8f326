"""segmentation-models-pytorch, efficientnet-pytorch; thop and fvcore look at models."""

import tempfile

import segmentation_models_pytorch as smp
import thop
import torch
from common import data, finish, prepared, record, record_step
from efficientnet_pytorch import EfficientNet
from fvcore.nn import giou_loss, parameter_count, sigmoid_focal_loss, smooth_l1_loss
from fvcore.nn.precise_bn import update_bn_stats

image, masks = data(2, 3, 64, 64), data(2, 1, 64, 64, high=2).double()
for name, kind in (
    ("unet", smp.Unet),
    ("unetplusplus", smp.UnetPlusPlus),
    ("fpn", smp.FPN),
    ("linknet", smp.Linknet),
    ("pspnet", smp.PSPNet),
    ("deeplab", smp.DeepLabV3Plus),
    ("manet", smp.MAnet),
):
    model = prepared(kind("resnet18", encoder_weights=None, classes=1)).eval()
    record_step(name, model, model(image))
model = prepared(smp.Unet("mobilenet_v2",
                          encoder_weights=None, decoder_attention_type="scse")).train()  # fmt: skip
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loss = smp.losses.DiceLoss("binary")
for i in range(2):
    optimizer.zero_grad()
    value = loss(model(image), masks)
    value.backward()
    optimizer.step()
    record(f"dice.{i}", value)
logits = data(2, 1, 16, 16).requires_grad_()
few = masks[..., :16, :16]
for name, each in (
    ("jaccard", smp.losses.JaccardLoss("binary")),
    ("focal", smp.losses.FocalLoss("binary")),
    ("tversky", smp.losses.TverskyLoss("binary")),
    ("soft", smp.losses.SoftBCEWithLogitsLoss(smooth_factor=0.1)),
    ("mcc", smp.losses.MCCLoss()),
):
    value = each(logits, few)
    record(f"loss.{name}", value)
    record(f"loss.{name}.grad", torch.autograd.grad(value, logits))
found = smp.metrics.get_stats((logits > 0).long(), few.long(), mode="binary")
record("stats", list(found))
record("iou", smp.metrics.iou_score(*found, reduction="micro"))
with tempfile.TemporaryDirectory() as folder:
    model.eval().save_pretrained(folder)
    again = smp.from_pretrained(folder).double().eval()
    record("saved", again(image))

efficient = prepared(EfficientNet.from_name("efficientnet-b0", num_classes=5)).eval()
record_step("efficientnet", efficient, efficient(image))
record("features", efficient.extract_features(image))

small = prepared(torch.nn.Sequential(
    torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.AvgPool2d(2),
    torch.nn.Dropout2d(0.5), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
    torch.nn.Linear(4, 2)))  # fmt: skip
record("thop", list(thop.profile(small, (data(1, 3, 16, 16),), verbose=False)))
record("fvcore.count", dict(parameter_count(small)))
inputs, targets = data(6, 4).requires_grad_(), data(6, 4, high=2).double()
for name, value in (
    ("focal", sigmoid_focal_loss(inputs, targets, 0.25, 2.0, "mean")),
    ("smooth", smooth_l1_loss(inputs, targets, 0.5, "sum")),
    ("giou", giou_loss(inputs.exp().cumsum(1), targets.exp().cumsum(1) + 0.5, "sum")),
):
    record(f"fvcore.{name}", value)
    record(f"fvcore.{name}.grad", torch.autograd.grad(value, inputs, retain_graph=True))
update_bn_stats(small.train(), [data(4, 3, 16, 16, seed=i) for i in range(3)], 3)
record("precise", [small[1].running_mean, small[1].running_var])
finish()
