"""These are the public models that are measured, their sizes, and the speed-up that each must reach.

`porting bench public` runs them; `public_models` makes them.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Callable, Iterable, Mapping

import torch

from porting.bench import public_models as models
from porting.bench.workloads import Parts, SuiteEntry
from porting.options import PortOptions

__all__ = ["DEMANDED_MEAN", "PUBLIC"]

DEMANDED_MEAN = 1.4
"""The geometric mean of the speed-ups over the best eager side that is asked of the whole suite."""

_DEMANDED = {"float32": 1.0}
_SETTINGS: Mapping[str, Any] = {
    "against": ("plain", "fused", "channels-last", "compile"),
    **dict.fromkeys(("memory", "data", "limits"), False),
}

# Some of these programs take a compiler minutes on a busy machine; beside a training it has even longer.
_OPTIONS = PortOptions(tuning_seconds=600.0)


def _make_entry(
    make: Callable[..., models.Built], name: str, title: str, batch: int, library: str, **settings: object
) -> SuiteEntry:
    """Make an entry: images are trained by SGD with momentum, everything else by AdamW."""

    def make_parts(rows: int) -> Parts:
        model, loss, data = make(name, rows=rows, **settings)
        return model, loss, data, _make_sgd if "image_size" in settings else _make_adamw

    return SuiteEntry(title, batch, make_parts, _DEMANDED, options=_OPTIONS, settings=_SETTINGS, needs=_NEEDED[library])


def _make_sgd(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    # small enough for a few images not to be learnt by heart: rounding would decide the losses then
    return torch.optim.SGD(parameters, lr=1e-6, momentum=0.9)


def _make_adamw(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=3e-4)


_NEEDED = {"torchvision": ("torchvision",), "timm": ("torchvision", "timm"), "transformers": ("transformers",)}


def _make_images(name: str, title: str, batch: int, image_size: int, **settings: object) -> SuiteEntry:
    library = name.partition(".")[0]
    return _make_entry(models.make_classifier, name, title, batch, library, image_size=image_size, **settings)


def _make_text(name: str, title: str, **settings: object) -> SuiteEntry:
    return _make_entry(models.make_language_model, name, title, 8, "transformers", **{"length": 64, **settings})


# four layers of width 256 with four heads, as the configurations of the BERT family spell it
_FOUR_LAYERS = dict(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024)
_SMALL_WORDS = dict(_FOUR_LAYERS, embedding_size=64)
_TOKENS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)

_ENTRIES: Mapping[str, SuiteEntry] = {
    # as it is trained: with branches that begin at full size, rounding alone decides the losses
    "resnet50": _make_images("torchvision.resnet50", "ResNet-50 at 64x64", 8, 64, zero_init_residual=True),
    "vgg11_bn": _make_images(
        "torchvision.vgg11_bn", "VGG-11 with BatchNorm and one linear layer", 8, 64, head=("classifier", 512 * 7 * 7)
    ),
    "densenet": _make_images(
        "torchvision.DenseNet",
        "DenseNet of 24 dense layers, growth 16",
        8,
        64,
        growth_rate=16,
        block_config=(4, 6, 8, 6),
        num_init_features=32,
    ),
    "mobilenet_v2": _make_images("torchvision.mobilenet_v2", "MobileNetV2 at 64x64", 8, 64),
    "mobilenet_v3": _make_images("torchvision.mobilenet_v3_small", "MobileNetV3, small, at 64x64", 16, 64),
    "efficientnet": _make_images("torchvision.efficientnet_b0", "EfficientNet-B0 at 64x64", 8, 64),
    "shufflenet": _make_images("torchvision.shufflenet_v2_x1_0", "ShuffleNetV2 at 64x64", 16, 64),
    "regnet": _make_images("torchvision.regnet_y_400mf", "RegNetY-400MF at 64x64", 8, 64),
    "squeezenet": _make_images("torchvision.squeezenet1_1", "SqueezeNet 1.1 at 64x64", 8, 64),
    "lraspp": _make_entry(
        models.make_segmenter,
        "lraspp_mobilenet_v3_large",
        "LR-ASPP on MobileNetV3, 96x96 pixels",
        4,
        "torchvision",
        image_size=96,
    ),
    "convnext": _make_images("timm.convnext_atto", "ConvNeXt, atto, at 64x64", 8, 64),
    "vit": _make_images("timm.vit_tiny_patch16_224", "ViT, tiny, 6 layers, at 96x96", 8, 96, img_size=96, depth=6),
    "deit": _make_images(
        "timm.deit_tiny_distilled_patch16_224", "DeiT, tiny, distilled, 6 layers, at 96x96", 8, 96, img_size=96, depth=6
    ),
    "swin": _make_images(
        "timm.swin_tiny_patch4_window7_224",
        "Swin, width 48, 8 layers, at 64x64",
        4,
        64,
        img_size=64,
        window_size=4,
        embed_dim=48,
        depths=(2, 2, 2, 2),
    ),
    "mixer": _make_images(
        "timm.MlpMixer", "MLP-Mixer, width 256, 4 blocks, at 96x96", 8, 96, img_size=96, num_blocks=4, embed_dim=256
    ),
    "mobilevit": _make_images("timm.mobilevit_xxs", "MobileViT, xxs, at 128x128", 4, 128),
    "bert": _make_text("BertForSequenceClassification", "BERT, 4 layers, width 256, length 64", **_FOUR_LAYERS),
    "distilbert": _make_text(
        "DistilBertForSequenceClassification",
        "DistilBERT, 4 layers, width 256, length 64",
        dim=256,
        n_layers=4,
        n_heads=4,
        hidden_dim=1024,
    ),
    "roberta": _make_text(
        "RobertaForMaskedLM", "RoBERTa, masked words, 4 layers, width 256", max_position_embeddings=66, **_FOUR_LAYERS
    ),
    "albert": _make_text("AlbertForSequenceClassification", "ALBERT, 4 times one layer, width 256", **_SMALL_WORDS),
    "electra": _make_text("ElectraForPreTraining", "ELECTRA, found replacements, 4 layers, width 256", **_SMALL_WORDS),
    "gpt2": _make_text(
        "GPT2LMHeadModel",
        "GPT-2, 4 layers, width 256, length 64",
        n_embd=256,
        n_layer=4,
        n_head=4,
        n_positions=64,
        bos_token_id=1,
        eos_token_id=2,
    ),
    "llama": _make_text(
        "LlamaForCausalLM",
        "Llama, 4 layers, width 256, length 64",
        **{**_FOUR_LAYERS, "num_key_value_heads": 2, "intermediate_size": 768},
    ),
    "t5": _make_text(
        "T5ForConditionalGeneration",
        "T5, 2 + 2 layers, width 256, length 48",
        length=48,
        d_model=256,
        num_layers=2,
        num_heads=4,
        d_kv=64,
        d_ff=1024,
        decoder_start_token_id=0,
    ),
    "wav2vec2": _make_entry(
        models.make_speech_model,
        "Wav2Vec2ForCTC",
        "wav2vec 2.0, 2 layers, width 128, 0.5 s of sound",
        4,
        "transformers",
        shape=(8000,),
        num_tokens=8,
        vocab_size=32,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=512,
        conv_dim=(64,) * 7,
        num_conv_pos_embeddings=32,
        num_conv_pos_embedding_groups=4,
        mask_time_prob=0.0,
    ),
    "whisper": _make_entry(
        models.make_speech_model,
        "WhisperForConditionalGeneration",
        "Whisper, 2 + 2 layers, width 128, 2 s of sound",
        4,
        "transformers",
        shape=(80, 200),
        num_tokens=16,
        vocab_size=1000,
        d_model=128,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=512,
        decoder_ffn_dim=512,
        max_source_positions=100,
        max_target_positions=32,
        decoder_start_token_id=1,
        **_TOKENS,
    ),
}

PUBLIC: Mapping[str, SuiteEntry] = MappingProxyType({f"public_{name}": entry for name, entry in _ENTRIES.items()})
"""The suite by name, in the order in which it runs: torchvision's models, timm's, and those of transformers."""
