"""List all codes: what can be wrong with a port, how bad it is, its name, and the page that explains it.

A slug names the bad thing, so that "allow loss-outside-forward" reads well. A code is never used again for another.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import List, Mapping, Optional, Tuple

__all__ = ["CODES", "FAMILIES", "PAGES_FOLDER", "Code", "Severity", "find_code", "read_page", "suggest_names"]


class Severity(str, Enum):
    """The severity of a finding: an error stops, a warning loses something, a note is worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Code:
    """One kind of finding: its code, the bad thing's name, its usual severity and its usual message."""

    code: str
    slug: str
    severity: Severity
    title: str


def find_code(name: str) -> Optional[Code]:
    """Find a code by its number or its slug, in any case; None when there is none.

    >>> find_code("l001").slug
    'loss-outside-forward'
    >>> find_code("loss-outside-forward").code
    'L001'
    >>> find_code("L999") is None
    True
    """
    wanted = name.strip()
    by_number = CODES.get(wanted.upper())
    return by_number or next((code for code in CODES.values() if code.slug == wanted.lower()), None)


FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        "L": "the loss",
        "C": "capturing `forward` as a static graph",
        "O": "optimizers and schedules",
        "B": "batches and datasets",
        "P": "options",
        "M": "the device's memory",
        "D": "devices and the ported model's life",
        "K": "checkpoints",
        "E": "executables and engines",
        "S": "the simulator's limits",
        "T": "benchmarks",
        "V": "a port next to plain PyTorch",
        "R": "recipes",
        "F": "data files",
        "X": "the machine, the installation, and the preflight itself",
    }
)
"""What the first letter of a code stands for, in the order of the table."""

