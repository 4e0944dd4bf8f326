"""transformers: more architectures, sampling, the Trainer, pipelines without files from outside."""

import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers as tr
from common import data, finish, prepared, record, record_step

tokens, mask = data(2, 10, low=1, high=50), torch.ones(2, 10, dtype=torch.long)
mask[1, 7:] = 0
SMALL = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
CAUSAL = {**SMALL, "intermediate_size": 24, "num_key_value_heads": 1, "max_position_embeddings": 32}
ENCODER = {**SMALL, "intermediate_size": 24, "max_position_embeddings": 40}
QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}

for name, config in (
    ("mistral", tr.MistralConfig(**CAUSAL, sliding_window=4)),
    ("qwen2", tr.Qwen2Config(**CAUSAL)),
    ("gemma", tr.GemmaConfig(**CAUSAL, head_dim=8)),
    ("phi", tr.PhiConfig(**CAUSAL)),
    ("mixtral", tr.MixtralConfig(**CAUSAL, num_local_experts=2, num_experts_per_tok=1,
                                 experts_implementation="eager")),
    ("neox", tr.GPTNeoXConfig(**ENCODER)),
    ("opt", tr.OPTConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, ffn_dim=24,
                         num_attention_heads=2, max_position_embeddings=40,
                         word_embed_proj_dim=16, dropout=0.0)),
    ("bloom", tr.BloomConfig(vocab_size=50, hidden_size=16, n_layer=2, n_head=2)),
):  # fmt: skip
    model = prepared(tr.AutoModelForCausalLM.from_config(config)).eval()
    record_step(name, model, model(tokens, attention_mask=mask).logits)
    made = model.generate(tokens[:, :4], attention_mask=mask[:, :4], max_new_tokens=5,
                          do_sample=False, pad_token_id=0)  # fmt: skip
    record(f"{name}.greedy", made)

for name, kind, config in (
    ("roberta", tr.RobertaForMaskedLM, tr.RobertaConfig(**ENCODER, pad_token_id=0)),
    ("electra", tr.ElectraForPreTraining, tr.ElectraConfig(**ENCODER, embedding_size=16)),
    ("albert", tr.AlbertForMaskedLM, tr.AlbertConfig(**ENCODER, embedding_size=8)),
    ("deberta", tr.DebertaV2ForSequenceClassification, tr.DebertaV2Config(
        **ENCODER, relative_attention=True, pos_att_type=["p2c", "c2p"])),
    ("distilbert", tr.DistilBertForTokenClassification, tr.DistilBertConfig(
        vocab_size=50, dim=16, n_layers=2, n_heads=2, hidden_dim=24,
        max_position_embeddings=32)),
    ("mpnet", tr.MPNetForQuestionAnswering, tr.MPNetConfig(**ENCODER)),
):  # fmt: skip
    model = prepared(kind(config)).eval()
    out = model(tokens, attention_mask=mask)
    record_step(name, model, out.start_logits if name == "mpnet" else out.logits)

VISION = {"image_size": 16, "patch_size": 8, "hidden_size": 16, "num_hidden_layers": 2,
          "num_attention_heads": 2, "intermediate_size": 24}  # fmt: skip
clip = tr.CLIPModel(tr.CLIPConfig(
    text_config={**ENCODER, "eos_token_id": 49}, vision_config=VISION,
    projection_dim=8))  # fmt: skip
clip = prepared(clip).eval()
words = tokens.clone()
words[:, -1] = 49
out = clip(input_ids=words, pixel_values=data(2, 3, 16, 16), return_loss=True)
record("clip.loss", out.loss)
record_step("clip", clip, out.logits_per_image)
for name, kind, config in (
    ("deit", tr.DeiTForImageClassification, tr.DeiTConfig(**VISION)),
    ("dinov2", tr.Dinov2Model, tr.Dinov2Config(**VISION)),
    ("convnext", tr.ConvNextForImageClassification, tr.ConvNextConfig(
        hidden_sizes=[4, 8], depths=[1, 1], num_stages=2)),
    ("resnet", tr.ResNetForImageClassification, tr.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])),
    ("swin", tr.SwinForImageClassification, tr.SwinConfig(
        image_size=16, patch_size=2, embed_dim=8, depths=[1, 1], num_heads=[2, 2],
        window_size=4)),
    ("segformer", tr.SegformerForSemanticSegmentation, tr.SegformerConfig(
        depths=[1, 1, 1, 1], hidden_sizes=[8, 8, 8, 8], num_attention_heads=[1, 1, 2, 2],
        decoder_hidden_size=8)),
):  # fmt: skip
    model = prepared(kind(config)).eval()
    size = 32 if name in ("convnext", "resnet", "segformer") else 16
    out = model(data(2, 3, size, size))
    record_step(name, model, out.last_hidden_state if name == "dinov2" else out.logits)

