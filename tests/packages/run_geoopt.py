"""geoopt: manifolds, tensors on them, Riemannian optimizers."""

import geoopt
import torch
from common import data, finish, record

torch.set_default_dtype(torch.float64)
x, y = data(5, 4) * 0.2, data(5, 4, seed=1) * 0.2
for name, manifold in (
    ("euclidean", geoopt.Euclidean(ndim=1)),
    ("sphere", geoopt.Sphere()),
    ("poincare", geoopt.PoincareBall(c=1.0)),
    ("lorentz", geoopt.Lorentz()),
    ("stereographic", geoopt.SphereProjection()),
    ("canonical_stiefel", geoopt.CanonicalStiefel()),
    ("stiefel", geoopt.EuclideanStiefel()),
    ("spd", geoopt.SymmetricPositiveDefinite()),
    ("birkhoff", geoopt.BirkhoffPolytope()),
    ("scaled", geoopt.Scaled(geoopt.Sphere(), 2.0)),
):
    matrix = "stiefel" in name or name in ("spd", "birkhoff")
    a, b = (data(4, 4), data(4, 4, seed=1)) if matrix else (x, y)
    if name == "spd":
        a, b = a @ a.T + torch.eye(4), b @ b.T + torch.eye(4)
    if name == "birkhoff":
        a, b = a.abs() + 0.1, b.abs() + 0.1
    p, q = manifold.projx(a), manifold.projx(b)
    u = manifold.proju(p, data(*p.shape, seed=2) * 0.1)
    record(f"{name}.projx", p)
    record(f"{name}.proju", u)
    record(f"{name}.expmap", manifold.expmap(p, u) if name != "birkhoff" else manifold.retr(p, u))
    record(f"{name}.retr", manifold.retr(p, u))
    record(f"{name}.inner", manifold.inner(p, u))
    record(f"{name}.egrad", manifold.egrad2rgrad(p, u))
    record(
        f"{name}.transp",
        manifold.transp_follow_retr(p, u, u)
        if "stiefel" in name
        else manifold.transp(p, q, u)
        if name not in ("lorentz_",)
        else u,
    )
    if not matrix or name == "spd":
        record(f"{name}.dist", manifold.dist(p, q))
        record(f"{name}.logmap", manifold.logmap(p, q))
ball = geoopt.PoincareBall()
for kind in (geoopt.optim.RiemannianAdam, geoopt.optim.RiemannianSGD):
    stiefel = geoopt.EuclideanStiefel()
    point = geoopt.ManifoldParameter(ball.projx(x.clone()), manifold=ball)
    other = geoopt.ManifoldParameter(stiefel.projx(data(4, 3)), manifold=stiefel)
    plain = torch.nn.Parameter(data(3))
    optimizer = kind([point, other, plain], lr=0.05)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = ball.dist(point, ball.projx(y)).square().sum() + plain.square().sum()
        loss = loss + (other - 1).square().sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    record(f"{kind.__name__}.losses", losses)
    record(f"{kind.__name__}.point", [point.detach(), other.detach(), plain.detach()])
tensor = geoopt.ManifoldTensor(ball.projx(x), manifold=ball)
record("tensor", [(tensor + 0).sum(), type(tensor).__name__, tensor.manifold.name])
product = geoopt.ProductManifold((geoopt.Sphere(), 2), (ball, 2))
p, q = product.projx(x), product.projx(y)
record("product", [p, product.dist(p, q)])


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = geoopt.ManifoldParameter(ball.projx(x[0].clone()), manifold=ball)
        self.weight = torch.nn.Parameter(data(4, 4, seed=6) * 0.3)

    def forward(self, z):
        return ball.mobius_add(ball.mobius_matvec(self.weight, z), self.bias)


layer = Layer()
out = layer(ball.expmap0(x))
ball.dist0(out).sum().backward()
record("layer", [out, layer.bias.grad, layer.weight.grad])
record("state", dict(layer.state_dict()))
finish()