# errors are the rule: others name their severity
_TABLE: Tuple[Tuple[str, ...], ...] = (
    ("L001", "loss-outside-forward", "the loss is computed outside `forward`"),
    ("L002", "loss-not-scalar", "the loss is not a scalar"),
    ("L003", "loss-detached", "no gradient flows from the loss to the model"),
    ("L004", "loss-missing", "the model is to be trained but has no loss"),
    ("L005", "several-final-losses", "more than one loss is final"),
    ("L006", "label-not-found", "the label is not among the arguments of the call"),
    ("L007", "wrong-output-count", "the model returns another number of values than the loss takes"),
    ("L008", "not-finite", "a loss or an output is not finite", "warning"),
    ("L009", "first-not-finite", "a value of the call stops being finite"),
    ("L010", "backward-on-host", "the backward pass is called on the host"),
    ("L011", "gradients-in-loop", "the training loop asks autograd for gradients"),
    ("L012", "graph-kept", "a graph is kept for another backward pass"),
    ("L013", "labels-returned", "labels come back from the device", "warning"),
    ("L014", "loss-arguments-refused", "the model's `forward` does not take the arguments that it is called with"),
    ("L014", "loss-arguments-refused", "the model's `forward` does not take its call's arguments"),
    ("L015", "derivative-not-on-device", "a derivative is asked for that the device does not compute"),
    ("L020", "parameter-without-gradient", "a parameter gets no gradient", "warning"),
    ("C001", "host-read", "`forward` reads a tensor's value on the host"),
    ("C002", "data-dependent-shape", "a shape depends on the values of the data"),
    ("C003", "cpu-tensor-in-forward", "a CPU tensor meets device tensors in `forward`"),
    ("C004", "move-to-host", "`forward` moves a tensor to the host"),
    ("C005", "custom-autograd-function", "`forward` uses a custom autograd function"),
    ("C006", "reassigned-state", "`forward` assigns a new tensor to a parameter or buffer"),
    ("C007", "autograd-in-forward", "`forward` calls autograd itself"),
    ("C008", "zero-size-input", "an input has no elements"),
    ("C009", "torch-too-old", "the installed torch is too old to capture a model"),
    ("C010", "printed-tensor", "`forward` prints a tensor"),
    ("C011", "factory-without-device", "`forward` makes a tensor without naming its device", "note"),
    ("C012", "unsupported-dtype", "the device has no such dtype"),
    ("C013", "operator-failed-to-trace", "an operator failed while `forward` was captured"),
    ("C014", "tensor-from-another-trace", "`forward` uses a tensor left over from another trace"),
    ("C015", "metadata-changed-in-place", "`forward` changes a tensor's shape or storage in place"),
    ("C016", "shared-memory", "two registered tensors share memory that the device would split"),
    ("C017", "unsupported-operator", "`forward` uses an operator that the device does not have"),
    ("C018", "leaky-body", "the body of a loop or branch reaches out of itself"),
    ("C019", "counter-in-forward", "`forward` writes into a buffer of integers, which is a constant", "warning"),
    ("C020", "frozen-value", "a value that Python decides is compiled in", "warning"),
    ("C021", "random-in-host-loop", "a host loop draws random numbers in both passes", "warning"),
    ("C022", "remedied-library", "code of a library is changed while the step is compiled", "note"),
    ("C023", "remedy-of-another-version", "a remedy is not for the installed version of its library", "warning"),
    ("C024", "operator-on-host", "an operator runs on the host", "warning"),
    ("C025", "replaced-operator", "an operator that the device lacks is computed by others", "note"),
    ("C026", "input-changed-in-place", "`forward` changes an input in place", "warning"),
    ("C040", "forward-fails", "`forward` fails on this batch"),
    ("C041", "partly-supported-operator", "`forward` uses an operator that the device has in part", "warning"),
    ("C042", "drawn-on-device", "the step draws random numbers on the device", "note"),
    ("C043", "state-too-wide", "a value of the model is beyond the device's 32 bits"),
    ("C044", "double-precision", "what is float64 in PyTorch is float32 on the device", "note"),
    ("C045", "written-input", "`forward` writes to an input", "note"),
    ("C046", "statistics-before-update", "running statistics are read as they were before their update", "warning"),
    ("O001", "unsupported-optimizer", "the optimizer has no counterpart on the device"),
    ("O002", "unsupported-optimizer-setting", "the device's optimizer lacks one of the optimizer's settings"),
    ("O003", "foreign-parameters", "the optimizer holds parameters that are not the model's"),
    ("O004", "optimizer-closure", "the optimizer was stepped with a closure"),
    ("O005", "optimizer-state-mismatch", "the optimizer's state does not fit the model"),
    ("O006", "scheduler-of-another-optimizer", "the scheduler drives another optimizer"),
    ("O007", "host-step-ignored", "an optimizer step on the host does not reach the device", "warning"),
    ("O008", "zero-grad-on-host", "gradients are zeroed on the host", "warning"),
    ("O009", "clipping-on-host", "gradients are clipped on the host", "warning"),
    ("O010", "loss-scaling-on-host", "the loss is scaled on the host", "warning"),
    ("O011", "accumulation-by-hand", "gradients are accumulated by hand", "warning"),
    ("O012", "optimizer-not-handed-over", "the optimizer is not the one that the device has"),
    ("O013", "schedule-on-host", "the schedule does not reach the device", "warning"),
    ("O014", "several-optimizers", "the training has more than one optimizer", "warning"),
    ("O015", "update-by-hand", "weights are updated by hand"),
    ("O016", "synchronisation-by-hand", "the loop chooses when gradients are synchronised", "warning"),
    ("B001", "batch-shape-changed", "the batch has another shape than the compiled one"),
    ("B002", "batch-dtype-changed", "the batch has another dtype than the compiled one"),
    ("B003", "batch-arguments-changed", "the batch has other arguments than the compiled one"),
    ("B004", "batch-not-divisible", "the batch does not divide into micro-batches"),
    ("B005", "dataset-too-small", "the dataset is smaller than one call's batch"),
    ("B006", "samples-dropped", "samples at the end of the dataset are dropped in every epoch", "warning"),
    ("B007", "ignore-label-mismatch", "the padding's label is not the one the loss ignores"),
    ("B008", "padding-enters-batchnorm", "padded samples enter the BatchNorm statistics", "warning"),
    ("B009", "tensor-on-another-device", "a tensor of the batch is on another device"),
    ("B010", "drop-last-undecided", "the last batch is short and nothing says what becomes of it"),
    ("B011", "value-too-wide", "a value of the batch is beyond the device's 32 bits"),
    ("B012", "no-tensor", "a value of the batch is no tensor"),
    ("B013", "value-out-of-range", "a label or an index is beyond what it chooses from"),
    ("B014", "host-loader", "batches come from a loader that knows nothing of the device", "warning"),
    ("B015", "sampler-for-processes", "a sampler deals out the data to processes", "warning"),
    ("B016", "schedule-by-loader-length", "a schedule counts the batches of a loader", "warning"),
    ("B017", "augmentation-without-workers", "random augmentation runs in the training process", "warning"),
    ("B018", "ragged-batch", "batches are as long as their longest sample", "warning"),
    ("B019", "state-between-batches", "a state goes from one batch to the next", "warning"),
    ("B020", "data-from-model", "the next input depends on the model's output", "warning"),
    ("B021", "loop-left-early", "the loop over batches is left early", "note"),
    ("B022", "comparison-for-assignment", "a comparison stands where an assignment is meant"),
    ("B030", "shapes-vary", "the batches of an epoch have several shapes", "warning"),
    ("B031", "samples-repeated", "samples are seen more than once in an epoch", "warning"),
    ("B032", "costly-padding", "much of what is computed is padding", "note"),
    ("B033", "loader-failed", "the loader fails while it is read"),
    ("P001", "precision-not-applicable", "the backend cannot apply this precision"),
    ("P002", "invalid-option", "an option has a value it cannot have"),
    ("P003", "weights-converted", "the weights were converted to another dtype", "note"),
    ("P004", "engine-not-available", "the chosen engine is not available on this machine"),
    ("P005", "unknown-option-environment", "an environment variable has a value it cannot have"),
    ("P006", "bfloat16-not-on-ipu", "the model computes in bfloat16, which no IPU has", "note"),
    ("P007", "unknown-module", "an option names a module that the model does not have"),
    ("P008", "pipeline-not-filled", "a step has too few micro-batches to fill its pipeline"),
    ("P009", "stages-out-of-order", "stages begin in another order than the options say"),
    ("P010", "weight-on-two-ipus", "a weight is used on more than one IPU"),
    ("P011", "statistics-of-one-replica", "running statistics are those of the first replica", "note"),
    ("P012", "precision-not-applied", "a precision is asked for and not applied", "warning"),
    ("P013", "autocast-on-host", "autocast chooses the precision on the host", "warning"),
    ("P014", "unknown-setting", "a setting is read that the configuration does not have"),
    ("P020", "beyond-half", "a value is beyond what float16 can hold", "warning"),
    ("P021", "lost-in-half", "gradients are too small for float16", "warning"),
    ("M001", "does-not-fit", "the step does not fit into the device's memory", "warning"),
    ("M002", "memory-not-predictable", "the memory of the step cannot be predicted"),
    ("M003", "wrong-machine-file", "a file does not describe a machine"),
    ("M004", "not-reducible", "no smaller model with the same operators can be made"),
    ("D001", "no-ipu-found", "no IPU was found"),
    ("D002", "running-on-simulator", "no IPU was found: running on the CPU simulator", "note"),
    ("D003", "executor-cannot-move", "a ported model cannot be moved or cast"),
    ("D004", "not-compiled", "the model has not been compiled yet"),
    ("D005", "mode-frozen", "the model was changed after its step was compiled", "warning"),
    ("D006", "no-labels-given", "a training call needs labels"),
    ("D007", "destroyed", "the ported model has been destroyed"),
    ("D008", "instances-out-of-reach", "there is no way to the other instances"),
    ("D009", "no-gradients-kept", "the port keeps its gradients on the device"),
    ("D010", "unguarded-import", "the import of PopTorch fails on machines that do not have it", "warning"),
    ("D011", "swallowed-import", "a failed import is swallowed, and its name used"),
    ("D012", "wrapped-for-gpus", "the model is wrapped for GPUs", "warning"),
    ("D013", "cuda-only", "the code needs CUDA", "warning"),
    ("D014", "validation-on-training-executor", "validation runs through the training executor", "warning"),
    ("D015", "bare-model-called", "the bare model is called where the port should be"),
    ("D016", "no-warm-up", "the compilation is part of what is timed", "warning"),
    ("D017", "options-of-one-instance", "each instance has options that know nothing of the others"),
    ("D018", "processes-for-gpus", "processes are joined for GPUs", "warning"),
    ("D019", "unbound-name", "a name is used on a path that never sets it"),
    ("D020", "read-every-step", "the host reads a result in every step", "note"),
    ("D021", "freezing-lost", "a frozen parameter would be trained"),
    ("K001", "damaged-checkpoint", "the checkpoint is damaged"),
    ("K002", "foreign-checkpoint", "the checkpoint belongs to another model"),
    ("K003", "checkpoint-skipped", "the newest checkpoint is damaged, and an earlier one is used", "warning"),
    ("K004", "inexact-resume", "the training does not go on exactly as it would have", "warning"),
    ("K005", "pickled-model", "a checkpoint holds the whole model", "warning"),
    ("K006", "pickled-port", "a checkpoint holds the ported model"),
    ("K007", "file-of-every-rank", "every process writes the same file", "warning"),
    ("K008", "checkpoint-not-written", "the checkpoint cannot be written"),
    ("K009", "checkpoint-folder-taken", "two trainings write their checkpoints into one folder"),
    ("E001", "compile-failed", "the step could not be compiled, and is replayed", "warning"),
    ("E002", "compile-timeout", "compiling the step took too long, and it is replayed", "warning"),
    ("E003", "step-not-compilable", "the step cannot be compiled, and is replayed", "note"),
    ("E004", "cache-unusable", "the cache of executables cannot be used", "warning"),
    ("E005", "damaged-executable", "an executable on disk cannot be used", "warning"),
    ("E006", "recompiled", "the step was compiled again, because something changed", "note"),
    ("E007", "parity-failed", "a compiled step does not compute what replay computes", "warning"),
    ("E008", "optimizer-changed", "the compiled step does not fit a call", "warning"),
    ("E009", "foreign-executable", "the executables are for another machine or version"),
    ("E010", "unknown-executable", "there is no such executable"),
    ("E011", "engine-changed", "the training goes on with another engine", "note"),
    ("E012", "engine-not-sought", "no faster engine was looked for", "note"),
    ("E013", "torch-part-missing", "this torch lacks a part that is used", "warning"),
    ("E014", "untested-torch", "this torch is newer than any that was tested", "note"),
    ("E015", "compilers-not-installed", "the compilers are not installed, and the step is replayed", "note"),
    ("E020", "unknown-target", "there is no such target"),
    ("E021", "target-failed", "loading the target failed"),
    ("E022", "incomplete-target", "the target gives no model with a batch"),
    ("E023", "damaged-step-file", "the step file is damaged"),
    ("E024", "foreign-step-file", "the step file is of another version"),
    ("E025", "another-batch", "the step was exported for another batch"),
    ("E026", "unknown-computation-order", "there is no computation order of this name"),
    ("E027", "not-exportable", "the step has a part that no file can hold"),
    ("E028", "unknown-graph-format", "there is no graph format of this name"),
    ("E029", "unwritable-file", "the file cannot be written"),
    ("S001", "not-simulated", "the simulator does not simulate this part of PopTorch"),
    ("T001", "invalid-benchmark-file", "the file of benchmarks has something in it that it cannot have"),
    ("T002", "unknown-benchmark", "there is no such benchmark"),
    ("T003", "losses-differ", "the ported model trains something else than the eager one"),
    ("T004", "device-not-proven", "the device did not count the calls that were measured"),
    ("T005", "unreadable-results", "the file holds no results to compare with or go on with"),
    ("T006", "results-of-another-machine", "the file holds results of another machine or version"),
    ("T007", "silent-cluster", "the cluster that is to run a sweep does not answer"),
    ("T008", "results-in-use", "another run writes its results into the same file"),
    ("V001", "training-differs", "the port trains something else than plain PyTorch"),
    ("V002", "not-comparable", "the two trainings cannot be compared"),
    ("V003", "not-certified", "the certificate of a port is not PASS"),
    ("V004", "unreadable-certificate", "the file is no certificate that can be read"),
    ("V005", "gradient-differs", "a gradient is not the derivative"),
    ("V006", "not-differentiable", "the function has a kink where it is checked"),
    ("V007", "gradient-not-checkable", "the gradient cannot be checked"),
    ("V008", "signature-not-valid", "the certificate is not signed by who it should be"),
    ("V009", "not-bisectable", "the history cannot be bisected"),
    ("R001", "unknown-recipe", "there is no recipe of this name"),
    ("R002", "destination-exists", "the destination exists already"),
    ("R003", "recipe-step-failed", "a step of the recipe failed"),
    ("R004", "missing-recipe-part", "the recipe lacks a part"),
    ("F001", "damaged-data-file", "a data file is damaged or of another format"),
    ("F002", "missing-data-file", "a data file is missing"),
    ("X001", "missing-extra", "an optional dependency is not installed"),
    ("X002", "unparsable-source", "a source file does not parse"),
    ("X003", "source-of-python-two", "a source file is written for Python 2"),
    ("X004", "unreadable-source", "a source file cannot be read"),
    ("X005", "too-many-sources", "the folder holds more source files than are read", "warning"),
    ("X006", "unused-allowance", "a comment allows what was not found", "note"),
    ("X007", "unusable-baseline", "the baseline of known findings cannot be used"),
    ("X008", "analysis-failed", "the analysis of a program failed", "warning"),
    ("X009", "file-changed", "a file has changed since it was read"),
    ("X010", "python-too-old", "this Python is too old"),
    ("X011", "broken-package", "a package that everything needs cannot be used"),
    ("X012", "broken-poptorch", "the installed PopTorch cannot be used"),
    ("X013", "sdk-mismatch", "the Poplar SDK is not enabled as PopTorch needs it", "warning"),
    ("X014", "ipus-out-of-reach", "the tools of the IPUs do not answer, or show none"),
    ("X015", "partition-incomplete", "the variables of the IPUs' partition do not belong together"),
    ("X016", "little-room", "the disk of the cache has little room left", "warning"),
    ("X017", "little-shared-memory", "there is little shared memory", "warning"),
    ("X018", "few-open-files", "a process may open few files", "warning"),
    ("X019", "launcher-unclear", "the launcher's variables contradict each other"),
    ("X020", "clock-off", "the clock is not right", "warning"),
    ("X021", "compiler-missing", "no C++ compiler works here", "warning"),
    ("X022", "too-many-threads", "torch would start more threads than there are cores", "warning"),
    ("X023", "other-release", "this PopTorch is not the newest that ports are tested over", "note"),
    ("X024", "import-not-found", "an import of the program's own was not found, and not read", "note"),
    ("X025", "no-training", "nothing in the program trains a model"),
    ("X026", "uncommitted-changes", "a file to be converted has changes that are not committed"),
    ("X027", "conversion-under-way", "another conversion writes into this folder"),
)

