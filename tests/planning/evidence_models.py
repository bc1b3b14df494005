"""Published configurations as models without values, with the options that a port of each would have.

B = samples, T = tokens, S = seconds of sound. What a configuration does not say is what its program has by default.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple
from unittest import mock

import torch
import transformers
from torch import nn

import porting
import porting.simulator as poptorch
from porting import PortOptions
from porting.planning.plan_record import Plan

ROOT = Path(__file__).parents[2]
SPECIFICATION = ROOT.parent / "shared" / "spec"
SOUND_RATE = 16_000
# the tokens whose loss is taken, by the length of a text
_MASKED = {128: 20, 384: 56, 512: 76}
_LEAST_LOGITS = 128


def read_evidence(name: str) -> Any:
    """Read a file of published facts, which is not part of this package."""
    return json.loads((SPECIFICATION / f"{name}.json").read_text("utf-8"))


@dataclass
class Built:
    """A model whose `forward` returns its loss, one micro-batch, and the modules that can be placed.

    `blocks` are in their order, of which `kept` or else all can be recomputed between. `head` returns to the IPU of the
    embedding, and its Linear module `linear` can be serialized. `placed` are stages that are no even blocks.
    """

    model: nn.Module
    example: Tuple[torch.Tensor, ...]
    blocks: Sequence[str]
    head: Optional[str] = None
    linear: Optional[str] = None
    kept: List[str] = field(default_factory=list)
    placed: Dict[str, int] = field(default_factory=dict)


class Step(nn.Module):
    """A model and what a step makes of it."""

    def __init__(self, net: nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.net = net
        self.call = call

    def forward(self, *args: torch.Tensor) -> Any:
        return self.call(self.net, *args)


def plan_row(row: Mapping[str, Any], machine: Optional[str] = None) -> Plan:
    """Plan a configuration on a machine, or on one chip of its kind."""
    built = build(row)
    if not is_full(row):
        built.model.half()
    trains = row["kind"] == "training"
    options = make_options(row, built)
    optimizer = make_optimizer(row, built.model.parameters()) if trains else None
    example = tuple(t.half() if t.is_floating_point() and not is_full(row) else t for t in built.example)
    return porting.plan(
        built.model,
        example=example,
        optimizer=optimizer,
        options=options,
        machine=machine or chip_of(row),
        ipus=None if options.stages else row.get("ipus_per_replica", 1),
        mode=row["kind"],
    )


def is_full(row: Mapping[str, Any]) -> bool:
    """Tell whether a configuration computes in float32."""
    return row.get("precision") == "fp32"


def chip_of(row: Mapping[str, Any]) -> str:
    """Return the chip of a configuration."""
    return "gc2" if row.get("hardware", "").split(" ")[0] == "GC2" else "gc200"


def count_parts(row: Mapping[str, Any]) -> int:
    """Return the parts in which the product with the embedding's weight is computed."""
    return int(str(row.get("embedding_serialization") or row.get("projection_serialization") or 1)[0])


