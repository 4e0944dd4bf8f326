"""pytorch-metric-learning: losses, miners, distances, reducers and testers."""

import torch
from common import data, finish, prepared, record
from pytorch_metric_learning import distances, losses, miners, reducers, samplers
from pytorch_metric_learning.utils.inference import InferenceModel

torch.set_default_dtype(torch.float64)
embeddings = data(24, 8).requires_grad_()
labels = torch.arange(24) % 4
CLASSES = {"num_classes": 4, "embedding_size": 8}
for name, loss in (
    ("angular", losses.AngularLoss()),
    ("arcface", losses.ArcFaceLoss(**CLASSES)),
    ("circle", losses.CircleLoss()),
    ("contrastive", losses.ContrastiveLoss()),
    ("cosface", losses.CosFaceLoss(**CLASSES)),
    ("fastap", losses.FastAPLoss()),
    ("lifted", losses.GeneralizedLiftedStructureLoss()),
    ("intrapair", losses.IntraPairVarianceLoss()),
    ("large", losses.LargeMarginSoftmaxLoss(**CLASSES)),
    ("margin", losses.MarginLoss()),
    ("multi", losses.MultiSimilarityLoss()),
    ("nca", losses.NCALoss()),
    ("normalized", losses.NormalizedSoftmaxLoss(**CLASSES)),
    ("npairs", losses.NPairsLoss()),
    ("ntxent", losses.NTXentLoss()),
    ("proxyanchor", losses.ProxyAnchorLoss(**CLASSES)),
    ("proxynca", losses.ProxyNCALoss(**CLASSES)),
    ("signal", losses.SignalToNoiseRatioContrastiveLoss()),
    ("softtriple", losses.SoftTripleLoss(**CLASSES)),
    ("sphereface", losses.SphereFaceLoss(**CLASSES)),
    ("subcenter", losses.SubCenterArcFaceLoss(**CLASSES)),
    ("supcon", losses.SupConLoss()),
    ("triplet", losses.TripletMarginLoss(distance=distances.CosineSimilarity())),
    ("tuplet", losses.TupletMarginLoss()),
    ("threshold", losses.TripletMarginLoss(reducer=reducers.ThresholdReducer(low=0.1))),
    ("averaged", losses.TripletMarginLoss(reducer=reducers.AvgNonZeroReducer())),
):
    loss = prepared(loss)
    value = loss(embeddings, labels)
    record(f"{name}.loss", value)
    wanted = [embeddings, *loss.parameters()]
    record(f"{name}.grad", torch.autograd.grad(value, wanted, allow_unused=True)[0])
for name, miner in (
    ("hard", miners.BatchHardMiner()),
    ("easyhard", miners.BatchEasyHardMiner()),
    ("similarity", miners.MultiSimilarityMiner()),
    ("margin", miners.PairMarginMiner()),
    ("triplets", miners.TripletMarginMiner(type_of_triplets="semihard")),
    ("uniform", miners.UniformHistogramMiner(num_bins=10, pos_per_bin=2, neg_per_bin=2)),
):
    found = miner(embeddings, labels)
    if name != "uniform":  # draws pairs
        record(f"miner.{name}", list(found))
        record(f"mined.{name}", losses.TripletMarginLoss()(embeddings, labels, found))
for name, distance in (("lp", distances.LpDistance()), ("snr", distances.SNRDistance())):
    record(f"distance.{name}", distance(embeddings))
memory = losses.CrossBatchMemory(losses.ContrastiveLoss(), embedding_size=8, memory_size=40)
memory.double()
for i in range(3):
    record(f"memory.{i}", memory(data(24, 8, seed=i), labels))
sampler = samplers.MPerClassSampler(labels, m=2, length_before_new_iter=16)
assert len(list(sampler)) == 16
model = prepared(torch.nn.Linear(8, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
miner, loss = miners.MultiSimilarityMiner(), losses.TripletMarginLoss(margin=0.1)
for i in range(4):
    optimizer.zero_grad()
    made = model(embeddings.detach())
    value = loss(made, labels, miner(made, labels))
    value.backward()
    optimizer.step()
    record(f"step.{i}", value)
matcher = InferenceModel(model, knn_func=lambda *a, **k: None)
record("match", matcher.is_match(embeddings[:5], embeddings[5:10], threshold=0.2))
finish()
