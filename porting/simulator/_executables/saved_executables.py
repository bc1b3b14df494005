"""Save an executor's executable, arguments, options, model and states in one file, and load them with `loadExecutable`.

The executable is the graph of the captured step. Loading traces the model again, as PopTorch does, and compares.
"""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from ...capture import StepGraph
from .. import optim
from .._args_parser import CompiledSignature
from .._device.session import DeviceSession
from .._graph.graph_files import make_graph_record
from .._logging import logger
from .._poptorch_data import PoptorchData, parse
from .._version import VERSION
from ..errors import Error, createPoptorchError
from .executable_file import FileName, importPoptorchMetadataFromFile, read_graph_record, write_executable_file

__all__ = ["FileName", "load_executable", "read_metadata", "save_executable"]

_DEFAULT_FILE_NAME = "model.poptorch"
# options that decide the shapes of a traced graph
_COUNTS = ("device_iterations", "replication_factor", "gradient_accumulation", "input_group_size")


def save_executable(session: DeviceSession, filename: FileName, *, export_model: bool, save_rng_state: bool) -> None:
    """Write the file of an executor's `save`, with the trained values, which are fetched first if there is a device."""
    # what cannot be saved is said before a folder is made
    compiled = session.require_compiled()
    path = Path(filename)
    if path.is_dir():
        logger.warning("save(): %s is a directory, saving model to %s", path, path / _DEFAULT_FILE_NAME)
        path = path / _DEFAULT_FILE_NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise AssertionError(f"Destination folder {path.parent} is not a directory") from None
    options = session.options
    data = PoptorchData(
        VERSION,
        session.signature,
        options,
        random_seed=options.random_seed if options.exists("random_seed") else None,
        rng_state=session.read_random_state() if save_rng_state else None,
    )
    if export_model:
        # without these the file serves only an executor of the same model
        data.training = session.is_training
        data.model = session.user_model
        data.optimizer = session.optimizer.host
        if isinstance(data.optimizer, optim.Optimizer):
            # this one fetches the device's state: ask only then whether there is one
            state = data.optimizer.state_dict()
            data.optimizer_state = state if data.optimizer.has_state() else None
        data.per_replica_params = session.per_replica
    write_executable_file(path, make_graph_record(compiled.graph), data.serialize())


def load_executable(session: DeviceSession, filename: FileName, data: Optional[PoptorchData] = None) -> None:
    """Take over a saved executable: trace the session's model with the saved arguments, and attach.

    `data` are the metadata of the file if they were read already. Raises `poptorch.Error` for a file that cannot be
    used and for one of another model; the session keeps the executable that it has then.
    """
    # PopTorch's `load` says AssertionError here, and `loadExecutable` its own error
    if data is None:
        try:
            data = read_metadata(filename)
        except AssertionError as error:
            raise createPoptorchError(str(error)) from None
    signature: CompiledSignature = data.executable_inputs
    record = read_graph_record(filename)

    # before the executor gives up what it has: a file of another model must leave it usable
    def check(graph: StepGraph) -> None:
        traced = make_graph_record(graph)
        differences = [key for key in record if record[key] != traced.get(key)]
        if differences:
            raise createPoptorchError(
                f"Invalid file {filename}: it holds the executable of another model than this one (different: "
                f"{', '.join(differences)})"
            )

    try:
        session.compile(signature.make_example(), check_graph=check)
    except Error as error:
        if data.options is not None:
            # counts of micro-batches decide the shapes of a graph
            saved, present = data.options.toDict(), session.options.toDict()
            differ = [key for key in _COUNTS if saved.get(key) != present.get(key)]
            if differ:
                others = ", ".join(f"{key} was {saved.get(key)} and is {present.get(key)}" for key in differ)
                error.message += f"\nThe options are not those that the file was saved with: {others}"
                error.args = (f"{error}\nThe options are not those that the file was saved with: {others}",)
        raise


def read_metadata(filename: FileName) -> PoptorchData:
    """Return the metadata of a file; AssertionError "Invalid file ..." for those of another version."""
    logger.debug("Loading metadata from %s", filename)
    serialized = importPoptorchMetadataFromFile(filename)
    try:
        return parse(serialized, VERSION)
    except AssertionError as error:
        raise AssertionError(f"Invalid file {filename}: {error}") from None
