"""linear_operator: products, solves, log determinants, roots, and their gradients."""

import linear_operator
import torch
from common import data, finish, record
from linear_operator import operators, settings, to_linear_operator

torch.set_default_dtype(torch.float64)
factor = data(6, 6)
matrix = (factor @ factor.mT + 6 * torch.eye(6)).requires_grad_()
right = data(6, 2, seed=1).requires_grad_()

dense = to_linear_operator(matrix)
diagonal = operators.DiagLinearOperator(data(6, seed=2).abs() + 1)
low_rank = operators.RootLinearOperator(data(6, 2, seed=3))
made = {
    "dense": dense,
    "sum": dense + diagonal,
    "added": dense.add_diagonal(torch.tensor(0.5)),
    "product": dense.mul(2.0),
    "low_rank": (low_rank + diagonal),
    "kronecker": operators.KroneckerProductLinearOperator(
        dense[:3, :3], to_linear_operator(torch.eye(2) * 2)
    ),
    "block": operators.BlockDiagLinearOperator(
        to_linear_operator(torch.stack([torch.eye(3) * 2, torch.eye(3) * 3]))
    ),
    "toeplitz": operators.ToeplitzLinearOperator(torch.tensor([5.0, 1.0, 0.5, 0.25, 0.1, 0.0])),
    "triangular": operators.TriangularLinearOperator(torch.linalg.cholesky(matrix.detach())),
    "identity": operators.IdentityLinearOperator(6),
    "constant": operators.ConstantMulLinearOperator(dense, torch.tensor(3.0)),
    "cat": operators.CatLinearOperator(dense[:3], dense[3:], dim=0),
}
for name, operator in made.items():
    record(f"{name}.dense", operator.to_dense())
    record(f"{name}.diagonal", operator.diagonal())
    record(f"{name}.matmul", operator @ right)
    record(f"{name}.transposed", operator.mT @ right)
    if name == "dense":  # others are indexed by sparse tensors
        record(f"{name}.rows", operator[1:3].to_dense())
    if name not in ("cat", "triangular"):
        record(f"{name}.solve", operator.solve(right))
        record(f"{name}.logdet", operator.logdet())
        quadratic, logdet = operator.inv_quad_logdet(right, logdet=True)
        record(f"{name}.quadratic", [quadratic, logdet])
    if name in ("dense", "sum", "added"):
        root = operator.root_decomposition().root
        record(f"{name}.root", (root @ root.mT).to_dense())
        record(f"{name}.cholesky", operator.cholesky().to_dense())
        loss = quadratic + logdet
        record(f"{name}.gradients", torch.autograd.grad(loss, [matrix, right], retain_graph=True))
# iterative methods: conjugate gradients and the Lanczos algorithm
with (
    settings.fast_computations(True, True, True),
    settings.max_cholesky_size(1),
    settings.cg_tolerance(1e-10),
    settings.max_cg_iterations(50),
):
    record("cg", dense.solve(right))
record("psd_safe", linear_operator.utils.cholesky.psd_safe_cholesky(matrix))
finish()
