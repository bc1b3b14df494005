"""Results of calls of PyTorch's libraries: one table of qualified names, as data."""

from __future__ import annotations

import functools
import re
from typing import Dict, FrozenSet, Mapping, Optional, Tuple

from porting.source.facts import Kind

__all__ = [
    "NO_GRADIENT_CONTEXTS",
    "PASSING",
    "RETURNING_SELF",
    "SEQUENCES",
    "TENSOR_HOST_METHODS",
    "TENSOR_KINDS",
    "TENSOR_METHODS",
    "find_asking",
    "find_class_kind",
    "find_method_kind",
    "find_result_kinds",
    "is_host_name",
    "is_known_library",
    "is_of_python",
]

TENSOR_KINDS: FrozenSet[Kind] = frozenset({Kind.LOSS, Kind.OUTPUT, Kind.BATCH, Kind.TENSOR})

# Patterns of whole qualified names and what a call of such a name returns, several kinds for a tuple; the first counts.
_RESULTS: Tuple[Tuple[str, Tuple[Kind, ...]], ...] = (
    # ports
    (r"poptorch\.(trainingModel|inferenceModel)|porting(\.api)?(\.\w+)?\.to_ipu", (Kind.PORT,)),
    (r"(poptorch|porting\.simulator)\.(trainingModel|inferenceModel)", (Kind.PORT,)),
    (r"(poptorch|porting\.simulator)\.(DataLoader|AsynchronousDataAccessor)", (Kind.PORT_LOADER,)),
    (r"poptorch_geometric(\.\w+)*\.\w*Loader", (Kind.PORT_LOADER,)),
    (r"(poptorch|porting\.simulator|popdist\.poptorch)\.Options", (Kind.OPTIONS,)),
    (r"porting(\.\w+)*\.PortOptions", (Kind.OPTIONS,)),
    (r"(poptorch|porting\.simulator)\.optim\.[A-Z]\w+", (Kind.OPTIMIZER,)),
    (r"(poptorch|porting\.simulator)\.identity_loss", (Kind.LOSS,)),
    (r"porting(\.\w+)*\.LossInForward", (Kind.MODULE,)),
    (r"porting(\.\w+)*\.FixedBatchDataset", (Kind.DATASET,)),
    (r"porting(\.\w+)*\.SchedulerBridge", (Kind.SCHEDULER,)),
    (r"porting(\.\w+)*\.load_checkpoint", (Kind.STATE,)),
    # losses
    (r"torch(\.ao)?\.nn\.(\w+\.)*_?\w*Loss\d?d?", (Kind.CRITERION,)),
    (
        r"(timm|monai|kornia|segmentation_models_pytorch|pytorch_metric_learning)\.(\w+\.)*\w*(Loss|CrossEntropy)\w*",
        (Kind.CRITERION,),
    ),
    (r"(timm|monai|kornia)\.(\w+\.)*losses?\.[A-Z]\w+", (Kind.CRITERION,)),
    (r"torch(vision)?\.(\w+\.)*(\w+_loss|cross_entropy|binary_cross_entropy\w*|kl_div)", (Kind.LOSS,)),
    (r"(torchvision|monai|kornia|ignite)\.(\w+\.)*\w+_loss\w*", (Kind.LOSS,)),
    (r"ignite\.engine\.create_\w+", (Kind.OTHER,)),
    # optimizers and what goes with them
    (r"torch\.optim\.(\w+\.)*swa_utils\.AveragedModel", (Kind.MODULE,)),
    (r"torch\.optim\.(\w+\.)*(swa_utils\.SWALR|lr_scheduler\.[A-Z]\w+)", (Kind.SCHEDULER,)),
    (r"torch\.optim\.(\w+\.)*[A-Z]\w+", (Kind.OPTIMIZER,)),
    (r"torch\.distributed\.optim\.[A-Z]\w+", (Kind.OPTIMIZER,)),
    (r"transformers(\.\w+)*\.(get_\w*schedule\w*|get_scheduler)", (Kind.SCHEDULER,)),
    (r"timm\.scheduler(\.\w+)*\.create_scheduler\w*", (Kind.SCHEDULER, Kind.OTHER)),
    (r"timm\.scheduler(\.\w+)*\.[A-Z]\w+|warmup_scheduler\.[A-Z]\w+", (Kind.SCHEDULER,)),
    (r"timm\.optim(\.\w+)*\.(create_optimizer\w*|[A-Z]\w+)", (Kind.OPTIMIZER,)),
    (r"transformers(\.\w+)*\.(AdamW|Adafactor)|(apex|bitsandbytes)\.(\w+\.)*optim\w*\.[A-Z]\w+", (Kind.OPTIMIZER,)),
    (r"(lion_pytorch|torch_optimizer|apex\.optimizers|deepspeed\.ops\.adam)\.[A-Z]\w+", (Kind.OPTIMIZER,)),
    (r"torch\.(cuda\.|npu\.|xpu\.)?amp\.(\w+\.)*GradScaler|torch\.GradScaler", (Kind.SCALER,)),
    # data
    (r"torch\.utils\.data(\.\w+)*\.\w*Sampler|torch\.utils\.data\.distributed\.DistributedSampler", (Kind.SAMPLER,)),
    (r"torch\.utils\.data(\.\w+)*\.(DataLoader2?|DataLoader)|torchdata\.\w+\.\w*DataLoader\w*", (Kind.LOADER,)),
    (
        r"(timm\.data(\.\w+)*\.create_loader|torch_geometric\.(\w+\.)*\w*Loader|monai\.data\.\w*DataLoader)",
        (Kind.LOADER,),
    ),
    (r"timm\.data(\.\w+)*\.create_dataset|monai\.data\.\w*Dataset", (Kind.DATASET,)),
    (r"torch\.utils\.data(\.\w+)*\.(\w*Dataset|Subset|random_split)", (Kind.DATASET,)),
    (r"(torchvision|torchaudio|torchtext)\.datasets(\.\w+)*\.\w+|datasets\.load_(dataset|from_disk)", (Kind.DATASET,)),
    # modules
    (r"torch\.(\w+\.)*(DataParallel|DistributedDataParallel|FullyShardedDataParallel)", (Kind.MODULE,)),
    (
        r"(apex|fairscale|deepspeed)\.(\w+\.)*(DistributedDataParallel|FullyShardedDataParallel|DataParallel)",
        (Kind.MODULE,),
    ),
    (r"torch\.(compile|jit\.(script|trace|load)|hub\.load|fx\.symbolic_trace|export\.export)", (Kind.MODULE,)),
    (r"torch\.nn\.utils\.(weight_norm|spectral_norm|parametrizations\.\w+)", (Kind.MODULE,)),
    (r"torch\.nn\.Parameter|torch\.nn\.parameter\.\w*Parameter|torch\.nn\.Buffer", (Kind.TENSOR,)),
    (r"torch(\.ao)?\.nn\.(?!functional\.|init\.|utils\.)(\w+\.)*[A-Z]\w+", (Kind.MODULE,)),
    (
        r"torchvision\.(models|ops)(\.\w+)*\.(?!\w*Weights)([a-z]\w*\d\w*|[A-Z]\w+|get_model|alexnet|googlenet)",
        (Kind.MODULE,),
    ),
    (r"torchvision\.models(\.\w+)*\.(?!get_|list_)\w+", (Kind.MODULE,)),
    (r"timm\.(create_model|models\.(\w+\.)*(create_model|[a-z]\w*\d\w*|[A-Z]\w+))", (Kind.MODULE,)),
    (
        r"transformers(\.\w+)*\.\w*Tokenizer\w*\.\w+|transformers(\.\w+)*\.\w*(Processor|FeatureExtractor|Config)\.\w+",
        (Kind.OTHER,),
    ),
    (
        r"transformers(\.\w+)*\.(AutoModel\w*|\w+Model|\w+For[A-Z]\w+|\w+HeadModel|\w+PreTrainedModel)(\.from_\w+|\._from_\w+)?",
        (Kind.MODULE,),
    ),
    (
        r"(efficientnet_pytorch|segmentation_models_pytorch|pretrainedmodels|peft|monai\.networks|torch_geometric\.nn|encoding|detectron2\.modeling)\.(\w+\.)*(get_peft_model|build_model|[A-Z]\w+(\.from_\w+)?)",
        (Kind.MODULE,),
    ),
    (r"torch\.nn\.parallel\.data_parallel", (Kind.OUTPUT,)),
    # states, devices, writers
    (
        r"torch\.load|safetensors\.torch\.load_file|torch\.utils\.model_zoo\.load_url|torch\.hub\.load_state_dict_from_url",
        (Kind.STATE,),
    ),
    (r"torch\.device|torch\.cuda\.current_device", (Kind.DEVICE,)),
    (
        r"(torch\.utils\.tensorboard|tensorboardX)(\.\w+)*\.SummaryWriter|wandb\.(init|wandb_sdk\.\w+)|(builtins|io|codecs|gzip)\.open",
        (Kind.WRITER,),
    ),
    (
        r"logging\.(\w+\.)?\w*FileHandler|csv\.(writer|DictWriter)|h5py\.File|mlflow\.start_run|neptune\.init\w*|aim\.Run|comet_ml\.Experiment",
        (Kind.WRITER,),
    ),
    # tensors made of nothing
    (
        r"torch\.(tensor|as_tensor|from_numpy|zeros|ones|empty|full|eye|arange|range|linspace|logspace|randn?|randint|randperm|normal|multinomial|bernoulli|complex|sparse_\w+_tensor)(_like)?",
        (Kind.TENSOR,),
    ),
    (r"torch\.(\w+\.)?(Float|Long|Int|Half|Double|Byte|Bool)?Tensor|torch\.autograd\.Variable", (Kind.TENSOR,)),
)
_COMPILED = tuple((re.compile(pattern), kinds) for pattern, kinds in _RESULTS)