def pad_words(row: Mapping[str, Any]) -> int:
    """Return the words of a vocabulary, so many more that its parts are even."""
    parts = max(1, count_parts(row))
    return int(-(-row["model"]["vocab"] // parts) * parts)


def count_rows(row: Mapping[str, Any]) -> int:
    """Return the micro-batch of a configuration, of several the first."""
    found = re.match(r"\d+", str(row.get("micro_batch", 1)))
    return int(found.group()) if found else 1


def make_options(row: Mapping[str, Any], built: Built) -> PortOptions:
    """Return the options that place and lay out a step as the configuration does."""
    trains = row["kind"] == "training"
    stages = place_blocks(row, built)
    settings: Dict[str, Any] = {"stages": stages or None}
    num_ipus = PortOptions(**settings).num_ipus
    least = 2 * len(PortOptions(**settings).stage_ipus) - 1
    if trains:
        settings["accumulation"] = max(least if least > 1 else 1, row.get("grad_accum", 16))
        if row.get("checkpoint_every_layer", row.get("recompute") or row["model"]["arch"] == "gpt2"):
            settings["recompute"] = list(built.kept or built.blocks)
        # TensorFlow's pipelines keep what only the update uses in streaming memory where nothing else is said
        default = row["framework"].startswith("tensorflow") or built.head == "net.lm_head"
        settings["optimizer_state"] = "off_chip" if row.get("optimizer_state_offchip", default) else "on_chip"
        settings["shard_optimizer_state"] = bool(row.get("replicated_tensor_sharding"))
        settings["replicas"] = row.get("replication") or 1
    parts = count_parts(row)
    if parts > 1 and built.linear:
        settings["serialize"] = {built.linear: parts}
    settings["available_memory"] = read_shares(row, num_ipus)
    return PortOptions(micro_batch=count_rows(row), memory="ignore", **settings)


def read_shares(row: Mapping[str, Any], num_ipus: int) -> Any:
    """Return the shares of memory that products may take, for the IPUs that have stages."""
    shares = row.get("matmul_proportion")
    if isinstance(shares, dict):
        shares = list(shares.values())
    if not isinstance(shares, list):
        return shares
    if len(shares) >= num_ipus > 1:
        return shares[:num_ipus]
    return sum(shares) / len(shares)


def place_blocks(row: Mapping[str, Any], built: Built) -> Dict[str, int]:
    """Return where stages begin: `layers_per_ipu` blocks on each IPU, and the head where the embedding is."""
    if built.placed:
        return built.placed
    counts = list(row.get("layers_per_ipu", ()))
    if row.get("pipeline_device_mapping"):
        counts = [int(text.partition("hid")[0]) for text in row["pipeline"]][:-1]
    counts = [0] * row.get("encoder_start_ipu", 0) + counts
    stages: Dict[str, int] = {}
    at = 0
    for ipu, count in enumerate(counts):
        if ipu and count and at < len(built.blocks):
            stages[built.blocks[at]] = ipu
        at += count
    if stages and built.head:
        stages[built.head] = 0
    return stages


def make_optimizer(row: Mapping[str, Any], parameters: Any) -> torch.optim.Optimizer:
    """Return the optimizer of a configuration, with the widths of what it keeps."""
    framework, name = row["framework"], str(row.get("optimizer", "AdamW"))
    half = {"fp16": torch.float16, "fp32": torch.float32}
    # PopART adds gradients up in half precision, and so does TensorFlow, which has the variable's type for all state;
    # so do the vendor's GPT-2 and what `transformers` trains
    narrow = framework in ("popart", "tensorflow1", "tensorflow2") or row["model"]["arch"] == "gpt2"
    accumulated = half[row.get("accum_dtype", "fp16" if narrow else "fp32")]
    if name.startswith(("SGD", "sgd", "momentum", "LARS")):
        # PopART's SGD with momentum adds gradients to the velocity
        if framework == "popart" or "combined" in name:
            kind = torch.float16 if framework == "popart" else torch.float32
            return poptorch.optim.SGD(
                parameters, lr=0.1, momentum=0.9, use_combined_accum=True, velocity_accum_type=kind
            )
        velocity = torch.float16 if framework.startswith("tensorflow") else torch.float32
        return poptorch.optim.SGD(
            parameters, lr=0.1, momentum=0.9, accum_type=accumulated, velocity_accum_type=velocity
        )
    kinds = {
        "accum_type": accumulated,
        "first_order_momentum_accum_type": half[row.get("m_dtype", "fp16" if narrow else "fp32")],
        "second_order_momentum_accum_type": torch.float32,
    }
    if name.startswith("rmsprop"):
        return poptorch.optim.RMSprop(parameters, lr=0.1, momentum=0.9, **kinds)
    make = poptorch.optim.LAMB if name.upper().startswith("LAMB") else poptorch.optim.AdamW
    return make(parameters, lr=0.1, **kinds)


# -- models ------------------------------------------------------------------------------------------------------------


def build(row: Mapping[str, Any]) -> Built:
    """Build the model of a configuration; KeyError where it is of no known kind."""
    arch = row["model"]["arch"]
    if row["framework"] == "popxl":
        raise KeyError(arch)
    return _BUILDERS[next(name for name in (arch, arch.split("-")[0], arch.split()[0]) if name in _BUILDERS)](row)


def is_buildable(row: Mapping[str, Any]) -> bool:
    """Tell whether `build` knows the model of a configuration."""
    try:
        build(row)
    except (KeyError, StopIteration):
        return False
    return True


def make(kind: Any, config: Any) -> nn.Module:
    """Make a model without values whose attention has its scores in memory."""
    config._attn_implementation = "eager"
    with torch.device("meta"):
        net = kind(config)
    net.tie_weights()
    return net


def tokens(rows: int, length: int) -> torch.Tensor:
    """Return words (B, T)."""
    return torch.zeros(rows, length, dtype=torch.int64, device="meta")


def entropy(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the loss of scores, in float32."""
    return nn.functional.cross_entropy(scores.float().flatten(0, -2), labels.flatten())


def as_loss(loss: torch.Tensor) -> torch.Tensor:
    return poptorch.identity_loss(loss, reduction="none")


def name_blocks(net: nn.Module, kind: str) -> List[str]:
    """Return the modules of a class, by the names that they have in a `Step`."""
    return [f"net.{name}" for name, module in net.named_modules() if type(module).__name__.endswith(kind)]


def build_bert(row: Mapping[str, Any]) -> Built:
    facts, rows = row["model"], count_rows(row)
    length = facts.get("seq", 128)
    config = transformers.BertConfig(
        hidden_size=facts["hidden"],
        num_hidden_layers=facts["layers"],
        num_attention_heads=facts["heads"],
        intermediate_size=facts["ffn"],
        vocab_size=pad_words(row),
        max_position_embeddings=512,
    )
    batch = (tokens(rows, length), torch.ones(rows, 1, 1, length, device="meta"))
    task = facts.get("task", "MLM+NSP")
    if row["kind"] == "inference" and task == "embedding":
        net = make(transformers.BertModel, config)
        return Built(Step(net, lambda n, x, m: n(x, attention_mask=m)[0]), batch, name_blocks(net, "BertLayer"))
    if row["kind"] == "inference" or task in ("QA", "SQUAD"):
        net = make(transformers.BertForQuestionAnswering, config)
        blocks = name_blocks(net, "BertLayer")
        if row["kind"] == "inference":
            return Built(Step(net, lambda n, x, m: n(x, attention_mask=m, return_dict=False)), batch, blocks)

        def answer(n: nn.Module, x: Any, m: Any, start: Any, end: Any) -> Any:
            starts, ends = n(x, attention_mask=m, return_dict=False)
            return starts, as_loss(entropy(starts, start) + entropy(ends, end))

        return Built(Step(net, answer), (*batch, tokens(rows, 1)[:, 0], tokens(rows, 1)[:, 0]), blocks)
    net = make(transformers.BertForPreTraining, config)

    def fill(n: nn.Module, x: Any, m: Any, places: Any, words: Any, follows: Any) -> Any:
        states, pooled = n.bert(x, attention_mask=m, return_dict=False)
        # only the masked words pass the head
        masked = torch.gather(states, 1, places.unsqueeze(-1).expand(-1, -1, states.shape[-1]))
        scores, next_scores = n.cls(masked, pooled)
        return as_loss(entropy(scores, words) + entropy(next_scores, follows))

    num_masked = facts.get("mask_tokens") or _MASKED.get(length, 20)
    labels = (tokens(rows, num_masked), tokens(rows, num_masked), tokens(rows, 1)[:, 0])
    return Built(
        Step(net, fill),
        (*batch, *labels),
        name_blocks(net, "BertLayer"),
        head="net.bert.pooler",
        linear="net.cls.predictions.decoder",
    )


def build_gpt2(row: Mapping[str, Any]) -> Built:
    facts, rows = row["model"], count_rows(row)
    length = facts["seq"] if isinstance(facts.get("seq"), int) else 128
    config = transformers.GPT2Config(
        n_embd=facts["hidden"],
        n_layer=facts["layers"],
        n_head=facts["heads"],
        vocab_size=pad_words(row),
        n_positions=1024,
        use_cache=False,
    )
    net = make(transformers.GPT2LMHeadModel, config)
    # the vendor's attention has its triangle as a mask of half precision
    batch = (tokens(rows, length), torch.zeros(rows, 1, length, length, device="meta"), tokens(rows, length))
    blocks = name_blocks(net, "GPT2Block")

    def score(n: nn.Module, x: Any, m: Any, p: Any) -> Any:
        return n(x, attention_mask=m, position_ids=p, return_dict=False)[0]

    if row["kind"] == "inference":
        return Built(Step(net, score), batch, blocks, head="net.lm_head", linear="net.lm_head")

    def learn(n: nn.Module, x: Any, m: Any, p: Any, y: Any) -> Any:
        # the loss is summed up over parts of the text, in half precision
        scores, labels = score(n, x, m, p).flatten(0, 1), y.flatten()
        parts = zip(scores.split(_LEAST_LOGITS), labels.split(_LEAST_LOGITS))
        losses = [nn.functional.cross_entropy(part, words, reduction="sum").float() for part, words in parts]
        return as_loss(sum(losses[1:], losses[0]) / length)

    return Built(Step(net, learn), (*batch, batch[0]), blocks, head="net.lm_head", linear="net.lm_head")


def build_vit(row: Mapping[str, Any]) -> Built:
    facts, rows = row["model"], count_rows(row)
    config = transformers.ViTConfig(
        hidden_size=facts["hidden"],
        num_hidden_layers=facts.get("layers", facts.get("encoder_layers")),
        num_attention_heads=facts.get("heads", 12),
        intermediate_size=facts.get("ffn", 4 * facts["hidden"]),
        image_size=facts["image"],
        patch_size=facts.get("patch", 16),
        num_labels=facts.get("classes", 1000),
    )
    return classify(row, make(transformers.ViTForImageClassification, config), "ViTLayer", rows)


def classify(row: Mapping[str, Any], net: nn.Module, kind: str, rows: int) -> Built:
    """Return a network for pictures with the loss of its classes."""
    size = row["model"]["image"]
    blocks = name_blocks(net, kind)
    pictures = torch.zeros(rows, 3, size, size, device="meta")
    if row["kind"] == "inference":
        return Built(Step(net, lambda n, x: n(x, return_dict=False)[0]), (pictures,), blocks)

    def learn(n: nn.Module, x: Any, y: Any) -> Any:
        return as_loss(entropy(n(x, return_dict=False)[0], y))

    return Built(Step(net, learn), (pictures, tokens(rows, 1)[:, 0]), blocks)


def build_resnet(row: Mapping[str, Any]) -> Built:
    config = transformers.ResNetConfig(depths=[3, 4, 6, 3], num_labels=1000)
    net = make(transformers.ResNetForImageClassification, config)
    built = classify(row, net, "BottleNeckLayer", count_rows(row))
    splits = [re.findall(r"\d+", name) for name in row.get("pipeline_splits", ())]
    built.kept = [f"net.resnet.encoder.stages.{int(stage) - 1}.layers.{block}" for stage, block, *_ in splits]
    if row["ipus_per_replica"] > 1:
        after = [built.blocks[built.blocks.index(name) + 1] for name in built.kept]
        built.placed.update(zip(after, range(1, len(after) + 1)))
        built.kept = []
    return built


def build_efficientnet(row: Mapping[str, Any]) -> Built:
    width, depth = (1.4, 1.8) if row["model"]["arch"].endswith("b4") else (1.0, 1.0)
    config = transformers.EfficientNetConfig(
        image_size=row["model"]["image"],
        width_coefficient=width,
        depth_coefficient=depth,
        hidden_dim=1792 if width > 1 else 1280,
        num_labels=1000,
    )
    net = make(transformers.EfficientNetForImageClassification, config)
    built = classify(row, net, "EfficientNetBlock", count_rows(row))
    if row.get("ipus_per_replica", 1) > 1:
        # the first block of the fourth stage, after 1 + 2 + 2 others
        built.placed[built.blocks[5]] = 1
    return built


def build_swin(row: Mapping[str, Any]) -> Built:
    facts = row["model"]
    config = transformers.SwinConfig(
        embed_dim=facts["embed_dim"],
        depths=facts["depths"],
        num_heads=facts["heads"],
        window_size=facts["window"],
        image_size=facts["image"],
        num_labels=facts["classes"],
    )
    return classify(row, make(transformers.SwinForImageClassification, config), "SwinLayer", count_rows(row))


def build_mae(row: Mapping[str, Any]) -> Built:
    facts, rows = row["model"], count_rows(row)
    config = transformers.ViTMAEConfig(
        hidden_size=facts["hidden"],
        num_hidden_layers=facts["encoder_layers"],
        decoder_hidden_size=facts["decoder_hidden"],
        decoder_num_hidden_layers=facts["decoder_layers"],
        mask_ratio=facts["mask_ratio"],
    )
    net = make(transformers.ViTMAEForPreTraining, config)
    blocks = name_blocks(net, "ViTMAELayer")
    placed, at = {}, 0
    for ipu, count in enumerate((*row["layers_per_ipu"], *row["decoder_layers_per_ipu"])):
        placed[blocks[at]] = ipu % len(row["layers_per_ipu"])
        at += count
    pictures = torch.zeros(rows, 3, 224, 224, device="meta")
    noise = torch.zeros(rows, 196, device="meta")
    step = Step(net, lambda n, x, z: as_loss(n(x, noise=z, return_dict=False)[0]))
    return Built(step, (pictures, noise), blocks, placed=placed)


def build_clip(row: Mapping[str, Any]) -> Built:
    facts, rows = row["model"], count_rows(row)
    config = transformers.CLIPConfig(
        text_config={
            "hidden_size": facts["text_width"],
            "num_hidden_layers": facts["text_layers"],
            "vocab_size": facts["vocab"],
            "_attn_implementation": "eager",
        },
        vision_config={
            "hidden_size": facts["vision_width"],
            "num_hidden_layers": facts["vision_layers"],
            "patch_size": facts["patch"],
            "_attn_implementation": "eager",
        },
    )
    net = make(transformers.CLIPModel, config)

    def learn(n: nn.Module, x: Any, pictures: Any) -> Any:
        text = n.text_projection(n.text_model(x)[0][:, -1])
        image = n.visual_projection(n.vision_model(pictures)[1])
        scores = n.logit_scale.exp() * text @ image.t()
        return as_loss(entropy(scores, torch.arange(rows, device=scores.device)))

    pictures = torch.zeros(rows, 3, facts["image"], facts["image"], device="meta")
    return Built(Step(net, learn), (tokens(rows, facts["ctx"]), pictures), name_blocks(net, "CLIPEncoderLayer"))


def build_whisper(row: Mapping[str, Any]) -> Built:
    size = row["model"]["arch"].split("-")[1]
    width, layers = {"base": (512, 6), "small": (768, 12), "medium": (1024, 24), "large": (1280, 32)}[size]
    trains = row["kind"] == "training"
    config = transformers.WhisperConfig(
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=width // 64,
        decoder_attention_heads=width // 64,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        vocab_size=51865,
        use_cache=False,
    )
    net = make(transformers.WhisperForConditionalGeneration, config)
    rows, length = count_rows(row), 128 if trains else 1
    sound = torch.zeros(rows, config.num_mel_bins, 3000, device="meta")
    blocks = name_blocks(net, "WhisperEncoderLayer") + name_blocks(net, "WhisperDecoderLayer")

    def learn(n: nn.Module, x: Any, y: Any) -> Any:
        return as_loss(entropy(n(x, decoder_input_ids=y, return_dict=False)[0], y))

    def generate(n: nn.Module, x: Any, y: Any) -> Any:
        return n(x, decoder_input_ids=y, return_dict=False)[0]

    built = Built(Step(net, learn if trains else generate), (sound, tokens(rows, length)), blocks)
    built.linear = "net.proj_out"
    built.placed.update(_place_speech(row, blocks, layers))
    return built


def _place_speech(row: Mapping[str, Any], blocks: Sequence[str], layers: int) -> Dict[str, int]:
    """Place encoder and decoder, whose embedding and projection share a weight on the IPU where the decoder begins."""
    counts = [layers // 2 if count == -1 else count for count in row.get("layers_per_ipu", ())]
    placed: Dict[str, int] = {}
    at = 0
    for ipu, count in enumerate(counts):
        if at == layers and "net.model.decoder.embed_tokens" not in placed:
            placed["net.model.decoder.embed_tokens"] = ipu
        elif count and ipu:
            placed[blocks[at]] = ipu
        at += count
    if counts:
        placed["net.proj_out"] = placed["net.model.decoder.embed_tokens"]
    return placed


def build_bart(row: Mapping[str, Any]) -> Built:
    facts, rows = row["model"], count_rows(row)
    config = transformers.BartConfig(
        d_model=facts["d_model"],
        encoder_layers=facts["encoder_layers"],
        decoder_layers=facts["decoder_layers"],
        vocab_size=facts["vocab"],
        use_cache=False,
    )
    net = make(transformers.BartForConditionalGeneration, config)
    blocks = name_blocks(net, "BartEncoderLayer") + name_blocks(net, "BartDecoderLayer")

    def generate(n: nn.Module, x: Any, y: Any) -> Any:
        # a text is read once for all beams
        with without_checks_of_values():
            states = n.model.encoder(x)[0].repeat(facts["num_beams"], 1, 1)
        return n.lm_head(n.model.decoder(y, encoder_hidden_states=states)[0])

    batch = (tokens(rows, facts["max_input"]), tokens(rows * facts["num_beams"], 1))
    return Built(Step(net, generate), batch, blocks, head="net.lm_head", linear="net.lm_head")


def without_checks_of_values() -> Any:
    """Return a context in which a model does not look for infinite values, as no static graph can."""
    return mock.patch.object(torch, "isfinite", return_value=SimpleNamespace(all=lambda: True))


def build_t5(row: Mapping[str, Any]) -> Built:
    facts, rows = row["model"], count_rows(row)
    config = transformers.MT5Config(
        d_model=facts["hidden"],
        d_kv=64,
        d_ff=facts["d_ff"],
        num_layers=facts["layers"],
        num_heads=facts["heads"],
        vocab_size=facts["vocab"],
        use_cache=False,
    )
    net = make(transformers.MT5ForConditionalGeneration, config)
    # that of mT5 is not the embedding's weight
    net.lm_head = nn.Linear(facts["hidden"], facts["vocab"], bias=False, device="meta")

    def learn(n: nn.Module, x: Any, y: Any) -> Any:
        return as_loss(entropy(n(x, decoder_input_ids=y, return_dict=False)[0], y))

    batch = (tokens(rows, facts["seq"]), tokens(rows, facts["seq"]))
    return Built(Step(net, learn), batch, name_blocks(net, "MT5Block"))


def build_speech(row: Mapping[str, Any]) -> Built:
    facts, rows = row["model"], count_rows(row)
    kind, _, task = facts["arch"].partition(" ")
    settings: Dict[str, Any] = {
        "hidden_size": facts["hidden"],
        "num_hidden_layers": facts["layers"],
        "num_attention_heads": facts["hidden"] // 64,
        "intermediate_size": 4 * facts["hidden"],
        "apply_spec_augment": False,
        "layerdrop": 0.0,
        "mask_time_prob": 0.0,
    }
    if kind == "hubert":
        net = make(transformers.HubertForSequenceClassification, transformers.HubertConfig(**settings))
        sound, labels = torch.zeros(rows, SOUND_RATE, device="meta"), tokens(rows, 1)[:, 0]
    else:
        net = make(transformers.Wav2Vec2ForCTC, transformers.Wav2Vec2Config(**settings))
        sound, labels = torch.zeros(rows, 10 * SOUND_RATE, device="meta"), tokens(rows, 499)

    def learn(n: nn.Module, x: Any, y: Any) -> Any:
        return as_loss(entropy(n(x, return_dict=False)[0], y))

    layers = name_blocks(net, "EncoderLayer")
    convolutions = name_blocks(net, "ConvLayer") if kind != "hubert" else []
    return Built(Step(net, learn), (sound, labels), [*convolutions, *layers])


_BUILDERS: Dict[str, Callable[[Mapping[str, Any]], Built]] = {
    "bart": build_bart,
    "bert": build_bert,
    "clip": build_clip,
    "efficientnet": build_efficientnet,
    "gpt2": build_gpt2,
    "hubert": build_speech,
    "mae": build_mae,
    "mt5": build_t5,
    "resnet50": build_resnet,
    "roberta": build_bert,
    "swin": build_swin,
    "vit": build_vit,
    "wav2vec2": build_speech,
    "whisper": build_whisper,
}
