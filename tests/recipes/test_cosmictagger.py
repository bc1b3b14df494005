"""The ported CosmicTagger has none of the sixteen defects (D1 to D16) of the port that was published."""

from __future__ import annotations

import ast
import copy
import dataclasses
import importlib
import subprocess
import sys
from typing import Any, Iterator, List, Tuple

import pytest
import torch

import porting
from porting.models import uresnet2d, uresnet3d
from porting.recipe_chain import RecipeStep, find_recipe
from porting.recipes.cosmictagger import step_7_warm_up, step_8_half_precision, workload
from tests.conftest import DATA_FOLDER

pytestmark = pytest.mark.slow

RECIPE = find_recipe("cosmictagger")
PORTED = [step for step in RECIPE.steps if step.number >= 2]
LIGHT_FILE = DATA_FOLDER / "cosmic_tagging_light.h5"
SIZE = (16, 24)

each_step = pytest.mark.parametrize("step", RECIPE.steps, ids=lambda step: step.path.stem)
each_ported_step = pytest.mark.parametrize("step", PORTED, ids=lambda step: step.path.stem)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tree_of(step: RecipeStep) -> ast.Module:
    """Parse the program of a step, and behind it what all steps share."""
    shared = (RECIPE.folder / "workload.py").read_text(encoding="utf-8")
    return ast.Module([*ast.parse(step.source).body, *ast.parse(shared).body], type_ignores=[])


def calls_of(step: RecipeStep, name: str) -> List[str]:
    """List the objects on which the program of a step calls a method of that name."""
    calls = [node.func for node in ast.walk(tree_of(step)) if isinstance(node, ast.Call)]
    return [ast.unparse(call.value) for call in calls if isinstance(call, ast.Attribute) and call.attr == name]


def make_model(seed: int = 0) -> uresnet2d.UResNet2D:
    torch.manual_seed(seed)
    return uresnet2d.build("a21", filters=2, depth=2, bottleneck=4, blocks_deepest=1, spatial_size=SIZE)


def make_batch(num_events: int = 4) -> Tuple[torch.Tensor, torch.Tensor]:
    config = uresnet2d.UResNet2DConfig(depth=2, spatial_size=SIZE)
    return uresnet2d.example_batch(config, batch_size=num_events)


def port(model: Any, optimizer: Any = None, **options: Any) -> porting.PortedModel:
    options = {"micro_batch": 1, "accumulation": 4, **options}
    return porting.to_ipu(
        model,
        uresnet2d.loss,
        label_transform=uresnet2d.chunk_planes,
        optimizer=optimizer or torch.optim.SGD(model.parameters(), lr=0.01),
        options=porting.PortOptions(**options),
        device="sim",
    )


def weights_of(model: Any) -> Any:
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_d1_moving_the_port_keeps_its_executor():
    ported = port(make_model())

    for move in (lambda: ported.to("cpu"), ported.cpu, ported.float, ported.train):
        assert move() is ported
    for move in (lambda: ported.to("cuda"), ported.cuda, ported.half, ported.bfloat16):
        with pytest.raises(porting.PortingError, match="D003"):
            move()
    ported(*make_batch())

    assert ported.report().num_training_calls == 1


@each_ported_step
def test_d1_no_step_moves_a_network(step):
    assert [calls_of(step, name) for name in ("to", "cuda", "half", "bfloat16")] == [[], [], [], []]


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_d2_the_devices_optimizer_is_the_configured_one(optimizer):
    model = make_model()
    settings = workload.Settings(optimizer=optimizer)
    configured = workload.make_optimizer(settings, model)
    plain = copy.deepcopy(model)
    eager = workload.make_optimizer(settings, plain)
    ported = port(model, configured)
    schedule = uresnet2d.Schedule(steps_per_epoch=2)
    bridge = ported.scheduler(torch.optim.lr_scheduler.LambdaLR(configured, schedule))
    eager_scheduler = torch.optim.lr_scheduler.LambdaLR(eager, schedule)
    losses = []

    for number in range(4):
        rate = ported.optimizer.param_groups[0]["lr"]
        losses.append((rate, float(ported(*make_batch())[1]), eager_step(plain, eager)))
        assert rate == schedule(number)
        bridge.step()
        eager_scheduler.step()

    assert type(ported.optimizer).__name__.lower() == optimizer
    assert ported.optimizer.param_groups[0]["eps"] == configured.param_groups[0]["eps"]
    assert [ours for _rate, ours, _plain in losses] == pytest.approx([plain for _, _, plain in losses], rel=1e-5)