@functools.lru_cache(maxsize=8192)
def find_result_kinds(name: str) -> Tuple[Kind, ...]:
    """Find what a call of a qualified name returns; nothing where the table does not say.

    >>> find_result_kinds("torch.optim.SGD")
    (<Kind.OPTIMIZER: 'optimizer'>,)
    """
    return next((kinds for pattern, kinds in _COMPILED if pattern.fullmatch(name)), ())


_CLASSES: Tuple[Tuple[str, Kind], ...] = (
    (r"(.+\.)?\w*DataModule", Kind.OTHER),
    (r"(.+\.)?_?\w*Loss", Kind.CRITERION),
    (
        r"(.+\.)?(Lightning)?(Data)?Module|(.+\.)?Lightning\w*Module|(.+\.)?\w*PreTrainedModel|(.+\.)?ModuleList|(.+\.)?Sequential",
        Kind.MODULE,
    ),
    (r"torch\.utils\.data\.(\w+\.)*\w*Sampler", Kind.SAMPLER),
    (
        r"(torch|torchvision|torch_geometric|datasets|monai)\.(\w+\.)*\w*Dataset|torchvision\.datasets\.\w+|torchvision\.datasets\.\w+\.\w+",
        Kind.DATASET,
    ),
    (r"torch\.optim\.(\w+\.)*(_?LRScheduler|lr_scheduler\.\w+)", Kind.SCHEDULER),
    (r"torch\.optim\.(\w+\.)*[A-Z]\w+", Kind.OPTIMIZER),
    (r"torch\.utils\.data\.(\w+\.)*DataLoader", Kind.LOADER),
    (r"(torch\.nn|torchvision\.models|timm\.models|timm\.layers|transformers)\.(\w+\.)*[A-Z]\w+", Kind.MODULE),
)
_COMPILED_CLASSES = tuple((re.compile(pattern), kind) for pattern, kind in _CLASSES)


