from app.chat.context_use import context_use
from app.chat.conversation import Role, Turn, TurnState, TurnStats


def user(text: str) -> Turn:
    return Turn(id=text, conversation_id="c", position=0, role=Role.USER, text=text)


def answer(text: str, state: TurnState = TurnState.COMPLETE, prompt: int = 0, new: int = 0) -> Turn:
    stats = TurnStats(
        prompt_tokens=prompt, new_tokens=new, cached_tokens=0, ttft_s=None, tokens_per_s=None, reason="eos"
    )
    return Turn(id=text, conversation_id="c", position=1, role=Role.ASSISTANT, text=text, state=state,
                stats=stats if prompt else None)  # fmt: skip


def text(turns: list[Turn], draft: str = "", new_tokens: int = 0, limit: int | None = 8192) -> str:
    return context_use(turns, draft=draft, new_tokens=new_tokens, limit_tokens=limit).text


def test_after_an_answer_it_is_exact() -> None:
    assert text([user("q"), answer("a", prompt=1200, new=84)]) == "Context 1,284 of 8,192 tokens"


def test_a_draft_is_guessed_on_top() -> None:
    assert text([user("q"), answer("a", prompt=100, new=10)], draft="x" * 40) == "Context ≈ 120 of 8,192 tokens"


def test_a_growing_answer_is_counted_with_its_guessed_prompt() -> None:
    turns = [user("q"), answer("a", prompt=100, new=10), user("y" * 8), answer("b" * 99, TurnState.STREAMING)]
    assert text(turns, new_tokens=30) == "Context ≈ 142 of 8,192 tokens"


def test_nearly_full_is_said() -> None:
    assert text([answer("a", prompt=7900, new=1)]) == "Context 7,901 of 8,192 tokens · nearly full"
    assert text([answer("a", prompt=8190, new=1)]) == "Context 8,191 of 8,192 tokens · nearly full"
    assert text([answer("a", prompt=8190, new=2)]) == "Context 8,192 of 8,192 tokens · too long"


def test_without_a_model_there_is_no_limit() -> None:
    assert text([], limit=None) == ""
    assert text([], draft="abcd", limit=None) == "Context ≈ 1 tokens"
