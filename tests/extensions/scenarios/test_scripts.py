"""Models whose answers stand in the file, pages with tools, and people who answer."""

from tests.extensions.scenarios.conftest import Play
from tests.in_one_test import in_one_test

QUESTIONS = """
from copilot_runtime import CopilotRuntime
from copilot_runtime.testing import ScriptedAgent, ask, say

def confirm(run):
    return say(f"You said {', '.join(str(it.payload) for it in run.resume)}.")

runtime = CopilotRuntime(
    agents={"booker": ScriptedAgent(ask("Book it?"), ask("For how many?"), confirm, say("Bye."))}
)
"""

ECHO = """
from copilot_runtime import CopilotRuntime
from copilot_runtime.adapters.scripted import say
from copilot_runtime.adapters.demo import DemoAdapter

class Echo:
    async def run(self, run):
        words = [run.user, run.properties.get("tone"), run.headers.get("x-shop"), run.thread_id]
        context = [f"{it.description}: {it.value}" for it in run.context]
        for event in say(" | ".join(map(str, [*words, *context]))):
            yield event

def sign_in(connection):
    return connection.headers.get("x-user")

runtime = CopilotRuntime(
    DemoAdapter(pace=0), agents={"echo": Echo()}, authenticate=sign_in,
)
"""


def test_a_script_that_is_too_short_says_what_was_requested(play: Play) -> None:
    outcome = play("scenarios: [{name: a, say: Hi, script: [{call: get_weather}]}]")

    assert outcome.status == 1
    assert outcome.attempt["outcome"] == "error"
    assert outcome.attempt["error"].startswith(
        "The script has no answer for request 2 to the model, of the plain chat, after: "
    )


def test_answers_that_nobody_asked_for_are_a_failure(play: Play) -> None:
    text = """
    scenarios:
      - name: a
        say: Hi
        script: [Hello., Bye., {call: fail}, {error: overloaded}]
    """
    outcome = play(text)

    assert outcome.failures == ["script"]
    assert outcome.attempt["failures"][0]["actual"] == (
        "no request used 'Bye.'; 'a call of fail'; 'error: overloaded'"
    )


def test_an_answer_may_be_for_some_requests_and_for_many(play: Play) -> None:
    text = """
    scenarios:
      - name: a
        turns: [{say: one}, {say: two}, {say: three}, {say: one more}]
        script:
          - {when: {last: two}, text: It is the second.}
          - {when: {tool: nothing}, text: never, repeats: true}
          - {when: {system: nothing}, text: never, repeats: true}
          - {when: {agent: nobody}, text: never, repeats: true}
          - {when: {tool: get_weather}, text: Any., repeats: true}
        expect: {text: {matches: "^Any.\\\\s+It is the second.\\\\s+Any.\\\\s+Any.$"}}
    """
    outcome = play(text)

    assert outcome.status == 0, outcome.output


def test_a_model_that_fails_is_an_error_with_its_words(play: Play) -> None:
    text = (
        "scenarios: [{name: a, say: Hi, script: [{text: Well, error: The model is overloaded.}]}]"
    )
    outcome = play(text)

    assert outcome.attempt["error"] == "Turn 1 failed: The model is overloaded. [UNKNOWN]"
    assert outcome.attempt["turns"][0]["text"] == "Well"


def test_several_calls_of_an_answer_may_have_arguments_that_are_no_json(play: Play) -> None:
    text = """
    scenarios:
      - name: a
        say: Hi
        script:
          - text: Let me see.
            calls:
              - {name: get_weather, arguments: {city: Oslo}}
              - {name: get_weather, arguments: "{"}
          - Done.
        expect:
          calls: [{name: get_weather, count: 2}, {name: get_weather, result: error}]
          text: {contains: [Let me see., Done.]}
    """
    outcome = play(text)

    assert outcome.status == 0, outcome.output