def eager_step(model: Any, optimizer: Any) -> float:
    """Make an optimizer step of four events in plain PyTorch, and return the loss of the last of them."""
    optimizer.zero_grad()
    for image, label in zip(*(part.split(1) for part in make_batch())):
        loss = uresnet2d.loss(model(image), uresnet2d.chunk_planes(label))
        (loss / 4).backward()
    optimizer.step()
    return loss.item()


@each_ported_step
def test_d3_no_loop_differentiates_or_steps_on_the_host(step):
    assert calls_of(step, "backward") == calls_of(step, "zero_grad") == []
    assert calls_of(step, "step") == ["scheduler"]


def test_d3_backward_after_the_call_is_refused():
    _logits, loss = port(make_model())(*make_batch())

    with pytest.raises(porting.PortingError, match="O007"):
        loss.backward()


def test_d4_validation_in_the_midst_of_training_changes_nothing():
    validated, undisturbed = port(make_model()), port(make_model())
    batch = make_batch()
    for ported in (validated, undisturbed):
        ported(*batch)
    before = weights_of(validated)

    validated.eval()
    validated(*make_batch(1))
    validated.train()

    assert all(torch.equal(value, before[name]) for name, value in validated.state_dict().items())
    assert torch.equal(validated(*batch)[1], undisturbed(*batch)[1])
    assert [run.name for run in validated.report().executors] == ["training", "evaluation"]


def test_d5_inference_needs_no_labels_and_no_training():
    model = make_model()
    plain = copy.deepcopy(model).eval()
    images, _labels = make_batch(1)

    logits = port(model).inference()(images)

    with torch.no_grad():
        torch.testing.assert_close(logits, plain(images), rtol=1e-5, atol=1e-5)


@each_step
def test_d6_no_step_imports_the_vendors_modules(step):
    imports = [node for node in ast.walk(tree_of(step)) if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {alias.name for node in imports for alias in node.names} | {getattr(node, "module", "") for node in imports}

    assert {name for name in names if name and name.startswith(("pop", "horovod", "torch_xla"))} == set()


@each_step
def test_d7_a_program_reads_no_setting_that_it_does_not_have(step):
    module = importlib.import_module(RECIPE.module_name(step.path.stem))
    fields = {field.name for field in dataclasses.fields(module.Settings)}
    read = {
        node.attr
        for node in ast.walk(tree_of(step))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "settings"
    }
    parser = workload.make_parser(None, module.Settings)
    options = set(vars(parser.parse_args([])))

    assert read == fields
    assert options == {*fields, "steps"}


def test_d8_a_precision_is_applied_and_the_loss_stays_in_float32():
    logits, loss = port(make_model(), precision="mixed")(*make_batch())

    assert (logits.dtype, loss.dtype) == (torch.float16, torch.float32)
    assert step_8_half_precision.OPTIONS.precision == "mixed"


def test_d8_a_precision_that_there_is_not_is_refused():
    with pytest.raises(porting.PortingError, match="P002"):
        porting.PortOptions(precision="int8")


def test_d9_the_network_in_3d_is_ported_as_well():
    torch.manual_seed(0)
    model = uresnet3d.build(filters=2, depth=2, bottleneck=4, blocks_deepest=1, blocks_final=1, spatial_size=SIZE)
    plain = copy.deepcopy(model)
    images, labels = make_batch(1)

    _logits, loss = port(model, accumulation=1)(images, labels)

    expected = uresnet2d.loss(plain(images), uresnet2d.chunk_planes(labels))
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-5, atol=1e-6)


def test_d10_four_accumulated_events_are_one_weight_update():
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    plain = copy.deepcopy(model)
    eager = torch.optim.Adam(plain.parameters(), lr=0.01)
    ported = port(model, optimizer)

    ported(*make_batch())
    eager_step(plain, eager)

    assert {float(state["step"]) for state in ported.optimizer_state_dict()["state"].values()} == {1.0}
    # a bias before BatchNorm has a gradient of rounding noise, of which Adam makes steps
    for name in [name for name in plain.state_dict() if not name.endswith("convolution.bias")]:
        torch.testing.assert_close(ported.state_dict()[name], plain.state_dict()[name], rtol=1e-4, atol=1e-5)


