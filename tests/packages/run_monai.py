"""monai: networks of medical images, losses, metrics, sliding windows."""

import torch
from common import data, finish, prepared, record, record_step
from monai.inferers import sliding_window_inference
from monai.losses import DiceCELoss, DiceLoss, FocalLoss, TverskyLoss
from monai.metrics import DiceMetric, compute_hausdorff_distance
from monai.networks.nets import UNETR, BasicUNet, DenseNet121, SegResNet, UNet

torch.manual_seed(0)
model = prepared(UNet(2, 1, 2, (4, 8, 16), (2, 2), num_res_units=1))
record_step("unet", model, model(data(1, 1, 16, 16)))
model = prepared(
    SegResNet(2, init_filters=8, in_channels=1, out_channels=2, blocks_down=(1, 1), blocks_up=(1,))
)
record_step("segresnet", model, model(data(1, 1, 16, 16)))
model = prepared(BasicUNet(2, 1, 2, features=(4, 4, 8, 8, 8, 4))).eval()
record_step("basic", model, model(data(1, 1, 32, 32)))
model = prepared(UNETR(1, 2, 16, feature_size=4, hidden_size=12, mlp_dim=16, num_heads=2,
                       spatial_dims=2)).eval()  # fmt: skip
record_step("unetr", model, model(data(1, 1, 16, 16)))
network = prepared(UNet(2, 1, 2, (4, 8), (2,))).eval()
record("windows", sliding_window_inference(data(1, 1, 24, 24), (16, 16), 2, network, overlap=0.5))
logits, labels = data(2, 2, 8, 8).requires_grad_(), data(2, 1, 8, 8, high=2)
for loss in (DiceLoss(to_onehot_y=True, softmax=True), FocalLoss(to_onehot_y=True),
             DiceCELoss(to_onehot_y=True, softmax=True),
             TverskyLoss(to_onehot_y=True, softmax=True)):  # fmt: skip
    value = loss(logits, labels)
    record(f"{type(loss).__name__}", [value, *torch.autograd.grad(value, logits)])
metric = DiceMetric(reduction="mean")
metric(logits.detach() > 0, torch.cat([1 - labels, labels], 1))
record("dice", metric.aggregate())
record("distance", compute_hausdorff_distance((logits > 0).double(), (logits > 0.5).double()))
assert DenseNet121(2, 1, 2).features is not None
finish()