whisper = tr.WhisperForConditionalGeneration(tr.WhisperConfig(
    vocab_size=50, num_mel_bins=8, d_model=16, encoder_layers=1, decoder_layers=1,
    encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24,
    max_source_positions=10, max_target_positions=16, pad_token_id=0, bos_token_id=1,
    eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None,
    begin_suppress_tokens=None))  # fmt: skip
whisper = prepared(whisper).eval()
sound = data(2, 8, 20)
record_step("whisper", whisper, whisper(sound, decoder_input_ids=tokens[:, :6]).logits)
wav2vec = prepared(tr.Wav2Vec2ForCTC(tr.Wav2Vec2Config(
    **ENCODER, conv_dim=[8, 8], conv_stride=[4, 2], conv_kernel=[4, 2], num_conv_pos_embeddings=4,
    num_conv_pos_embedding_groups=2, feat_extract_norm="layer"))).eval()  # fmt: skip
record_step("wav2vec2", wav2vec, wav2vec(data(2, 200)).logits)
bart = prepared(tr.BartForConditionalGeneration(tr.BartConfig(
    vocab_size=50, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
    decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24,
    max_position_embeddings=32, forced_eos_token_id=None))).eval()  # fmt: skip
record_step("bart", bart, bart(tokens, attention_mask=mask, labels=tokens).logits)
record("bart.beams", bart.generate(tokens, max_new_tokens=6, num_beams=4, do_sample=False))

# other ways to generate
model = prepared(tr.GPT2LMHeadModel(
    tr.GPT2Config(vocab_size=50, n_embd=16, n_layer=2, n_head=2,
                  n_positions=64))).eval()  # fmt: skip
start = {"input_ids": tokens[:, :4], "attention_mask": mask[:, :4], "pad_token_id": 0}
for name, options in (
    ("penalty", {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2}),
    ("bad", {"bad_words_ids": [[3], [7]], "min_new_tokens": 4}),
    ("returned", {"num_beams": 3, "num_return_sequences": 2, "length_penalty": 0.5}),
    ("sampled", {"do_sample": True, "top_k": 1}),
):
    options = {"do_sample": False, **options}
    record(f"generate.{name}", model.generate(**start, max_new_tokens=6, **options))
out = model.generate(**start, max_new_tokens=4, do_sample=False, output_scores=True,
                     return_dict_in_generate=True)  # fmt: skip
record("generate.scores", list(out.scores))
torch.manual_seed(0)
drawn = model.generate(**start, max_new_tokens=20, do_sample=True, temperature=0.8, top_p=0.9)
assert drawn.shape[1] > 4
assert int(drawn.max()) < 50

# the Trainer, and a pipeline
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "dog", "sat", "ran", "the", "."]


class Rows(torch.utils.data.Dataset):
    """Rows of tokens with labels."""

    def __len__(self):
        return 12

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        return {"input_ids": torch.from_numpy(rng.integers(5, 12, 6)), "labels": i % 2}


with tempfile.TemporaryDirectory() as folder:
    Path(folder, "vocab.txt").write_text("\n".join(WORDS))
    tokenizer = tr.BertTokenizer(str(Path(folder, "vocab.txt")))
    config = tr.BertConfig(**{**ENCODER, "vocab_size": 12}, **QUIET, num_labels=2)
    model = prepared(tr.BertForSequenceClassification(config))
    arguments = tr.TrainingArguments(
        output_dir=folder, max_steps=3, per_device_train_batch_size=4, learning_rate=1e-3,
        use_cpu=True, report_to=[], logging_steps=1, save_strategy="no", warmup_steps=1,
        disable_tqdm=True, train_sampling_strategy="sequential", weight_decay=0.01)  # fmt: skip
    trainer = tr.Trainer(model, arguments, train_dataset=Rows(), eval_dataset=Rows())
    result = trainer.train()
    record("trainer.loss", result.training_loss)
    record("trainer.log", [e["loss"] for e in trainer.state.log_history if "loss" in e])
    record("trainer.parameters", [p for _, p in sorted(model.named_parameters())])
    record("trainer.eval", trainer.evaluate()["eval_loss"])
    record("trainer.predictions", trainer.predict(Rows()).predictions)
    trainer.save_model(folder)
    tokenizer.save_pretrained(folder)
    ask = tr.pipeline("text-classification", model=folder, tokenizer=folder, device="cpu",
                      dtype=torch.float64)  # fmt: skip
    found = ask(["a cat sat .", "the dog ran"], top_k=None)
    record("pipeline", [[part["score"] for part in row] for row in found])
    record("pipeline.labels", [[int(part["label"][-1]) for part in row] for row in found])
    features = tr.pipeline("feature-extraction", model=folder, tokenizer=folder, device="cpu",
                           dtype=torch.float64)  # fmt: skip
    record("pipeline.features", torch.tensor(features("a dog")))
finish()
