"""sbi: estimators of densities and ratios, their losses; a posterior by training."""

import os
import tempfile

import torch
from common import data, finish, prepared, record, record_step
from sbi.inference import NPE
from sbi.neural_nets import classifier_nn, likelihood_nn, posterior_nn
from sbi.utils import BoxUniform

theta, x = data(40, 2).float(), data(40, 3).float()
inputs, conditions = data(6, 2), data(6, 3)


def ordered(model):
    """The same model with permutations that were not drawn at random."""
    for module in model.modules():
        if hasattr(module, "_permutation"):
            count = len(module._permutation)
            module._permutation.copy_(torch.arange(count - 1, -1, -1))
    return prepared(model)


for kind in ("maf", "nsf", "mdn", "made"):
    build = posterior_nn(kind, hidden_features=8, num_transforms=2, z_score_theta="none",
                         z_score_x="none")  # fmt: skip
    model = ordered(build(theta, x))
    record_step(f"posterior.{kind}", model, model.loss(inputs, conditions))
build = likelihood_nn("maf", hidden_features=8, num_transforms=2)
model = ordered(build(theta, x))
record_step("likelihood", model, model.loss(conditions, inputs))
for kind in ("mlp", "resnet", "linear"):
    model = prepared(classifier_nn(kind, hidden_features=8)(theta, x))
    record_step(f"ratio.{kind}", model, model(inputs, conditions))

prior = BoxUniform(-2 * torch.ones(2), 2 * torch.ones(2))
record("prior", prior.log_prob(data(5, 2).float()))
torch.manual_seed(0)
simulated = theta.clamp(-1.9, 1.9)
with tempfile.TemporaryDirectory() as folder:  # it writes logs into the folder that it runs in
    home = os.getcwd()
    os.chdir(folder)
    inference = NPE(prior, density_estimator="maf", show_progress_bars=False)
    inference.append_simulations(simulated, simulated + 0.1 * data(40, 2, seed=3).float())
    inference.train(training_batch_size=10, max_num_epochs=2)
    posterior = inference.build_posterior()
    samples = posterior.sample((5,), x=torch.zeros(2), show_progress_bars=False)
    os.chdir(home)
record("samples", tuple(samples.shape))
finish()