def test_d11_labels_go_to_the_device_and_do_not_come_back():
    images, labels = make_batch()

    returned = port(make_model(), output_mode="all")(images, labels)

    assert [tuple(part.shape) for part in returned] == [(4, 3, 3, *SIZE), (4,)]


@pytest.mark.parametrize("step", RECIPE.steps[7:], ids=lambda step: step.path.stem)
def test_d12_programs_compile_before_their_loop(step):
    run = next(node for node in tree_of(step).body if getattr(node, "name", "") == "train")
    loop = next(number for number, node in enumerate(run.body) if isinstance(node, ast.For))

    assert any(".compile(" in ast.unparse(node) for node in run.body[:loop])


def test_d12_compiling_changes_nothing_and_the_first_call_does_not_compile():
    ported = port(make_model())
    before = weights_of(ported)

    seconds = ported.compile(*make_batch())

    assert seconds > 0
    assert all(torch.equal(value, before[name]) for name, value in ported.state_dict().items())
    assert (ported.report().num_training_calls, ported.compile(*make_batch())) == (0, 0.0)


def test_d13_the_loader_is_the_devices_and_leaves_no_event_out():
    ported = port(make_model())
    events, _validation_set = workload.load_events(workload.Settings())

    loader = ported.dataloader(events)

    assert type(loader).__module__.split(".")[:2] == ["porting", "simulator"]
    assert (len(loader), loader.report.samples_lost_per_epoch) == (8, 0)
    assert {images.shape for images, _labels in loader} == {torch.Size([4, 3, 64, 96])}


@pytest.mark.parametrize("step", [step for step in PORTED if step.number >= 4], ids=lambda step: step.path.stem)
def test_d13_programs_use_the_devices_loader(step):
    assert calls_of(step, "dataloader") != []
    assert "DataLoader(" not in step.source or step.number == 4


def test_d14_two_replicas_train_as_one_step_of_all_their_events():
    """Instances are replicas in several processes; that they train the same is a check of step 11."""
    together, alone = make_model(), make_model()
    batch = make_batch()

    port(together, accumulation=2, replicas=2, broadcast_buffers=False)(*batch)
    ported = port(alone, accumulation=4)
    ported(*batch)

    for name, value in alone.named_parameters():
        torch.testing.assert_close(together.state_dict()[name], value.detach(), rtol=1e-4, atol=1e-6)


def test_d14_an_instance_refuses_another_number_of_replicas_than_the_launchers(monkeypatch):
    monkeypatch.setenv("POPDIST_NUM_TOTAL_REPLICAS", "2")

    with pytest.raises(porting.PortingError, match="the launcher gives each instance"):
        port(make_model(), replicas=4)


@pytest.mark.slow
@pytest.mark.usefixtures("programs_have_simulator")
def test_d14_and_d15_torchruns_instances_have_equal_weights_and_one_of_them_tells(tmp_path):
    program = [str(RECIPE.step(11).path), "--steps", "2", "--checkpoint", str(tmp_path / "weights")]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]

    run = subprocess.run([sys.executable, *launcher, *program], capture_output=True, text=True, timeout=280)

    assert run.returncode == 0, run.stderr
    assert run.stdout.count("loss ") == 1
    first, second = (torch.load(tmp_path / f"weights-{index}") for index in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first if "norm.running" not in name)


@each_step
def test_d16_no_statement_compares_where_it_should_assign(step):
    statements = [node.value for node in ast.walk(tree_of(step)) if isinstance(node, ast.Expr)]

    assert [
        ast.unparse(value) for value in statements if not isinstance(value, (ast.Call, ast.Constant, ast.YieldFrom))
    ] == []


@pytest.mark.slow
@pytest.mark.skipif(not LIGHT_FILE.exists(), reason="the light file of events is not here")
def test_events_of_the_detector_train_the_a21_network():
    pytest.importorskip("h5py")
    settings = workload.Settings(file=str(LIGHT_FILE), variant="a21", downsample=4)

    losses = step_7_warm_up.train(2, settings)

    assert 2.5 < losses[0] < 5.0
    assert step_7_warm_up.validate(losses.measured.model, workload.load_events(settings)[1]).keys() == (
        uresnet2d.METRICS.keys()
    )
