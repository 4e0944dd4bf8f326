"""pytorch-msssim, piqa, lpips: how far images are apart; torch-fidelity's features."""

import lpips
import piqa
import pytorch_msssim
import torch
from common import data, finish, prepared, record
from torch_fidelity.metric_fid import fid_features_to_statistics, fid_statistics_to_metric
from torch_fidelity.metric_kid import kid_features_to_metric

torch.set_default_dtype(torch.float64)
x = torch.sigmoid(data(2, 3, 64, 64)).requires_grad_()
y = torch.sigmoid(data(2, 3, 64, 64, seed=1) + data(2, 3, 64, 64))


def compare(name, value, wanted=(x,)):
    record(name, value)
    record(f"{name}.grad", torch.autograd.grad(value.sum(), wanted))


compare("ssim", pytorch_msssim.ssim(x, y, data_range=1.0, size_average=False))
compare("ssim.class", 1 - pytorch_msssim.SSIM(data_range=1.0, channel=3, win_size=7)(x, y))
compare("ms_ssim", pytorch_msssim.ms_ssim(x, y, data_range=1.0, win_size=3))
for name, metric in (
    ("ssim", piqa.SSIM()),
    ("psnr", piqa.PSNR()),
    ("tv", piqa.TV()),
    ("gmsd", piqa.GMSD()),
    ("mdsi", piqa.MDSI()),
    ("vsi", piqa.VSI()),
    ("fsim", piqa.FSIM()),
    ("haarpsi", piqa.HaarPSI()),
):
    metric = metric.double()
    compare(f"piqa.{name}", metric(x) if name == "tv" else metric(x, y))
big = torch.nn.functional.interpolate(y, scale_factor=4)
record("piqa.ms_ssim", piqa.MS_SSIM().double()(big, big * 0.9))
for network in ("alex", "squeeze", "vgg"):
    distance = lpips.LPIPS(net=network, pretrained=False, pnet_rand=True, verbose=False)
    distance = prepared(distance).eval()
    compare(f"lpips.{network}", distance(x, y, normalize=True))
a, b = data(40, 6).numpy(), (data(40, 6, seed=1) * 1.1).numpy()
statistics = [fid_features_to_statistics(torch.from_numpy(v)) for v in (a, b)]
fid = fid_statistics_to_metric(*statistics, False)
record("fid", fid["frechet_inception_distance"])
kid = kid_features_to_metric(torch.from_numpy(a), torch.from_numpy(b), kid_subset_size=20,
                             kid_subsets=3, verbose=False)  # fmt: skip
record("kid", kid["kernel_inception_distance_mean"])
finish()
