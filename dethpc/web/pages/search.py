"""The state of a search: its rungs drawn by bracket, and the state of each trial."""

from __future__ import annotations

from dethpc.client.nouns import experiments
from dethpc.client.session import Json
from dethpc.web import show
from dethpc.web.asked import PageRequest

PAGE = 50
"""Trials of the table, and the best of each rung that are known of it."""

COLUMN, STEP, HEIGHT, HEAD, FOOT = 70, 150, 96, 20, 22
"""Of a picture, in its own units: a rung's width, from one to the next, its full height, and room for words above and below."""


def tab(request: PageRequest, experiment: Json) -> Json:
    """What the page shows beside what every page of the experiment does."""
    offset = request.count("offset", 0, 10**8)
    search = experiments.search(request.session, experiment["id"], offset=offset, limit=PAGE)
    over = show.plain_state(experiment["state"]) in show.ENDED
    drawn = [{"number": number, **bracket} for number, bracket in enumerate(search["brackets"]) if bracket["rungs"]]
    most = max((rung["entered"] for bracket in drawn for rung in bracket["rungs"]), default=0)
    for bracket in drawn:
        bracket["picture"] = picture(bracket["rungs"], most, search.get("unit") or "", over)
    return {"search": search, "brackets": drawn, "over": over, "offset": offset, "page": PAGE}


def picture(rungs: list[Json], most: int, unit: str, over: bool) -> Json:
    """Each rung as a bar as high as trials came this far, ``most`` being the full height; those that went on are its upper part,
    from which a band leads to the next. ``over``: who did not go on never will."""
    scale = HEIGHT / max(most, 1)
    bars, bands = [], []
    for number, rung in enumerate(rungs):
        last = number == len(rungs) - 1
        x, entered, went = number * STEP, rung["entered"], rung["wentOn"]
        rung["stayed"] = entered - went
        rung["words"] = _stayed(rung["stayed"], last, over)
        text = f"{show.number(entered)} came this far, {show.number(went)} went on, {rung['words']}"
        if rung["cutOff"] is not None:
            text += f"; the cut-off is {show.number(rung['cutOff'])}"
        bars.append(
            {
                "x": x,
                "went": round(went * scale, 2),
                "stayed": round(rung["stayed"] * scale, 2),
                "kind": "finished" if last else "stopped" if over else "here",
                "counts": f"{show.number(entered)} → {show.number(went)}" if not last else show.number(entered),
                "length": f"{_length(rung)} {unit}".strip(),
                "told": f"{_length(rung)} {unit}: {text}",
            }
        )
        if not last and went:
            right, there = x + STEP, rungs[number + 1]["entered"]
            corners = [
                (x + COLUMN, 0),
                (right, 0),
                (right, round(there * scale, 2)),
                (x + COLUMN, round(went * scale, 2)),
            ]
            bands.append(" ".join(f"{a},{HEAD + b}" for a, b in corners))
    width = (len(rungs) - 1) * STEP + COLUMN
    return {
        "bars": bars,
        "bands": bands,
        "width": width,
        "height": HEAD + HEIGHT + FOOT,
        "column": COLUMN,
        "head": HEAD,
        "full": HEIGHT,
    }


def _length(rung: Json) -> str:
    length = rung["length"]
    return show.number(int(length) if length == int(length) else length)


def _stayed(count: int, last: bool, over: bool) -> str:
    if last:
        return f"{count} at the top"
    return f"{count} were stopped" if over else f"{count} are not further"