def test_tools_of_the_page_answer_as_the_file_says(play: Play) -> None:
    text = """
    scenarios:
      - name: a
        say: Paint it
        tools:
          - {name: set_color, description: Set it., result: done}
          - {name: pick, results: [red, {color: blue}]}
          - {name: lock, error: The page is locked.}
          - {name: beep}
        script:
          - calls: [{name: set_color, arguments: {color: teal}}, {name: pick}]
          - calls: [{name: pick}, {name: lock}]
          - calls: [{name: pick}, {name: beep}]
          - Painted.
        expect:
          in_order: true
          calls:
            - {name: set_color, result: {equals: done}}
            - {name: pick, result: {equals: red}}
            - {name: pick, result: blue}
            - {name: lock, result: The page is locked.}
            - {name: pick, result: blue}
            - {name: beep, result: {equals: ""}}
    """
    outcome = play(text)

    assert outcome.status == 0, outcome.output


def test_tools_of_the_server_are_replaced_in_one_scenario(play: Play) -> None:
    text = """
    scenarios:
      - name: replaced
        say: Hi
        stubs:
          - {name: get_weather, results: [snow, {rain: 2}]}
          - {name: book, description: Book it., error: All seats are taken.}
        script:
          - {call: get_weather, arguments: {city: Oslo}}
          - {call: get_weather, arguments: {town: Oslo}}
          - {call: get_weather, arguments: {city: Rome}}
          - {when: {tool: book}, call: book}
          - Done.
        expect:
          calls:
            - {name: get_weather, arguments: {city: Oslo}, result: {equals: snow}}
            - {name: get_weather, arguments: {town: Oslo}, result: error}
            - {name: get_weather, arguments: {city: Rome}, result: '{"rain":2}'}
            - {name: book, result: All seats are taken.}
      - name: not replaced
        say: Hi
        script: [{call: get_weather, arguments: {city: Oslo}}, Done.]
        expect: {calls: [{name: get_weather, result: 4 degrees}]}
    """
    outcome = play(text, "--parallel", "2")

    assert outcome.status == 0, outcome.output


def test_a_person_answers_questions_in_their_order(play: Play) -> None:
    text = """
    scenarios:
      - name: a
        agent: booker
        turns:
          - say: Book a table
            answers: ["yes", 2]
            expect: {asks: [Book it, how many], text: You said 2.}
          - say: Thanks
            answers: [never]
    """
    outcome = play(text, app=QUESTIONS)

    assert outcome.attempt["turns"][0]["questions"] == ["Book it?", "For how many?"]
    assert outcome.attempt["turns"][0]["answers"] == ["yes", 2]
    assert outcome.attempt["failures"] == [
        {
            "turn": 2,
            "name": "answers",
            "expected": "1 questions",
            "actual": '0, none for ["never"]',
        }
    ]
    assert "? Book it?" in outcome.output


def test_a_question_that_should_not_be_asked_is_a_failure(play: Play) -> None:
    text = "scenarios: [{name: a, agent: booker, say: Book, expect: {asks: []}}]"
    outcome = play(text, app=QUESTIONS)

    assert outcome.attempt["failures"][0]["actual"] == "Book it?"


def test_the_page_and_the_person_are_as_the_file_says(play: Play) -> None:
    text = """
    defaults:
      agent: echo
      properties: {tone: dry}
      context: [{description: Cart, value: {items: 2}}]
    scenarios:
      - name: signed in by the file
        user: ann
        say: Hi
        expect: {text: ["ann | dry", 'Cart: {"items":2}']}
      - name: signed in by a header
        headers: {x-user: bob}
        say: Hi
        expect: {text: "bob | dry"}
      - name: nobody
        say: Hi
        expect: {text: "None | dry"}
    """
    outcome = play(text, app=ECHO)

    assert outcome.status == 0, outcome.output


def test_an_application_that_signs_in_itself_takes_no_user(play: Play) -> None:
    app = f"{ECHO}\nruntime = runtime.app()\n"
    text = "scenarios: [{name: a, agent: echo, user: ann, say: Hi}]"
    outcome = play(text, app=app)

    assert "The application has its own authentication" in outcome.attempt["error"]


def test_a_login_of_the_application_around_it_needs_a_user_in_the_scenario(play: Play) -> None:
    app = ECHO.replace('connection.headers.get("x-user")', "connection.state.user")
    outcome = play("scenarios: [{name: a, agent: echo, say: Hi}]", app=app)

    assert "The scenario names no `user`, and the `authenticate` hook" in outcome.attempt["error"]
    assert "HTTP_500" not in outcome.output
    assert "Traceback" not in outcome.output