@functools.lru_cache(maxsize=4096)
def find_class_kind(name: str) -> Optional[Kind]:
    """Find what an instance of a class is that derives from a library's class of this name.

    >>> find_class_kind("torch.nn.Module")
    <Kind.MODULE: 'module'>
    """
    if name.partition(".")[0] in _OTHER_FRAMEWORKS:
        return None
    return next((kind for pattern, kind in _COMPILED_CLASSES if pattern.fullmatch(name)), None)


_OTHER_FRAMEWORKS = frozenset(
    {"flax", "haiku", "equinox", "tensorflow", "keras", "paddle", "mxnet", "mindspore", "jax"}
)


_MODULE_METHODS = {
    "parameters": Kind.PARAMETERS,
    "named_parameters": Kind.PARAMETERS,
    "buffers": Kind.TENSOR,
    "state_dict": Kind.STATE,
    "optimizerState": Kind.STATE,
    "children": Kind.MODULE,
    "modules": Kind.MODULE,
    "get_submodule": Kind.MODULE,
    "get_encoder": Kind.MODULE,
    "get_decoder": Kind.MODULE,
    "generate": Kind.OUTPUT,
    "training_step": Kind.LOSS,
}
_METHODS: Mapping[Kind, Mapping[str, Kind]] = {
    Kind.MODULE: _MODULE_METHODS,
    Kind.CRITERION: _MODULE_METHODS,
    Kind.PORT: {
        **_MODULE_METHODS,
        "inference": Kind.PORT,
        "scheduler": Kind.SCHEDULER,
        "dataloader": Kind.PORT_LOADER,
        "DataLoader": Kind.PORT_LOADER,
    },
    Kind.OPTIMIZER: {"state_dict": Kind.STATE},
    Kind.SCHEDULER: {"state_dict": Kind.STATE},
    Kind.SCALER: {"state_dict": Kind.STATE, "scale": Kind.LOSS},
    Kind.DATASET: {
        "shuffle": Kind.DATASET,
        "map": Kind.DATASET,
        "select": Kind.DATASET,
        "filter": Kind.DATASET,
        "train_test_split": Kind.DATASET,
        "with_format": Kind.DATASET,
        "remove_columns": Kind.DATASET,
    },
}


