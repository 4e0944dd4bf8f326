"""The demos, shortened: what they print, the pictures they save, that their steps replay."""

import struct
import zlib

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.cli import main
from tapegrad.demos import NAMES, bench, charts, data, digits, font, gpt, pinn, vae
from tapegrad.demos.picture import Picture
from tapegrad.demos.report import Report
from tapegrad.demos.training import FIRST, DemoOptions, Run, training_step


def pixels(path):
    """The picture in a PNG file, after checking all its checksums."""
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    parts, at = {}, 8
    while at < len(content):
        (length,) = struct.unpack(">I", content[at : at + 4])
        name, body = content[at + 4 : at + 8], content[at + 8 : at + 8 + length]
        (checksum,) = struct.unpack(">I", content[at + 8 + length : at + 12 + length])
        assert checksum == zlib.crc32(name + body)
        parts[name] = body
        at += 12 + length
    assert list(parts) == [b"IHDR", b"IDAT", b"IEND"]
    width, height, depth, colours = struct.unpack(">IIBB", parts[b"IHDR"][:10])
    assert (depth, colours) == (8, 2)
    rows = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(height, 1 + width * 3)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)


@pytest.mark.parametrize("name", NAMES)
def test_demo_prints_figures_and_saves_a_picture(name, tmp_path, capsys):
    assert main(["demo", name, "--steps", "6", "--output", str(tmp_path / "new")]) == 0
    printed = capsys.readouterr().out
    assert f"demo {name}" in printed
    assert "step 6 of 6, loss" in printed
    assert "6 steps in" in printed
    assert "\x1b" not in printed, "no colours where there is no terminal"
    picture = pixels(tmp_path / "new" / f"{name}.png")
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 50


def test_digits_compares_eager_and_replay(tmp_path, capsys):
    figures = digits.run(DemoOptions(120, tmp_path), Report())
    assert figures["eager accuracy"] == pytest.approx(figures["replay accuracy"], abs=0.01)
    assert figures["replay accuracy"] > 0.93
    assert figures["speedup"] > 0
    printed = capsys.readouterr().out
    assert "times as fast" in printed
    assert "which record and compile the step" in printed


