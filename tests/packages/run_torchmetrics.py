"""torchmetrics: metrics of several kinds, accumulated over batches."""

import torch
import torchmetrics
from common import data, finish, record
from torchmetrics import functional as FM

scores, labels = data(4, 16, 5).softmax(-1), data(4, 16, high=5)
chance, truth = data(4, 32, seed=1).sigmoid(), data(4, 32, high=2)
x, y = data(4, 20, seed=2), data(4, 20, seed=3)
CLASSES = {"task": "multiclass", "num_classes": 5}
METRICS = {
    "accuracy": (torchmetrics.Accuracy(**CLASSES), scores, labels),
    "precision": (torchmetrics.Precision(average="macro", **CLASSES), scores, labels),
    "f1": (torchmetrics.F1Score(average="weighted", **CLASSES), scores, labels),
    "confusion": (torchmetrics.ConfusionMatrix(**CLASSES), scores, labels),
    "auroc": (torchmetrics.AUROC(**CLASSES), scores, labels),
    "average_precision": (torchmetrics.AveragePrecision(task="binary"), chance, truth),
    "calibration": (torchmetrics.CalibrationError(task="binary"), chance, truth),
    "mse": (torchmetrics.MeanSquaredError(), x, y),
    "r2": (torchmetrics.R2Score(), x.reshape(4, -1), y.reshape(4, -1)),
    "pearson": (torchmetrics.PearsonCorrCoef(), x, y),
    "spearman": (torchmetrics.SpearmanCorrCoef(), x, y),
    "mean": (torchmetrics.MeanMetric(), x, y.abs()),
}
for name, (metric, predictions, targets) in METRICS.items():
    metric = metric.double() if hasattr(metric, "double") else metric
    record(f"{name}.first", metric(predictions[0], targets[0]))
    for i in range(1, 4):
        metric.update(predictions[i], targets[i])
    record(name, metric.compute())
    metric.reset()
collection = torchmetrics.MetricCollection(
    [torchmetrics.Accuracy(**CLASSES), torchmetrics.Recall(average="macro", **CLASSES)]
)
record("collection", collection(scores.flatten(0, 1), labels.flatten()))
images = data(2, 3, 32, 32, seed=4).sigmoid().requires_grad_()
others = data(2, 3, 32, 32, seed=5).sigmoid()
similarity = FM.image.structural_similarity_index_measure(images, others, data_range=1.0)
similarity.backward()
record("ssim", [similarity, images.grad])
record("psnr", FM.image.peak_signal_noise_ratio(images, others, data_range=1.0))
record("perplexity", FM.text.perplexity(scores.log(), labels))
record("cosine", FM.pairwise_cosine_similarity(x, y))
record("retrieval", FM.retrieval.retrieval_normalized_dcg(chance[0], truth[0]))
record("bleu", FM.text.bleu_score(["the cat is on the mat"], [["there is a cat on the mat"]]))
assert isinstance(collection, torch.nn.Module)
finish()
