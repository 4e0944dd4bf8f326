"""sentence-transformers: a model of parts without files from outside, encoding, losses, saving."""

import tempfile
from pathlib import Path

import torch
import transformers as tr
from common import data, finish, prepared, record
from sentence_transformers import SentenceTransformer, losses, models, util

torch.set_default_dtype(torch.float64)
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "dog", "sat", "ran", "the", "."]
SENTENCES = ["a cat sat .", "the dog ran", "a dog", "the cat ran . the dog sat ."]
with tempfile.TemporaryDirectory() as folder:
    Path(folder, "vocab.txt").write_text("\n".join(WORDS))
    config = tr.BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=24, max_position_embeddings=32, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    prepared(tr.BertModel(config)).save_pretrained(folder)
    tr.BertTokenizer(str(Path(folder, "vocab.txt"))).save_pretrained(folder)
    words = models.Transformer(folder, max_seq_length=16, model_kwargs={"dtype": torch.float64})
    for mode in ("mean", "cls", "max"):
        pooling = models.Pooling(16, pooling_mode=mode)
        model = SentenceTransformer(modules=[words, pooling], device="cpu")
        record(f"encode.{mode}", model.encode(SENTENCES, show_progress_bar=False))
    dense = prepared(models.Dense(16, 8, activation_function=torch.nn.Tanh()))
    model = SentenceTransformer(modules=[words, pooling, dense, models.Normalize()], device="cpu")
    found = model.encode(SENTENCES, convert_to_tensor=True, show_progress_bar=False)
    record("encode", found)
    record("similarity", model.similarity(found, found))
    record("cosine", util.cos_sim(found, found))
    hits = util.semantic_search(found[:1], found, top_k=3)[0]
    record("search", [[hit["corpus_id"] for hit in hits], [hit["score"] for hit in hits]])
    model.save(str(Path(folder, "saved")))
    again = SentenceTransformer(str(Path(folder, "saved")), device="cpu",
                                model_kwargs={"dtype": torch.float64})  # fmt: skip
    again.double()
    record("saved", again.encode(SENTENCES, show_progress_bar=False))
    features = [model.preprocess(SENTENCES[:2]), model.preprocess(SENTENCES[2:])]
    for name, loss, labels in (
        ("cosine", losses.CosineSimilarityLoss(model), torch.tensor([0.9, 0.1])),
        ("ranking", losses.MultipleNegativesRankingLoss(model), torch.tensor([0, 1])),
        ("contrastive", losses.ContrastiveLoss(model), torch.tensor([1, 0])),
        ("softmax", losses.SoftmaxLoss(model, 8, 2), torch.tensor([1, 0])),
        ("cosent", losses.CoSENTLoss(model), torch.tensor([0.9, 0.1])),
    ):
        if name == "softmax":
            prepared(loss.classifier)
        optimizer = torch.optim.AdamW(loss.parameters(), lr=1e-3)
        for i in range(2):
            optimizer.zero_grad()
            copies = [dict(f) for f in features]
            value = loss(copies, labels)
            value.backward()
            optimizer.step()
            record(f"{name}.{i}", value)
record("mining", util.pairwise_dot_score(data(3, 4), data(3, 4, seed=1)))
finish()
