"""grad-cam: maps of what a network looked at, by eleven methods."""

import numpy as np
from common import data, finish, prepared, record
from pytorch_grad_cam import (
    AblationCAM,
    EigenCAM,
    EigenGradCAM,
    FullGrad,
    GradCAM,
    GradCAMElementWise,
    GradCAMPlusPlus,
    GuidedBackpropReLUModel,
    HiResCAM,
    LayerCAM,
    ScoreCAM,
    XGradCAM,
)
from pytorch_grad_cam.metrics.cam_mult_image import CamMultImageConfidenceChange
from pytorch_grad_cam.utils.image import show_cam_on_image
from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget
from torch import nn


def net():
    layers = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 5),
    )
    return prepared(layers).eval()


x = data(2, 3, 16, 16)
targets = [ClassifierOutputTarget(1), ClassifierOutputTarget(3)]
for kind in (
    GradCAM,
    GradCAMPlusPlus,
    GradCAMElementWise,
    HiResCAM,
    XGradCAM,
    LayerCAM,
    EigenCAM,
    EigenGradCAM,
    ScoreCAM,
    AblationCAM,
    FullGrad,
):
    model = net()
    layers = [model[4]] if kind is AblationCAM else [model[4], model[0]]
    with kind(model=model, target_layers=layers) as cam:
        maps = cam(input_tensor=x, targets=targets)
    record(kind.__name__, np.asarray(maps, dtype=np.float64))
model = net()
with GradCAM(model=model, target_layers=[model[4]]) as cam:
    smooth = cam(input_tensor=x, targets=None, eigen_smooth=True)
    changes = CamMultImageConfidenceChange()(x, cam(x, targets), targets, model)
record("smooth", np.asarray(smooth, dtype=np.float64))
record("changes", np.asarray(changes, dtype=np.float64))
guided = GuidedBackpropReLUModel(model=net(), device="cpu")(x[:1], target_category=2)
record("guided", guided)
picture = np.full((16, 16, 3), 0.5, np.float32)
record("picture", show_cam_on_image(picture, smooth[0]).shape)
finish()
