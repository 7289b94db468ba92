"""A random Llama of two layers and random LoRA adapters for it, in a folder: `tiny_llama.py FOLDER ADAPTERS RANK`.

Run by the environment that `tests.vllm.install` makes: it needs torch and transformers. The weights are seeded.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HIDDEN, LAYERS = 256, 2
ADAPTED = ("self_attn.q_proj", "self_attn.v_proj")


def base(folder: Path) -> None:
    """The model and a tokenizer of one token a byte."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=HIDDEN,
        intermediate_size=512,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=2048,
    )
    LlamaForCausalLM(config).to(torch.float32).save_pretrained(folder)
    words = ["<s>", "</s>", "<unk>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    bytewise = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=[], unk_token="<unk>"))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(
        tokenizer_object=bytewise, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)


def adapter(folder: Path, seed: int, rank: int, base_folder: Path) -> None:
    """One adapter in the format of PEFT."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    weights = {}
    for layer in range(LAYERS):
        for module in ADAPTED:
            key = f"base_model.model.model.layers.{layer}.{module}"
            weights[f"{key}.lora_A.weight"] = torch.randn(rank, HIDDEN) * 0.02
            weights[f"{key}.lora_B.weight"] = torch.randn(HIDDEN, rank) * 0.02
    save_file(weights, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA", "r": rank, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"], "bias": "none",
        "task_type": "CAUSAL_LM", "base_model_name_or_path": str(base_folder), "lora_dropout": 0.0,
        "fan_in_fan_out": False, "inference_mode": True,
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(config))


if __name__ == "__main__":
    where, count, rank = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    (where / "base").mkdir(parents=True, exist_ok=True)
    base(where / "base")
    for number in range(count):
        adapter(where / f"adapter-{number}", number + 1, rank, where / "base")