def find_method_kind(kind: Kind, method: str) -> Optional[Kind]:
    """Find what a method of a thing of this kind returns; None where the table does not say."""
    return _METHODS.get(kind, {}).get(method)


RETURNING_SELF = frozenset(
    {"to", "cuda", "cpu", "half", "float", "double", "bfloat16", "train", "eval", "requires_grad_", "type"}
    | {"share_memory", "apply", "to_empty", "ipu", "xpu", "npu", "to_bettertransformer", "compile_", "set_epoch"}
)
"""Methods of modules, ports and optimizers that return what they are called on."""

TENSOR_HOST_METHODS = frozenset(
    {"item", "tolist", "numpy", "size", "dim", "numel", "ndimension", "data_ptr", "stride", "storage_offset"}
    | {"backward", "get_device", "element_size", "nelement", "register_hook", "keys", "__len__", "result_type"}
)
"""Methods of tensors that return no tensor."""

_TENSOR_HOST_NAMES = frozenset({"shape", "dtype", "device", "ndim", "requires_grad", "grad_fn", "layout", "names"})


def is_host_name(name: str) -> bool:
    """Tell an attribute or method of tensors, or a function of torch's, that gives no tensor and reads none.

    >>> is_host_name("is_xpu"), is_host_name("numel"), is_host_name("isnan"), is_host_name("is_nonzero")
    (True, True, False, False)
    """
    is_question = name.startswith("is_") and name != "is_nonzero"
    return is_question or name in _TENSOR_HOST_NAMES or name in TENSOR_HOST_METHODS


TENSOR_METHODS = frozenset(
    "abs all amax amin any argmax argmin bool clamp clone count_nonzero cpu cross cumsum detach diff div dot"
    " double eq exp flatten float floor ge gt half int isfinite isinf isnan le log logical_and logical_not"
    " logical_or long lt matmul max mean median min mm mul ne neg norm permute pow prod ravel relu reshape round"
    " sigmoid softmax sqrt square squeeze std sub sum tanh trace transpose trunc unique unsqueeze var view".split()
)
"""Methods that only tensors have, or arrays: of what they are called on nothing else need be known."""

