"""torchattacks: attacks on a classifier; torch-pruning: layers that lose channels together."""

import torch
import torch_pruning
import torchattacks
from common import data, finish, prepared, record
from torch import nn

torch.set_default_dtype(torch.float64)
model = prepared(
    nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 12, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(48, 5),
    )
).eval()
images, labels = data(3, 3, 12, 12).sigmoid(), data(3, high=5)
for name, attack in (
    ("fgsm", torchattacks.FGSM(model, eps=8 / 255)),
    ("bim", torchattacks.BIM(model, eps=8 / 255, steps=4)),
    ("pgd", torchattacks.PGD(model, eps=8 / 255, steps=4, random_start=False)),
    ("pgdl2", torchattacks.PGDL2(model, eps=1.0, steps=4, random_start=False)),
    ("mifgsm", torchattacks.MIFGSM(model, steps=4)),
    ("nifgsm", torchattacks.NIFGSM(model, steps=4)),
    ("cw", torchattacks.CW(model, c=1, steps=8, lr=0.01)),
    ("deepfool", torchattacks.DeepFool(model, steps=4)),
    ("sinifgsm", torchattacks.SINIFGSM(model, steps=3)),
):
    record(name, attack(images, labels))
attack = torchattacks.PGD(model, eps=8 / 255, steps=3, random_start=False)
attack.set_mode_targeted_by_function(lambda images, labels: (labels + 1) % 5)
record("targeted", attack(images, labels))

graph = torch_pruning.DependencyGraph().build_dependency(model, example_inputs=images)
group = graph.get_pruning_group(model[0], torch_pruning.prune_conv_out_channels, idxs=[1, 4])
record("is_whole", graph.check_pruning_group(group))
group.prune()
record("pruned", model(images))
pruner = torch_pruning.pruner.MagnitudePruner(
    model,
    images,
    importance=torch_pruning.importance.MagnitudeImportance(p=2),
    pruning_ratio=0.5,
    ignored_layers=[model[-1]],
)
pruner.step()
record("shapes", [tuple(p.shape) for p in model.parameters()])
record("pruned_more", model(images))
record("counts", torch_pruning.utils.count_ops_and_params(model, images))
finish()
