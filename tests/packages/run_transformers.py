"""transformers: GPT-2, BERT, Llama, T5 and others from random weights; generation; files."""

import tempfile

import torch
import transformers as tr
from common import data, finish, prepared, record, record_step

tokens, mask = data(2, 10, high=50), torch.ones(2, 10, dtype=torch.long)
mask[1, 7:] = 0
SMALL = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
GPT2 = tr.GPT2Config(vocab_size=50, n_embd=16, n_layer=2, n_head=2, n_positions=32)
LLAMA = tr.LlamaConfig(
    **SMALL, intermediate_size=24, num_key_value_heads=1, max_position_embeddings=32
)
T5 = tr.T5Config(
    vocab_size=50, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, decoder_start_token_id=0
)
BERT = tr.BertConfig(**SMALL, intermediate_size=24, max_position_embeddings=32)

for implementation in ("eager", "sdpa"):
    for name, kind, config in (
        ("gpt2", tr.GPT2LMHeadModel, GPT2),
        ("llama", tr.LlamaForCausalLM, LLAMA),
        ("bert", tr.BertForMaskedLM, BERT),
    ):
        config._attn_implementation = implementation
        model = prepared(kind(config)).eval()
        out = model(input_ids=tokens, attention_mask=mask, labels=tokens)
        record(f"{name}.{implementation}.loss", out.loss)
        record_step(f"{name}.{implementation}", model, out.logits)
model = prepared(tr.BertForSequenceClassification(BERT)).eval()
record_step("bert.classes", model, model(tokens, attention_mask=mask).logits)
t5 = prepared(tr.T5ForConditionalGeneration(T5)).eval()
out = t5(input_ids=tokens, attention_mask=mask, labels=tokens[:, :6].contiguous())
record("t5.loss", out.loss)
record_step("t5", t5, out.logits)

for name, kind, config in (
    ("gpt2", tr.GPT2LMHeadModel, GPT2),
    ("llama", tr.LlamaForCausalLM, LLAMA),
):
    model = prepared(kind(config)).eval()
    start = {"input_ids": tokens[:, :4], "attention_mask": mask[:, :4], "pad_token_id": 0}
    record(f"{name}.greedy", model.generate(**start, max_new_tokens=8, do_sample=False))
    record(f"{name}.beams", model.generate(**start, max_new_tokens=6, num_beams=3, do_sample=False))
    record(f"{name}.cache", model(tokens[:, :3], use_cache=True).logits)
record("t5.generated", t5.generate(tokens, max_new_tokens=6, do_sample=False))

with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    again = tr.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    record("saved", again(tokens).logits)

VIT = tr.ViTConfig(image_size=16, patch_size=4, hidden_size=16, num_hidden_layers=2,
                   num_attention_heads=2, intermediate_size=24, num_labels=4)  # fmt: skip
vit = prepared(tr.ViTForImageClassification(VIT)).eval()
record_step("vit", vit, vit(data(2, 3, 16, 16)).logits)
finish()