_ASKING: Tuple[Tuple[str, str], ...] = (
    (r"\.(item|tolist|numpy|is_nonzero|equal|allclose|__(bool|int|float|index)__)", "method"),
    (r"builtins\.(int|float|bool|complex|range|slice|hex|oct|bin|chr)|math\.\w+|numpy\.(\w+\.)*\w+", "number"),
    (r"torch\.(is_nonzero|equal|allclose|zeros|ones|empty|rand|randn|eye|arange|linspace|full)", "number"),
    (r"\.(repeat|expand|narrow|new_(zeros|ones|empty|full)|topk|unflatten|reshape)", "number of a tensor"),
    (r"builtins\.(any|all|min|max|sorted)", "elements"),
    (r"torch\.(tensor|Tensor|FloatTensor|LongTensor)", "list"),
    (r"builtins\.(str|repr|format|ascii|print)|\.format", "text"),
)
_COMPILED_ASKING = tuple((re.compile(pattern), asked) for pattern, asked in _ASKING)


@functools.lru_cache(maxsize=8192)
def find_asking(name: str) -> str:
    """Find what a call of this name asks of tensors in Python; empty where it asks nothing.

    >>> find_asking("builtins.max"), find_asking(".item"), find_asking("torch.mean")
    ('elements', 'method', '')
    """
    return next((asked for pattern, asked in _COMPILED_ASKING if pattern.fullmatch(name)), "")


NO_GRADIENT_CONTEXTS = frozenset(
    {"torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad", "torch.autograd.inference_mode"}
    | {"torch.autograd.grad_mode.no_grad", "torch.autograd.grad_mode.inference_mode"}
)

SEQUENCES: Mapping[str, str] = {
    "torch.nn.Sequential": "chain",
    "torch.nn.ModuleList": "list",
    "torch.nn.ModuleDict": "dict",
}
"""Modules that hold modules: one that calls them one after the other, and those that are gone through."""

# What goes through what it is given, with the number of the argument.
PASSING: Dict[str, int] = {
    "tqdm.tqdm": 0,
    "tqdm.auto.tqdm": 0,
    "tqdm.notebook.tqdm": 0,
    "tqdm.std.tqdm": 0,
    "tqdm.autonotebook.tqdm": 0,
    "tqdm.tqdm_notebook": 0,
    "tqdm.rich.tqdm": 0,
    "rich.progress.track": 0,
    "fastprogress.progress_bar": 0,
    "fastprogress.master_bar": 0,
    "progressbar.progressbar": 0,
    "builtins.iter": 0,
    "builtins.list": 0,
    "builtins.tuple": 0,
    "builtins.reversed": 0,
    "builtins.sorted": 0,
    "builtins.set": 0,
    "itertools.islice": 0,
    "itertools.cycle": 0,
    "itertools.chain": 0,
    "itertools.takewhile": 1,
    "copy.copy": 0,
    "torch.nn.utils.clip_grad_norm_": -1,
}

_OF_TORCH = frozenset(
    {"torch", "torchvision", "porting", "poptorch", "accelerate", "lightning", "pytorch_lightning", "transformers"}
    | {"ignite", "timm", "popdist", "torchmetrics", "deepspeed", "tokenizers", "datasets", "evaluate", "torchaudio"}
)
_OF_PYTHON = frozenset(
    {"builtins", "numpy", "math", "os", "random", "time", "json", "pandas", "re", "argparse", "pathlib", "sklearn"}
    | {"datetime", "collections", "itertools", "sys", "csv", "pickle", "yaml", "matplotlib", "scipy", "cv2", "PIL"}
    | {"tqdm", "rich", "gym", "gymnasium", "logging", "subprocess", "threading", "queue", "typing", "functools"}
)


def is_of_python(name: str) -> bool:
    """Tell a name of Python's own libraries, or of those that know nothing of torch.

    >>> is_of_python("numpy.random.rand"), is_of_python("torch.nn")
    (True, False)
    """
    return name.partition(".")[0] in _OF_PYTHON


def is_known_library(name: str) -> bool:
    """Tell a name of a library of which is known what its classes are.

    >>> is_known_library("torch.nn.Linear"), is_known_library("src.networks.UNet")
    (True, False)
    """
    return name.partition(".")[0] in _OF_TORCH or is_of_python(name)
