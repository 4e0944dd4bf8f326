"""Which layers are instances of which: a search by class finds the layers that PyTorch's finds."""

from itertools import permutations

import pytest

from tapegrad import nn

#: layers that PyTorch derives from other layers
DERIVED = {
    *((f"{kind}Cell", "RNNCellBase") for kind in ("GRU", "LSTM", "RNN")),
    *((kind, "RNNBase") for kind in ("GRU", "LSTM", "RNN")),
    *((f"Lazy{kind}{n}d", f"{kind}{n}d") for kind in ("Conv", "ConvTranspose") for n in (1, 2, 3)),
    *((f"ZeroPad{n}d", f"ConstantPad{n}d") for n in (1, 2, 3)),
    *(("LazyLinear", "Linear"), ("NLLLoss2d", "NLLLoss"), ("ReLU6", "Hardtanh")),
    *(("UpsamplingBilinear2d", "Upsample"), ("UpsamplingNearest2d", "Upsample")),
}

#: not so in PyTorch: these turn into the other one at their first call
LAZY = {
    *(
        (f"Lazy{kind}Norm{n}d", f"{kind}Norm{n}d")
        for kind in ("Batch", "Instance")
        for n in (1, 2, 3)
    )
}


def test_layers_are_instances_of_the_layers_of_which_those_of_pytorch_are():
    layers = {
        name: getattr(nn, name)
        for name in nn.__all__
        if isinstance(getattr(nn, name), type) and issubclass(getattr(nn, name), nn.Module)
    }
    layers.pop("Module")
    found = {
        (a, b)
        for a, b in permutations(layers, 2)
        if layers[a] is not layers[b] and issubclass(layers[a], layers[b])
    }
    existing = {(a, b) for a, b in DERIVED if a in layers and b in layers}
    assert existing <= found
    assert found - DERIVED - LAZY == set()


@pytest.mark.parametrize(
    ("layer", "module", "base"),
    [
        (nn.Conv2d(2, 2, 1), "conv", "_ConvNd"),
        (nn.ConvTranspose1d(2, 2, 1), "conv", "_ConvNd"),
        (nn.ConvTranspose1d(2, 2, 1), "conv", "_ConvTransposeNd"),
        (nn.BatchNorm2d(2), "batchnorm", "_NormBase"),
        (nn.InstanceNorm2d(2), "batchnorm", "_NormBase"),
        (nn.Dropout2d(), "dropout", "_DropoutNd"),
        (nn.MaxPool2d(2), "pooling", "_MaxPoolNd"),
        (nn.AvgPool3d(2), "pooling", "_AvgPoolNd"),
        (nn.AdaptiveAvgPool2d(1), "pooling", "_AdaptiveAvgPoolNd"),
        (nn.AdaptiveMaxPool1d(1), "pooling", "_AdaptiveMaxPoolNd"),
        (nn.LPPool2d(2, 2), "pooling", "_LPPoolNd"),
        (nn.ReflectionPad2d(1), "padding", "_ReflectionPadNd"),
    ],
)
def test_bases_have_the_names_of_pytorch(layer, module, base):
    assert isinstance(layer, getattr(getattr(nn.modules, module), base))
