"""peft: adapters on a Llama and a GPT-2, merged and saved."""

import tempfile

import torch
import transformers as tr
from common import data, finish, prepared, record, record_step
from peft import IA3Config, LoraConfig, PeftModel, get_peft_model

tokens = data(2, 10, high=50)
SMALL = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}


def llama():
    config = tr.LlamaConfig(**SMALL, intermediate_size=24, num_key_value_heads=1)
    return prepared(tr.LlamaForCausalLM(config))


ADAPTERS = {
    "lora": LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.0),
    "dora": LoraConfig(r=4, target_modules=["q_proj", "o_proj"], use_dora=True),
    "rslora": LoraConfig(r=4, target_modules="all-linear", use_rslora=True),
    "ia3": IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]),
}
for name, config in ADAPTERS.items():
    model = get_peft_model(llama(), config)
    adapters = sorted(n for n, p in model.named_parameters() if p.requires_grad)
    record(f"{name}.trainable", model.get_nb_trainable_parameters())
    model.double()
    with torch.no_grad():
        for i, key in enumerate(adapters):
            parameter = model.get_parameter(key)
            parameter.copy_(data(*parameter.shape, seed=i) * 0.1 + (name == "ia3"))
    record_step(name, model.eval(), model(tokens).logits)
    if name == "lora":
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            again = PeftModel.from_pretrained(llama(), folder).double().eval()
            record("lora.loaded", again(tokens).logits)
        with model.disable_adapter():
            record("lora.disabled", model(tokens).logits)
    if name != "dora":
        record(f"{name}.merged", model.merge_and_unload()(tokens).logits)
finish()
