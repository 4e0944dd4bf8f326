"""captum: attributions of inputs, layers and neurons."""

import torch
from captum import attr
from common import data, finish, prepared, record
from torch import nn

torch.set_default_dtype(torch.float64)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.relu1 = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear(36, 8)
        self.relu2 = nn.ReLU()
        self.fc2 = nn.Linear(8, 3)

    def forward(self, x):
        x = self.pool(self.relu1(self.conv(x))).flatten(1)
        return self.fc2(self.relu2(self.fc1(x)))


net = prepared(Net())
x = data(3, 1, 8, 8)
base = data(3, 1, 8, 8, seed=1) * 0.1
target = torch.tensor([0, 2, 1])
for name, method, options in (
    ("ig", attr.IntegratedGradients, {"baselines": base, "n_steps": 20}),
    ("ig_delta", attr.IntegratedGradients, {"n_steps": 20, "return_convergence_delta": True}),
    ("saliency", attr.Saliency, {}),
    ("ixg", attr.InputXGradient, {}),
    ("guided", attr.GuidedBackprop, {}),
    ("deconv", attr.Deconvolution, {}),
    ("deeplift", attr.DeepLift, {"baselines": base}),
    ("deepliftshap", attr.DeepLiftShap, {"baselines": base}),
    ("occlusion", attr.Occlusion, {"sliding_window_shapes": (1, 3, 3), "strides": (1, 2, 2)}),
    ("ablation", attr.FeatureAblation, {}),
    ("lrp", attr.LRP, {}),
):
    record(name, method(net).attribute(x.clone().requires_grad_(), target=target, **options))
for name, method, options in (
    ("layer_cam", attr.LayerGradCam, {}),
    ("layer_activation", attr.LayerActivation, {}),
    ("layer_gxa", attr.LayerGradientXActivation, {}),
    ("layer_conductance", attr.LayerConductance, {"n_steps": 10}),
    ("layer_deeplift", attr.LayerDeepLift, {}),
    ("layer_ig", attr.LayerIntegratedGradients, {"n_steps": 10}),
    ("layer_influence", attr.InternalInfluence, {"n_steps": 10}),
):
    given = {} if name == "layer_activation" else {"target": target}
    record(name, method(net, net.conv).attribute(x, **given, **options))
record("neuron_gradient", attr.NeuronGradient(net, net.fc1).attribute(x, 2))
record("neuron_ig", attr.NeuronIntegratedGradients(net, net.fc1).attribute(x, 2, n_steps=10))
record(
    "neuron_conductance", attr.NeuronConductance(net, net.fc1).attribute(x, 2, target=1, n_steps=10)
)
record("guided_cam", attr.GuidedGradCam(net, net.conv).attribute(x, target))
mask = torch.arange(64).reshape(1, 1, 8, 8) // 16
record("shapley_all", attr.ShapleyValues(net).attribute(x, target=target, feature_mask=mask).shape)


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.linear = nn.Linear(4, 2)

    def forward(self, tokens):
        return self.linear(self.embedding(tokens).mean(1).tanh())


text = prepared(Text())
tokens = data(2, 5, high=10)
found = attr.LayerIntegratedGradients(text, text.embedding)
record("tokens", found.attribute(tokens, torch.zeros_like(tokens), target=1, n_steps=10))
finish()
