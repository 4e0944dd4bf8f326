"""Filters and losses of sound: julius, auraloss, asteroid-filterbanks, nnAudio; torchkbnufft."""

import auraloss
import julius
import torch
import torchkbnufft
from asteroid_filterbanks import STFTFB, Decoder, Encoder, FreeFB, ParamSincFB
from common import data, finish, prepared, record
from nnAudio import features

torch.set_default_dtype(torch.float64)
x = data(2, 1, 400)
record("resample", julius.resample_frac(x, 4, 3))
record("lowpass", julius.lowpass_filter(x, 0.2))
record("highpass", julius.highpass_filter(x, 0.1))
record("bands", julius.split_bands(x, 8000, n_bands=3))
record("fftconv", julius.fft_conv1d(x, data(3, 1, 31), stride=2))
for name, loss in (
    ("stft", auraloss.freq.STFTLoss(fft_size=64, hop_size=16, win_length=64)),
    (
        "multi",
        auraloss.freq.MultiResolutionSTFTLoss(
            fft_sizes=[64, 32], hop_sizes=[16, 8], win_lengths=[64, 32]
        ),
    ),
    ("esr", auraloss.time.ESRLoss()),
    ("sisdr", auraloss.time.SISDRLoss()),
    ("logcosh", auraloss.time.LogCoshLoss()),
    ("snr", auraloss.time.SNRLoss()),
    ("dc", auraloss.time.DCLoss()),
):
    a = data(2, 1, 400).requires_grad_()
    value = loss(a, data(2, 1, 400, seed=3))
    value.backward()
    record(name, [value, a.grad])
for name, bank in (
    ("free", FreeFB(n_filters=8, kernel_size=16)),
    ("stft", STFTFB(n_filters=16, kernel_size=16)),
    ("sinc", ParamSincFB(n_filters=8, kernel_size=15)),
):
    encoder, decoder = Encoder(bank).double(), Decoder(bank).double()
    if name == "free":
        prepared(encoder)
    record(f"bank.{name}", [encoder(x), decoder(encoder(x))])
for name, layer in (
    (
        "STFT",
        features.STFT(n_fft=32, hop_length=8, sr=8000, output_format="Magnitude", verbose=False),
    ),
    ("mel", features.MelSpectrogram(sr=8000, n_fft=64, n_mels=8, hop_length=16, verbose=False)),
    ("mfcc", features.MFCC(sr=8000, n_mfcc=4, n_fft=64, n_mels=8, hop_length=16, verbose=False)),
):
    record(f"nnaudio.{name}", layer.double()(x[:, 0]))
image = torch.complex(data(1, 1, 8, 8), data(1, 1, 8, 8, seed=1))
ktraj = data(2, 20) * 0.9
forward, adjoint = (
    torchkbnufft.KbNufft(im_size=(8, 8)).double(),
    torchkbnufft.KbNufftAdjoint(im_size=(8, 8)).double(),
)
k = forward(image, ktraj)
record("nufft", [torch.view_as_real(k), torch.view_as_real(adjoint(k, ktraj))])
finish()
