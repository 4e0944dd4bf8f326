"""skorch: classifiers and regressors behind scikit-learn's interface, callbacks, grid search."""

import numpy as np
import torch
from common import finish, prepared, record
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier, NeuralNetRegressor
from skorch.callbacks import EarlyStopping, EpochScoring, GradientNormClipping, LRScheduler
from torch import nn

rng = np.random.default_rng(0)
x = rng.standard_normal((60, 4))
labels = (x[:, 0] * x[:, 1] > 0).astype(np.int64)


class Net(nn.Module):
    def __init__(self, hidden=8, out=2):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, out))
        prepared(self)

    def forward(self, x):
        return self.layers(x)


classifier = NeuralNetClassifier(
    Net, criterion=nn.CrossEntropyLoss, max_epochs=5, lr=0.1, batch_size=16, verbose=0,
    iterator_train__shuffle=False, optimizer=torch.optim.Adam,
    callbacks=[EpochScoring("accuracy"), GradientNormClipping(1.0), EarlyStopping(),
               LRScheduler("StepLR", step_size=2)],
)  # fmt: skip
classifier.fit(x, labels)
record("probabilities", classifier.predict_proba(x))
record("losses", [row["train_loss"] for row in classifier.history])
record("valid", [row["valid_loss"] for row in classifier.history])
regressor = NeuralNetRegressor(
    Net, module__out=1, max_epochs=3, lr=0.05, verbose=0, train_split=None
)
pipeline = Pipeline([("scale", StandardScaler()), ("net", regressor)])
pipeline.fit(x, x[:, :1] * 2)
record("predicted", pipeline.predict(x))
search = GridSearchCV(
    NeuralNetClassifier(Net, criterion=nn.CrossEntropyLoss, max_epochs=2, verbose=0,
                        train_split=None),
    {"lr": [0.01, 0.1], "module__hidden": [4, 8]}, cv=2, scoring="accuracy",
)  # fmt: skip
search.fit(x, labels)
record("scores", search.cv_results_["mean_test_score"])
finish()
