"""The controller with a scripted engine: every answer finds its turn, and no prompt is lost."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.chat.controller import ChatController
from app.chat.conversation import Turn, TurnState
from app.chat.history import History
from engine.events import EngineState, EngineStatus, FinishReason
from tests.fakes.engine_client import INFO, READY, FakeEngineClient

EMPTY = EngineStatus(EngineState.EMPTY)
FAILED = EngineStatus(EngineState.FAILED, message="The file is not a model.")


def last(controller: ChatController, conversation_id: str = "") -> Turn:
    return controller.turns(conversation_id or controller.current_id)[-1]


def said(client: FakeEngineClient, number: int = -1) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in client.submitted[number].messages]


def test_a_prompt_goes_out_and_its_answer_comes_in(controller: ChatController, client: FakeEngineClient) -> None:
    assert controller.send("Why?")
    assert said(client) == [("user", "Why?")]
    sampling = client.submitted[0].sampling
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens) == (0.7, 0.95, None)
    client.say("Be", None, 11)
    client.say("cause.", None, 12, 13)
    assert last(controller).state is TurnState.STREAMING
    assert controller.new_tokens(last(controller).id) == 3
    client.finish(cached_tokens=4)
    answer = last(controller)
    assert (answer.text, answer.state) == ("Because.", TurnState.COMPLETE)
    assert answer.stats is not None
    assert (answer.stats.new_tokens, answer.stats.cached_tokens, answer.stats.reason) == (3, 4, "eos")
    assert not controller.is_running(controller.current_id)


def ids_sent(client: FakeEngineClient) -> list[tuple[int, ...]]:
    return [message.token_ids for message in client.submitted[-1].messages]


@pytest.mark.parametrize(
    ("reason", "kept"),
    [(FinishReason.EOS, (4, 5)), (FinishReason.LENGTH, (4, 5, 6)), (FinishReason.CAPACITY, (4, 5, 6))],
)
def test_the_next_prompt_brings_the_ids_along_that_were_sampled(
    controller: ChatController, client: FakeEngineClient, reason: FinishReason, kept: tuple[int, ...]
) -> None:
    """All but the end token."""
    controller.send("one")
    client.say("ei", None, 4)
    client.say("ns", None, 5, 6)
    client.finish(reason=reason)
    controller.send("two")
    assert ids_sent(client) == [(), kept, ()]


def test_a_stopped_answer_brings_its_ids_along(controller: ChatController, client: FakeEngineClient) -> None:
    client.answers_cancel = False
    controller.send("one")
    client.say("eins", None, 4, 5)
    controller.stop()
    client.say(" zwei", client.last_id, 6)
    client.finish(reason=FinishReason.EOS)
    controller.send("two")
    assert ids_sent(client) == [(), (4, 5), ()]


def test_a_retried_answer_forgets_its_ids(controller: ChatController, client: FakeEngineClient) -> None:
    controller.send("one")
    client.say("old", None, 4, 5)
    client.fail("broken")
    controller.retry(last(controller).id)
    assert last(controller).token_ids == ()
    client.say("new", None, 6, 7)
    client.finish()
    controller.send("two")
    assert ids_sent(client) == [(), (6,), ()]


def test_another_model_gets_the_text_and_the_first_one_its_ids_again(
    controller: ChatController, client: FakeEngineClient
) -> None:
    controller.send("one")
    client.say("eins", None, 4, 5)
    client.finish(reason=FinishReason.LENGTH)
    client.set_status(EngineStatus(EngineState.READY, info=replace(INFO, identity="another")))
    controller.send("two")
    assert ids_sent(client) == [(), (), ()]
    client.say("zwei", None, 6)
    client.finish(reason=FinishReason.LENGTH)
    controller.send("three")
    assert ids_sent(client) == [(), (), (), (6,), ()]
    client.finish()
    client.set_status(READY)
    controller.send("four")
    assert ids_sent(client) == [(), (4, 5), (), (), ()]


def test_an_answer_belongs_to_the_model_that_gave_it_not_to_the_one_that_was_asked(
    controller: ChatController, client: FakeEngineClient
) -> None:
    """A prompt may find another model in the queue before it."""
    controller.send("one")
    client.set_status(EngineStatus(EngineState.LOADING))
    client.set_status(EngineStatus(EngineState.READY, info=replace(INFO, identity="another")))
    client.say("eins", None, 4)
    client.finish(reason=FinishReason.LENGTH)
    assert last(controller).model == "another"
    client.set_status(READY)
    controller.send("two")
    assert ids_sent(client) == [(), (), ()]


def test_ids_are_there_after_a_restart(client: FakeEngineClient, tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite3"
    first = ChatController(client, History.open(path))
    first.send("one")
    client.say("eins", None, 4, 70_000)
    conversation_id = first.current_id
    first.close()
    later = FakeEngineClient()
    second = ChatController(later, History.open(path))
    second.select(conversation_id)
    second.send("two")
    assert ids_sent(later) == [(), (4, 70_000), ()]
    second.close()


def test_the_next_prompt_brings_the_conversation_along(controller: ChatController, client: FakeEngineClient) -> None:
    controller.send("one")
    client.say("eins")
    client.finish()
    controller.send("two")
    assert said(client) == [("user", "one"), ("assistant", "eins"), ("user", "two")]


def test_the_first_prompt_gives_the_title(controller: ChatController) -> None:
    assert controller.conversations == ()
    controller.send("# How do\nrivers form?")
    assert [each.title for each in controller.conversations] == ["How do"]


@pytest.mark.parametrize("text", ["", "  \n "])
def test_nothing_is_not_sent(controller: ChatController, client: FakeEngineClient, text: str) -> None:
    assert not controller.send(text)
    assert client.submitted == []


def test_half_a_character_from_a_paste_is_kept_out(controller: ChatController, history: History) -> None:
    assert controller.send("a\ud83d b")
    history.flush()
    assert history.failure is None


def test_while_an_answer_is_written_nothing_else_is_sent_there(
    controller: ChatController, client: FakeEngineClient
) -> None:
    controller.send("one")
    assert not controller.send("two")
    assert len(client.submitted) == 1


def test_several_conversations_are_answered_at_once(controller: ChatController, client: FakeEngineClient) -> None:
    controller.send("A")
    first, first_request = controller.current_id, client.last_id
    controller.new_conversation()
    controller.send("B")
    second, second_request = controller.current_id, client.last_id
    assert first != second
    for number in range(3):
        client.say(f"a{number}", first_request)
        client.say(f"b{number}", second_request)
    assert controller.is_running(first)
    assert controller.is_running(second)
    client.finish(first_request)
    client.say("!", second_request)
    assert last(controller, first).text == "a0a1a2"
    assert last(controller, second).text == "b0b1b2!"
    assert not controller.is_running(first)
    assert controller.is_running(second)


def test_stop_keeps_the_text_and_takes_nothing_later(controller: ChatController, client: FakeEngineClient) -> None:
    client.answers_cancel = False
    controller.send("Why?")
    request_id = client.last_id
    client.say("Because")
    controller.stop()
    client.say(" of a step that was under way")
    assert client.cancelled == [request_id]
    assert (last(controller).text, last(controller).state) == ("Because", TurnState.STOPPED)
    assert not controller.is_running(controller.current_id)
    client.finish(request_id, FinishReason.CANCELLED)
    stats = last(controller).stats
    assert (last(controller).state, stats and stats.new_tokens) == (TurnState.STOPPED, 2)
    controller.send("Go on")
    assert said(client) == [("user", "Why?"), ("assistant", "Because"), ("user", "Go on")]


def test_stop_before_the_first_token_keeps_the_prompt(controller: ChatController, client: FakeEngineClient) -> None:
    controller.send("Why?")
    controller.stop()
    assert [turn.text for turn in controller.turns(controller.current_id)] == ["Why?", ""]
    assert last(controller).state is TurnState.STOPPED
    controller.retry(last(controller).id)
    assert said(client) == [("user", "Why?")]


def test_stop_with_nothing_running_does_nothing(controller: ChatController, client: FakeEngineClient) -> None:
    controller.stop()
    assert client.cancelled == []


def test_a_late_end_of_a_stopped_request_does_not_touch_its_retry(
    controller: ChatController, client: FakeEngineClient
) -> None:
    client.answers_cancel = False
    controller.send("Why?")
    old = client.last_id
    controller.stop()
    controller.retry(last(controller).id)
    client.say("New")
    client.finish(old, FinishReason.CANCELLED)
    assert (last(controller).text, last(controller).state) == ("New", TurnState.STREAMING)
    client.finish()
    assert last(controller).state is TurnState.COMPLETE


def test_without_a_model_a_prompt_waits_for_one(controller: ChatController, client: FakeEngineClient) -> None:
    client.set_status(EMPTY)
    controller.send("Why?")
    assert last(controller).state is TurnState.QUEUED
    assert controller.is_running(controller.current_id)
    client.set_status(EngineStatus(EngineState.LOADING))
    assert client.submitted == []
    client.set_status(READY)
    assert said(client) == [("user", "Why?")]
    client.set_status(READY)
    assert len(client.submitted) == 1, "only once"


def test_a_waiting_prompt_can_be_stopped(controller: ChatController, client: FakeEngineClient) -> None:
    client.set_status(EMPTY)
    controller.send("Why?")
    controller.stop()
    client.set_status(READY)
    assert client.submitted == []
    assert client.cancelled == []
    assert last(controller).state is TurnState.STOPPED


def test_a_model_that_cannot_be_loaded_is_told_where_the_answer_would_be(
    controller: ChatController, client: FakeEngineClient
) -> None:
    client.set_status(EMPTY)
    controller.send("Why?")
    client.set_status(FAILED)
    assert (last(controller).state, last(controller).message) == (TurnState.FAILED, FAILED.message)
    controller.new_conversation()
    controller.send("And now?")
    assert (last(controller).state, last(controller).message) == (TurnState.FAILED, FAILED.message)
    client.set_status(READY)
    controller.retry(last(controller).id)
    assert said(client) == [("user", "And now?")]


def test_a_refused_request_can_be_retried_and_its_prompt_is_not_lost(
    controller: ChatController, client: FakeEngineClient
) -> None:
    controller.send("long")
    client.fail("The prompt is too long.")
    failed = last(controller)
    assert (failed.state, failed.message) == (TurnState.FAILED, "The prompt is too long.")
    controller.retry(failed.id)
    assert said(client) == [("user", "long")]
    client.say("fine")
    client.finish()
    assert (last(controller).text, last(controller).message) == ("fine", "")
    assert len(controller.turns(controller.current_id)) == 2


def test_an_engine_that_breaks_leaves_the_text_and_the_reason(
    controller: ChatController, client: FakeEngineClient
) -> None:
    controller.send("Why?")
    client.say("Beca")
    client.fail("The engine stopped: out of memory.")
    assert (last(controller).text, last(controller).state) == ("Beca", TurnState.FAILED)
    controller.send("Again")
    assert said(client) == [("user", "Why?\n\nAgain")]


def test_ends_for_other_reasons(controller: ChatController, client: FakeEngineClient) -> None:
    for reason, state in (
        (FinishReason.LENGTH, TurnState.COMPLETE),
        (FinishReason.CAPACITY, TurnState.COMPLETE),
        (FinishReason.ERROR, TurnState.FAILED),
        (FinishReason.CANCELLED, TurnState.STOPPED),
    ):
        controller.send(reason.value)
        client.say("x")
        client.finish(reason=reason, message="sentence")
        assert (last(controller).state, last(controller).message) == (state, "sentence")


def test_events_of_other_requests_are_ignored(controller: ChatController, client: FakeEngineClient) -> None:
    client.say("x", "demo-1")
    client.finish("demo-1")
    client.fail("no", "demo-2")
    assert controller.turns(controller.current_id) == ()


def test_drafts_stay_with_their_conversations(controller: ChatController) -> None:
    controller.send("A")
    first = controller.current_id
    controller.set_draft(first, "later")
    controller.new_conversation()
    controller.set_draft(controller.current_id, "new")
    assert controller.draft(first) == "later"
    assert controller.draft(controller.current_id) == "new"


def test_drafts_are_there_after_a_restart(client: FakeEngineClient, tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite3"
    first = ChatController(client, History.open(path))
    first.send("A")
    old = first.current_id
    first.set_draft(old, "lat\ud83der")
    first.new_conversation()
    first.set_draft(first.current_id, "new")
    first.close()
    second = ChatController(FakeEngineClient(), History.open(path))
    assert second.draft(old) == "lat?er"
    assert second.draft(second.current_id) == "new"
    second.send("new")
    assert second.draft(second.current_id) == ""
    second.new_conversation()
    assert second.draft(second.current_id) == ""
    second.close()
    third = ChatController(FakeEngineClient(), History.open(path))
    assert third.draft(third.current_id) == ""
    assert third.draft(old) == "lat?er"
    third.close()


def test_a_prompt_beside_a_draft_leaves_it_in_its_conversation(controller: ChatController) -> None:
    """One of the proposals of an empty chat is sent while something else stands in the field."""
    controller.set_draft(controller.current_id, "my own words")
    controller.send("a proposal")
    assert controller.draft(controller.current_id) == "my own words"
    controller.new_conversation()
    assert controller.draft(controller.current_id) == ""


def test_new_conversations_begin_with_the_system_prompt_and_old_ones_keep_theirs(
    controller: ChatController, client: FakeEngineClient
) -> None:
    controller.system_prompt = "Be brief."
    controller.send("A")
    old = controller.current_id
    client.say("x")
    client.finish()
    controller.system_prompt = "Be long."
    controller.send("B")
    assert said(client)[0] == ("system", "Be brief.")
    controller.new_conversation()
    controller.send("C")
    assert said(client) == [("system", "Be long."), ("user", "C")]
    assert controller.turns(old)[0].text == "A"


def test_new_chat_twice_is_one_new_chat(controller: ChatController) -> None:
    empty = controller.current_id
    controller.send("A")
    controller.new_conversation()
    fresh = controller.current_id
    controller.new_conversation()
    assert controller.current_id == fresh != empty
    assert len(controller.conversations) == 1


def test_rename(controller: ChatController) -> None:
    controller.send("A")
    controller.rename(controller.current_id, "  Another\n title ")
    controller.rename(controller.current_id, "  ")
    assert controller.title(controller.current_id) == "Another title"


def test_delete_stops_and_can_be_undone(controller: ChatController, client: FakeEngineClient, history: History) -> None:
    controller.send("A")
    deleted_id = controller.current_id
    client.say("part")
    deleted = controller.delete(deleted_id)
    assert client.cancelled == [client.last_id]
    assert controller.conversations == ()
    assert controller.current_id != deleted_id
    assert deleted is not None
    controller.restore(deleted)
    assert controller.current_id == deleted_id
    assert (last(controller).text, last(controller).state) == ("part", TurnState.STOPPED)
    history.flush()
    assert [each.id for each in history.conversations()] == [deleted_id]


def test_search_looks_into_the_answers(controller: ChatController, client: FakeEngineClient, history: History) -> None:
    controller.send("A")
    client.say("about the Danube")
    client.finish()
    history.flush()
    assert controller.search("danube") == {controller.current_id}
    assert controller.search("Rhine") == frozenset()


def test_everything_is_there_after_a_restart(client: FakeEngineClient, tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite3"
    first = ChatController(client, History.open(path))
    first.send("A")
    client.say("streaming when the program ends")
    conversation_id = first.current_id
    first.close()
    second = ChatController(FakeEngineClient(), History.open(path))
    assert [each.title for each in second.conversations] == ["A"]
    assert second.turns(second.current_id) == ()
    answer = last(second, conversation_id)
    assert (answer.text, answer.state) == ("streaming when the program ends", TurnState.STOPPED)
    second.close()


def test_a_damaged_conversation_is_told_and_the_others_go_on(client: FakeEngineClient, tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite3"
    first = ChatController(client, History.open(path))
    first.send("A")
    damaged = first.current_id
    first.new_conversation()
    first.send("B")
    good = first.current_id
    first.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("UPDATE turns SET role = 'nobody' WHERE conversation_id = ?", (damaged,))
    second = ChatController(FakeEngineClient(), History.open(path))
    told: list[str] = []
    second.troubled.connect(told.append)
    second.select(damaged)
    assert second.turns(damaged) == ()
    assert not second.send("on top of it")
    assert "damaged" in told[0]
    second.select(good)
    assert [turn.text for turn in second.turns(good)] == ["B", ""]
    assert second.send("on")
    second.close()


def test_a_history_that_cannot_be_written_is_told_once(
    controller: ChatController, history: History, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    controller.troubled.connect(told.append)
    monkeypatch.setattr(History, "failure", property(lambda _self: "The disk is full."))
    for _ in range(3):
        controller._check_history()
    assert told == ["The disk is full."]
