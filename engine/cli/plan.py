"""`kvscope plan`: the memory plan of a snapshot, or of a model on this machine."""

from pathlib import Path

from engine.errors import EngineError
from engine.memory.plan import MemoryPlan, PlanRefusedError
from engine.memory.report import format_plan, plan_from_snapshot
from engine.trace.export import print_json

REFUSED = 3


def plan_snapshot(path: Path, *, as_json: bool) -> int:
    """Plan from a file; exit code 3 when nothing worth starting fits."""
    try:
        return _show(plan_from_snapshot(path), as_json=as_json)
    except PlanRefusedError as error:
        return _refuse(error, as_json=as_json)


def plan_machine(config: object, *, as_json: bool) -> int:
    """Plan a model on this machine, without loading its weights."""
    raise EngineError(str((config, as_json)))


def _show(memory_plan: MemoryPlan, *, as_json: bool) -> int:
    if as_json:
        print_json(memory_plan.to_json())
    else:
        print(format_plan(memory_plan))
    return 0


def _refuse(error: PlanRefusedError, *, as_json: bool) -> int:
    if not as_json:
        raise error
    print_json(error.to_json())
    return REFUSED
