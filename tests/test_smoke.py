"""Seconds: does the library import, compute, differentiate?"""

import tapegrad as tg


def test_a_step_of_gradient_descent():
    tg.manual_seed(0)
    w = tg.randn(3, requires_grad=True)
    x = tg.randn(8, 3)
    before = ((x @ w - 1) ** 2).mean()
    before.backward()
    with tg.no_grad():
        w -= 0.1 * w.grad
    after = ((x @ w - 1) ** 2).mean()
    assert after.item() < before.item()


def test_version_is_that_of_the_project():
    import tomllib
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    assert project["project"]["version"] == tg.__version__
