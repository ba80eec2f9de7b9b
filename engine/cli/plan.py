"""`kvscope plan`: the memory plan of a snapshot, or of a model on this machine."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from engine.architecture import ModelArchitecture
from engine.config import EngineConfig
from engine.memory.plan import MemoryPlan, PlanRefusedError
from engine.memory.report import format_plan, format_refusal, plan_from_snapshot
from engine.trace.export import print_json

if TYPE_CHECKING:
    from engine.target import Target

_CPU_NOTE = " On a CPU three quarters of what is then free stay free: they are the safety margin."


def plan_snapshot(path: Path, *, as_json: bool) -> int:
    """Plan from a file; exit code 3 when nothing worth starting fits."""
    try:
        return _show(plan_from_snapshot(path), as_json=as_json)
    except PlanRefusedError as error:
        return _refuse(error, as_json=as_json)


def plan_machine(config: EngineConfig, *, as_json: bool) -> int:
    """Plan a model on this machine, without reading its weights."""
    from engine.target import choose_target, plan_cache
    from engine.weights.source import open_weights

    target = choose_target(config)
    weights = open_weights(Path(config.model))
    try:
        memory_plan = plan_cache(config, weights.architecture, target)
    except PlanRefusedError as error:
        return _refuse(error, as_json=as_json)
    finally:
        weights.close()
    if not as_json:
        print(f"{weights.architecture.name} · {str(target.dtype).removeprefix('torch.')} · {target.description}")
        print("\n".join(_attention_lines(weights.architecture, target)))
        print("Planned as if the weights were loaded." + (_CPU_NOTE if target.is_cpu else "") + "\n")
    return _show(memory_plan, as_json=as_json)


def _attention_lines(architecture: ModelArchitecture, target: "Target") -> list[str]:
    """Which attention back end runs, and why those before it do not."""
    from engine.attention.select import first_choice, rejections

    chosen = first_choice(architecture, target.dtype, target.device)
    others = rejections(architecture, target.dtype, target.device)
    return [f"Attention: {chosen}", *(f"  not the {each.name}: {each.reason}" for each in others)]


def _show(memory_plan: MemoryPlan, *, as_json: bool) -> int:
    if as_json:
        print_json(memory_plan.to_json())
    else:
        print(format_plan(memory_plan))
    return 0


def _refuse(error: PlanRefusedError, *, as_json: bool) -> int:
    if as_json:
        print_json(error.to_json())
    else:
        print(format_refusal(error))
    print(error, file=sys.stderr)
    return error.exit_code