CODES: Mapping[str, Code] = MappingProxyType(
    {
        code: Code(code, slug, Severity(severity[0]) if severity else Severity.ERROR, title)
        for code, slug, title, *severity in _TABLE
    }
)
"""Every code of the project, in the order of the table; read-only."""


PAGES_FOLDER = Path(__file__).with_name("pages")
"""Where the pages lie, each named after its code."""

# the share of letters in common from which on two names are taken for one mistyped
_CLOSE = 0.6


def read_page(code: str) -> str:
    """Read the page of a code as Markdown.

    >>> read_page("L001").splitlines()[0]
    '# L001: loss-outside-forward'
    """
    return (PAGES_FOLDER / f"{code}.md").read_text(encoding="utf-8")


def suggest_names(name: str) -> List[str]:
    """Suggest the codes and slugs that a user who wrote `name` may have meant, at most five.

    >>> suggest_names("loss-outside-fwd")
    ['loss-outside-forward']
    """
    wanted = name.strip().lower()
    names = [known for code in CODES.values() for known in (code.code, code.slug)]
    likeness = {known: difflib.SequenceMatcher(None, wanted, known.lower()).ratio() for known in names}
    close = sorted((known for known in names if likeness[known] >= _CLOSE), key=lambda known: -likeness[known])
    containing = [known for known in names if wanted and wanted in known.lower()]
    return list(dict.fromkeys(close + containing))[:5]