def test_an_agent_that_is_not_there_is_guessed(play: Play) -> None:
    outcome = play("scenarios: [{name: a, agent: eco, say: Hi}]", app=ECHO)

    assert outcome.attempt["outcome"] == "error"
    assert "eco" in outcome.attempt["error"]
    assert "echo" in outcome.attempt["error"]


def test_ids_of_threads_stay_out_of_reports(play: Play) -> None:
    outcome = play("scenarios: [{name: a, agent: echo, say: Hi}]", app=ECHO)

    assert "<thread>" in outcome.attempt["turns"][0]["text"]


JUDGED = """
scenarios:
  - name: a
    say: Hi
    script: [Hello.]
    expect: {{judge: {judge}}}
"""


@in_one_test(
    ("judge", "failure"),
    [
        ("{criteria: polite, script: [true]}", None),
        ("{criteria: polite, script: [{passed: false, reason: It is rude.}]}", "It is rude."),
        ('{criteria: polite, script: [\'```json\n{"passed": "Yes"}\n```\']}', None),
        ('{criteria: polite, script: [\'It is. {"verdict": "fail"} That is all.\']}', "no reason"),
        ("{criteria: polite, script: [Well., true]}", None),
        ("{criteria: polite, votes: 3, script: [true, false, true]}", None),
        ("{criteria: polite, votes: 3, script: [true, true]}", None),
        ("{criteria: [polite, short], votes: 3, script: [false, true, false]}", "2 of 3 votes"),
    ],
)
def test_a_judge_decides(play: Play, judge: str, failure: str | None) -> None:
    outcome = play(JUDGED.format(judge=judge), "--offline")

    if failure is None:
        assert outcome.status == 0, outcome.output
    else:
        assert outcome.failures == ["judge"]
        assert failure in outcome.attempt["failures"][0]["actual"]


def test_a_judge_without_a_verdict_is_an_error(play: Play) -> None:
    outcome = play(JUDGED.format(judge="{criteria: polite, script: [Hm., Well.]}"))

    assert outcome.attempt["error"] == (
        "The judge gave no verdict when it was asked twice: 'Well.'."
    )


def test_a_judge_without_a_script_is_an_error_offline(play: Play) -> None:
    outcome = play(JUDGED.format(judge="polite"), "--offline")

    assert outcome.attempt["error"].startswith("The judge has no script")


def test_a_real_judge_is_asked_beside_a_scripted_model(play: Play) -> None:
    app = """
from copilot_runtime import CopilotRuntime, ScriptedAdapter
from copilot_runtime.testing import call

def verdict(request):
    text = request.messages[-1].content
    assert "1. polite" in text and "Assistant: Hello." in text, text
    return call("report_verdict", {"passed": True, "reason": request.parameters.model})

runtime = CopilotRuntime(ScriptedAdapter(verdict, verdict))
"""
    own = play(JUDGED.format(judge="polite"), app=app)
    other = play(JUDGED.format(judge="polite"), "--judge", "judge-7", app=app)

    assert own.attempt["judge"][0]["passed"] is True, own.output
    assert other.attempt["judge"][0]["reason"] == "judge-7"


def test_a_runtime_without_a_model_cannot_judge(play: Play) -> None:
    text = "scenarios: [{name: a, agent: echo, say: Hi, expect: {judge: polite}}]"
    outcome = play(text, app=ECHO.replace("DemoAdapter(pace=0)", "None"))

    assert outcome.attempt["error"].startswith("There is no model to judge.")


def test_a_result_of_many_pages_is_cut_in_the_report(play: Play) -> None:
    text = """
    scenarios:
      - name: a
        say: Hi
        stubs: [{name: get_weather, result: RESULT}]
        script: [{call: get_weather, arguments: {city: Oslo}}, Done.]
    """
    outcome = play(text.replace("RESULT", "x" * 30_000))

    assert outcome.attempt["turns"][0]["calls"][0]["result"] == f"{'x' * 20_000}…"
