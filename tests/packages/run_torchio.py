"""torchio: subjects, transforms and patches."""

import numpy as np
import torch
import torchio as tio
from common import data, finish, record

image = data(1, 12, 12, 10).float()
subject = tio.Subject(
    scan=tio.ScalarImage(tensor=image),
    labels=tio.LabelMap(tensor=(image > 0.5).to(torch.uint8)),
)
for name, transform in (
    ("flip", tio.Flip(axes=(0,))),
    ("crop", tio.CropOrPad((8, 8, 8))),
    ("pad", tio.Pad((1, 2, 0, 1, 2, 3))),
    ("rescale", tio.RescaleIntensity(out_min_max=(0, 1))),
    ("znorm", tio.ZNormalization()),
    ("clamp", tio.Clamp(out_min=-1, out_max=1)),
    ("resample", tio.Resample((2.0, 1.5, 1.0))),
    ("resize", tio.Resize((6, 8, 8))),
    ("canonical", tio.ToCanonical()),
    ("onehot", tio.OneHot()),
    ("both", tio.Compose([tio.ToCanonical(), tio.CropOrPad(8), tio.ZNormalization()])),
):
    done = transform(subject)
    record(f"{name}.scan", done.scan.data)
    record(f"{name}.labels", done.labels.data)
    record(f"{name}.affine", done.scan.affine)
for transform in (tio.RandomNoise(), tio.RandomBlur(), tio.RandomGamma(), tio.RandomBiasField(),
                  tio.RandomMotion(), tio.RandomGhosting(), tio.RandomAnisotropy()):  # fmt: skip
    assert torch.isfinite(transform(subject).scan.data).all()
record("blur", tio.Blur(std=(1.0, 1.0, 1.0))(subject).scan.data)
grid = tio.inference.GridSampler(subject, (6, 6, 6), (2, 2, 2))
aggregator = tio.inference.GridAggregator(grid, overlap_mode="average")
loader = torch.utils.data.DataLoader(grid, batch_size=3)
for batch in loader:
    aggregator.add_batch(batch["scan"][tio.DATA] * 2, batch[tio.LOCATION])
record("patches", len(grid))
record("aggregated", aggregator.get_output_tensor())
dataset = tio.SubjectsDataset([subject, subject], transform=tio.CropOrPad(8))
batch = next(iter(tio.SubjectsLoader(dataset, batch_size=2)))
record("batch", batch["scan"][tio.DATA])
assert np.isfinite(subject.scan.numpy()).all()
finish()
