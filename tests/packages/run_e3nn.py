"""e3nn: spherical harmonics, rotations, radial functions, norms.

Its tensor products write programs with `torch.fx`, which does not exist.
"""

import torch
from common import data, finish, prepared, record, record_step
from e3nn import nn, o3
from e3nn.math import soft_one_hot_linspace, soft_unit_step

torch.set_default_dtype(torch.float64)
irreps = o3.Irreps("4x0e + 3x1o + 2x2e")
record("irreps", [irreps.dim, irreps.num_irreps, irreps.lmax])
vectors = data(7, 3).requires_grad_()
harmonics = o3.spherical_harmonics([0, 1, 2, 3], vectors, normalize=True)
record("harmonics", harmonics)
record("harmonics.grad", torch.autograd.grad((harmonics**3).sum(), vectors))
angles = [data(5, seed=seed) for seed in (1, 2, 3)]
rotation = o3.angles_to_matrix(*angles)
record("rotation", rotation)
record("angles", list(o3.matrix_to_angles(rotation)))
record("quaternion", o3.matrix_to_quaternion(rotation))
record("axis", list(o3.matrix_to_axis_angle(rotation)))
record("wigner", [o3.wigner_3j(1, 2, 1), o3.wigner_3j(2, 2, 2)])
record("wigner.matrix", irreps.D_from_angles(*angles))
record("radial", soft_one_hot_linspace(data(9).abs(), 0.0, 3.0, 5, "smooth_finite", cutoff=True))
record("step", soft_unit_step(data(9)))

norm = prepared(nn.BatchNorm(irreps))
record_step("norm", norm, norm(data(6, irreps.dim)))
finish()
