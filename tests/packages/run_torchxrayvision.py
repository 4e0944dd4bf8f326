"""torchxrayvision: a DenseNet, an autoencoder, transforms of pictures."""

import numpy as np
import torchxrayvision
from common import data, finish, prepared, record, record_step

model = torchxrayvision.models.DenseNet(num_classes=5, in_channels=1, weights=None)
model = prepared(model).eval()
x = data(1, 1, 64, 64)
features = model.features2(x)
record("features", features)
record_step("densenet", model, model(x))
picture = np.arange(60 * 50, dtype=np.float64).reshape(1, 60, 50) % 255
picture = torchxrayvision.datasets.normalize(picture, 255)
record("cropped", torchxrayvision.datasets.XRayCenterCrop()(picture))
finish()
