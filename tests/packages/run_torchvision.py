"""torchvision: the models that need none of its C++ operations."""

import torch
from common import data, finish, prepared, record, record_step
from torchvision import models

MODELS = (
    *("alexnet", "resnet18", "mobilenet_v2", "mobilenet_v3_small", "squeezenet1_1"),
    *("shufflenet_v2_x0_5", "mnasnet0_5", "efficientnet_b0", "regnet_y_400mf", "densenet121"),
    *("convnext_tiny", "swin_t", "vgg11_bn", "googlenet", "resnext50_32x4d"),
)
for name in MODELS:
    options = {"aux_logits": False, "init_weights": False} if name == "googlenet" else {}
    model = prepared(getattr(models, name)(weights=None, num_classes=5, **options)).eval()
    record_step(name, model, model(data(2, 3, 64, 64)))
vit = models.VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=5)
vit = prepared(vit).eval()
record_step("vit", vit, vit(data(2, 3, 32, 32)))
segmentation = models.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None)
segmentation = prepared(segmentation).eval()
record_step("lraspp", segmentation, segmentation(data(1, 3, 64, 64))["out"])
video = prepared(models.video.r3d_18(weights=None, num_classes=4)).eval()
with torch.no_grad():
    record("r3d_18", video(data(1, 3, 4, 32, 32)))
finish()