def test_digits_eagerly(tmp_path, capsys):
    assert main(["demo", "--epochs", "1", "--eager", "--output", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert f"{digits.EPOCH} steps in" in printed
    assert "replay:" not in printed


def test_a_demo_repeats_itself(tmp_path):
    first, second, other = (
        vae.run(DemoOptions(4, tmp_path, seed=seed), Report())["loss"] for seed in (3, 3, 4)
    )
    assert first == second != other


def steps():
    model = gpt.Gpt(72, width=32, layers=1)
    yield model, lambda x, y: gpt.loss_of(model, x, y), gpt.batch_of(tg.randint(0, 72, (300,)))
    encoder = vae.Vae()
    yield encoder, lambda x: vae.loss_of(encoder, x), (tg.rand(64, 64),)
    solution = pinn.Solution()
    yield solution, lambda: pinn.loss_of(solution), ()
    network = digits.make_model()
    images = (tg.rand(64, 64), tg.randint(0, 10, (64,)))
    yield network, lambda x, y: digits.loss_of(network, x, y), images


def test_steps_replay_without_callbacks():
    for model, loss, inputs in steps():
        step = tg.compile(training_step(tg.optim.Adam(model.parameters()), loss))
        for _ in range(FIRST + 1):
            step(*inputs)
        told = step.explain(full=True)
        assert "replayed 2 time(s)" in told
        assert " and 0 callbacks" in told


def test_exact_solution_of_burgers_equation():
    x, t = np.meshgrid(np.linspace(-0.9, 0.9, 7), np.linspace(0.1, 0.9, 5))
    h = 1e-4
    u = pinn.exact(x, t)
    u_t = (pinn.exact(x, t + h) - pinn.exact(x, t - h)) / (2 * h)
    right, left = pinn.exact(x + h, t), pinn.exact(x - h, t)
    rest = u_t + u * (right - left) / (2 * h) - pinn.VISCOSITY * (right - 2 * u + left) / h**2
    assert np.abs(rest).max() < 1e-4
    start = np.linspace(-1, 1, 9)
    np.testing.assert_allclose(pinn.exact(start, start * 0), -np.sin(np.pi * start), atol=1e-12)


def test_residual_is_that_of_the_equation():
    class Known(tg.nn.Module):
        def forward(self, x, t):
            return x**3 * t

    x, t = tg.tensor([[0.5], [-0.3]]), tg.tensor([[0.2], [0.7]])
    expected = x**3 + (x**3 * t) * (3 * x**2 * t) - pinn.VISCOSITY * 6 * x * t
    found = pinn.residual(Known(), x, t).detach()
    assert found.numpy() == pytest.approx(expected.detach().numpy(), rel=1e-5)


def test_writing_looks_at_the_last_letters():
    tg.manual_seed(0)
    model = gpt.Gpt(5)
    start = tg.tensor([0, 1, 2, 3])
    written = gpt.write(model, start, gpt.LENGTH + 5, temperature=1e-4)
    assert written[:4] == [0, 1, 2, 3]
    assert len(written) == 4 + gpt.LENGTH + 5
    for place in (4, 20, len(written) - 1):  # at this temperature the likeliest letter is drawn
        seen = tg.tensor([written[max(place - gpt.LENGTH, 0) : place]])
        assert written[place] == model(seen)[0, -1].argmax().item()


def test_batches_cover_the_data():
    batches = list(data.shuffled(10, 3, 7))
    assert [len(batch) for batch in batches] == [3] * 7
    assert len({i for batch in batches[:3] for i in batch.tolist()}) == 9
    (train, _), (test, _) = data.split_digits()
    assert (len(train), len(test)) == (1347, 450)
    assert train.max().item() == 1


def test_curve_of_a_long_run_is_thinned():
    run = Run(losses=[float(i) for i in range(1000)])
    xs, ys = run.curve(100)
    assert len(xs) == len(ys) == 100
    assert (xs[0], ys[0]) == (5, 4.5)
    run.seconds = [0.5] * 1000
    assert run.curve_over_time(100)[0][0] == 3


# -- pictures ---------------------------------------------------------------------------------


def test_lines_and_images_reach_their_places(tmp_path):
    picture = Picture(40, 30)
    picture.line([(5, 10), (35, 10)], (1, 0, 0), 3)
    picture.image(2, 20, np.zeros((2, 2)), scale=3)
    found = pixels(picture.save(tmp_path / "a.png"))
    assert found.shape == (30, 40, 3)
    assert found[10, 20].tolist() == [255, 0, 0]
    assert found[20:26, 2:8].max() == 0
    assert found[14, 20].tolist() == found[26, 2].tolist() == [255, 255, 255]


def test_what_lies_outside_is_cut(tmp_path):
    picture = Picture(20, 20)
    picture.line([(-50, -50), (-40, -45)], (0, 0, 0))
    assert picture.pixels.min() == 1
    picture.line([(-50, 10), (50, 10)], (0, 0, 0), 2)
    assert picture.pixels[10].max() == 0


def test_letters_differ_and_stay_in_their_width():
    shapes = {}
    for code in range(32, 127):
        segments, width = font.strokes(chr(code))
        assert all(0 <= x <= width + 1 for a, _, c, _ in segments for x in (a, c))
        shapes[tuple(segments)] = chr(code)
    assert len(shapes) >= 93, "each letter has a shape of its own, but for a few of few strokes"
    assert font.strokes("ü") == font.strokes("?")


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (-3.2, 7.7), (1e-7, 1e-6), (5, 5), (0, 0), (-1e9, 3e9), (97, 99)]
)
def test_ticks_are_few_round_and_enclose(low, high):
    found = charts.ticks(low, high)
    assert 2 <= len(found) <= 8
    assert found[0] <= low + 1e-9 * abs(low)
    assert found[-1] >= high - 1e-9 * abs(high)
    assert len({charts.shown(value) for value in found}) == len(found)


def test_charts_of_odd_numbers(tmp_path):
    picture = Picture(600, 400)
    box = charts.Box(10, 10, 590, 390)
    charts.curves(picture, box, "one point", {"": ([0], [0.0])}, "step", log=True)
    charts.curves(picture, box, "flat", {"a": ([0, 1], [2, 2]), "b": ([0, 1], [2, 2])}, "step")
    charts.field(picture, box, "flat", np.zeros((2, 2)), 0, 1, "x")
    assert pixels(picture.save(tmp_path / "b.png")).min() < 200


# -- bench ------------------------------------------------------------------------------------


def test_bench_prints_a_table(capsys):
    bench.run(0.01, {"MLP": bench.mlp})
    printed = capsys.readouterr().out
    assert "MLP" in printed
    assert "ms" in printed
    assert "make bench" in printed


@pytest.mark.parametrize("name", bench.CASES)
def test_bench_cases_are_steps(name):
    model, loss, inputs = bench.CASES[name]()
    loss(*inputs).backward()
    assert all(p.grad is not None for p in model.parameters())
