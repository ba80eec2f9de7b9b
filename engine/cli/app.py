"""The commands as typer sees them: options and their help. Each command imports what it needs when it runs."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from engine.cli.terminal import model_path
from engine.config import EngineConfig, SchedulingPolicy
from engine.errors import UsageError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

Model = Annotated[
    str | None, typer.Option("-m", "--model", help="A GGUF file, a model folder, or a name from `models list`.")
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")]
Dtype = Annotated[str, typer.Option("--dtype", help="auto, bfloat16, float16 or float32.")]
Threads = Annotated[int | None, typer.Option("--threads", help="CPU threads; all physical cores by default.")]
Policy = Annotated[
    SchedulingPolicy, typer.Option("--policy", help="What a step prefers: answers and prompts, or prompts.")
]
TokenBudget = Annotated[int | None, typer.Option("--token-budget", help="The most tokens of a step.")]
ChunkSize = Annotated[int | None, typer.Option("--chunk-size", help="The most tokens of one prompt in a step.")]
Slots = Annotated[int | None, typer.Option("--slots", help="The most requests that run at once.")]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write everything measured to FILE.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("chat")
def _chat(
    prompt: Annotated[str | None, typer.Argument(help="What to answer; without it, a conversation.")] = None,
    model: Model = None,
    system: Annotated[str | None, typer.Option("--system", help="The system prompt.")] = None,
    temperature: Annotated[float, typer.Option("--temperature", help="0 takes the most likely token.")] = 0.7,
    top_p: Annotated[float, typer.Option("--top-p", help="Draw from the likeliest tokens up to this sum.")] = 0.95,
    top_k: Annotated[int, typer.Option("--top-k", help="Draw from this many likeliest tokens; 0: all.")] = 0,
    min_p: Annotated[float, typer.Option("--min-p", help="Leave out what is below this part of the best.")] = 0.0,
    repetition_penalty: Annotated[
        float, typer.Option("--repetition-penalty", help="Above 1: fewer tokens of prompt and answer again.")
    ] = 1.0,
    presence_penalty: Annotated[
        float, typer.Option("--presence-penalty", help="Taken off tokens that came in the answer.")
    ] = 0.0,
    frequency_penalty: Annotated[
        float, typer.Option("--frequency-penalty", help="The same, for each time they came.")
    ] = 0.0,
    stop: Annotated[list[str] | None, typer.Option("--stop", help="End before this text; can be repeated.")] = None,
    logprobs: Annotated[
        int | None, typer.Option("--logprobs", metavar="N", help="Each token's log probability, and the N best.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", help="The most tokens of an answer.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="The same seed gives the same draws.")] = None,
    token_budget: TokenBudget = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
) -> int:
    """Answer a prompt in the terminal, streaming; without a prompt, hold a conversation."""
    from engine.requests import SamplingParams

    sampling = SamplingParams(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        stop=tuple(stop or ()),
        logprobs=logprobs,
        max_tokens=max_tokens,
        seed=seed,
    )
    config = EngineConfig(device=device, dtype=dtype, threads=threads)
    if token_budget is not None:
        config = replace(config, max_num_batched_tokens=token_budget)
    path = model_path(model)
    from engine.cli.chat import chat

    return chat(replace(config, model=str(path)), prompt, system, sampling)


@app.command("demo")
def _demo(
    name: Annotated[str, typer.Argument(help="slots or seed.")] = "slots",
    model: Model = None,
    kv_blocks: Annotated[int | None, typer.Option("--kv-blocks", help="Usable KV blocks.")] = None,
    block_size: Annotated[int | None, typer.Option("--block-size", help="Tokens in a block: 16, 32, ... 256.")] = None,
    policy: Policy = SchedulingPolicy.MIXED,
    token_budget: TokenBudget = None,
    chunk_size: ChunkSize = None,
    slots: Slots = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
    json_file: JsonFile = None,
) -> int:
    """Play a scenario on the real engine: 40 requests on 8 slots, or the experiment with ten requests."""
    from engine.trace.scenarios import scenario

    chosen = scenario(name)
    config = chosen.configure(
        EngineConfig(device=device, dtype=dtype, threads=threads, policy=policy, max_chunk_tokens=chunk_size),
        block_size=block_size,
        num_kv_blocks=kv_blocks,
        max_num_seqs=slots,
        max_num_batched_tokens=token_budget,
    )
    path = model_path(model)  # after the numbers: wrong ones are told before a download
    from engine.cli.demo import demo

    return demo(chosen, replace(config, model=str(path)), json_file)


@app.command("bench")
def _bench(
    workload: Annotated[
        str | None,
        typer.Argument(
            help="cpu (beside transformers), single, batch, slots, prefill or scheduler.", show_default="cpu"
        ),
    ] = None,
    model: Model = None,
    random_weights: Annotated[
        str | None, typer.Option("--random-weights", metavar="SHAPE", help="Measure this shape without weights.")
    ] = None,
    policy: Policy = SchedulingPolicy.MIXED,
    token_budget: TokenBudget = None,
    chunk_size: ChunkSize = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
    json_file: JsonFile = None,
) -> int:
    """Measure the engine; `cpu` prints transformers' figures beside ours, `scheduler` needs no model."""
    from engine.bench.workloads import SCHEDULER, TOKEN_BUDGET, choose_workload

    chosen = choose_workload(workload, random_weights=random_weights)
    if chosen == SCHEDULER:
        from engine.bench.scheduler import bench_scheduler

        return bench_scheduler(json_file)
    if model and random_weights:
        raise UsageError("Give either a model or --random-weights, not both.")
    config = EngineConfig(
        random_weights=random_weights,
        device=device,
        dtype=dtype,
        threads=threads,
        policy=policy,
        max_num_batched_tokens=TOKEN_BUDGET if token_budget is None else token_budget,
        max_chunk_tokens=chunk_size,
    )
    path = "" if random_weights else str(model_path(model))
    from engine.bench.run import bench

    return bench(chosen, replace(config, model=path), json_file)


@app.command("plan")
def _plan(
    model: Model = None,
    snapshot: Annotated[
        Path | None, typer.Option("--snapshot", metavar="FILE", help="Plan from these numbers instead of this machine.")
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
) -> int:
    """Say how many KV blocks fit, what limits them, and what would help."""
    from engine.cli.plan import plan_machine, plan_snapshot

    if snapshot is not None:
        return plan_snapshot(snapshot, as_json=as_json)
    config = EngineConfig(model=str(model_path(model)), device=device, dtype=dtype, threads=threads)
    return plan_machine(config, as_json=as_json)


models = typer.Typer(help="List and fetch models.")
app.add_typer(models, name="models")


@models.command("list")
def _models_list(as_json: AsJson = False) -> int:
    """The models on this machine that look loadable."""
    from engine.cli.models import list_models

    return list_models(as_json=as_json)


@models.command("get")
def _models_get(
    name: Annotated[str, typer.Argument(help="starter, or a repository owner/name of the Hugging Face hub.")],
) -> int:
    """Fetch a model."""
    from engine.cli.models import get_model

    return get_model(name)
