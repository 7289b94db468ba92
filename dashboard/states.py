"""Empty, loading, stale and broken: what a page says when there is nothing, or nothing new, to show."""

from __future__ import annotations

from dashboard import marks
from dashboard.api import Answer, Json, Problem, Trouble
from dashboard.scene import Scene, since_tick_s
from dashboard.words import seconds, sentence

_TITLES = {
    Trouble.UNREACHABLE: "The controller's API does not answer",
    Trouble.UNAUTHORISED: "The dashboard's token is not accepted",
    Trouble.FORBIDDEN: "The dashboard's token does not reach this",
    Trouble.NOT_FOUND: "This is not there",
    Trouble.NOT_READY: "The controller has nothing to show yet",
    Trouble.CONFLICT: "Somebody else was faster",
    Trouble.REFUSED: "The controller refused this",
    Trouble.BROKEN: "The controller's API failed",
}
_REMEDIES = {
    Trouble.UNREACHABLE: "Traffic is not affected: routers keep the last ring. See whether the controller runs, and "
    "whether LORA_AUTOSCALER_URL of the dashboard is right. This page tries again by itself.",
    Trouble.UNAUTHORISED: "It has expired, or was never issued. Give the dashboard a new reader token "
    "(LORA_AUTOSCALER_TOKEN or LORA_AUTOSCALER_TOKEN_FILE) and restart it.",
    Trouble.FORBIDDEN: "Ask for a token that reaches this fleet.",
    Trouble.NOT_READY: "It answers after its first tick. This page tries again by itself.",
    Trouble.BROKEN: "The controller's log has the reason. This page tries again by itself.",
}
_TICKS_UNTIL_STALE = 5


def known(answer: Answer) -> Json | None:
    """The answer's value, after saying what is wrong with it; None where there is nothing to show."""
    if answer.problem is not None and answer.value is None:
        explain(answer.problem)
    elif answer.problem is not None:
        problem = answer.problem
        marks.banner(
            "warn",
            f"What is shown is {seconds(answer.age_s)} old",
            [sentence(problem.detail), _REMEDIES.get(problem.trouble, "")],
        )
    return answer.value


def explain(problem: Problem) -> None:
    """A box that says what is wrong, in the API's words, and what to do."""
    kind = "info" if problem.trouble in (Trouble.NOT_READY, Trouble.NOT_FOUND) else "bad"
    marks.banner(kind, _TITLES[problem.trouble], [sentence(problem.detail)], _REMEDIES.get(problem.trouble, ""))


def status(scene: Scene) -> Json | None:
    """The fleet's status, after saying whether the controller stands still; None where there is nothing to show."""
    answer = scene.status()
    value = known(answer)
    if value is not None and answer.problem is None:
        age_s = since_tick_s(answer)
        if age_s is not None and age_s > max(_TICKS_UNTIL_STALE * value["tick_interval_s"], 10.0):
            marks.banner(
                "warn",
                f"The controller's last tick was {seconds(age_s)} ago",
                [f"It should tick every {seconds(value['tick_interval_s'])}. What is shown is from that tick."],
            )
    return value


def empty(title: str, line: str) -> None:
    """Nothing is there, and that is fine."""
    marks.banner("info", title, [line])
