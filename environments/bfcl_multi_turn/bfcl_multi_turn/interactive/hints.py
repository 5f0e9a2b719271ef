"""Error texts that say what is wrong and what to do next, for training runs that ask for them.

The tools are BFCL's own and do what they always do; only the text of some errors is rewritten on its way to the model,
in the situations that EnvTuning's augmented environment covers. Grading executes the calls again without this, so a
hint can change what a model does next and never how it is judged. An error that was raised keeps its prefix, so that
step codes do not change either.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from bfcl_multi_turn.interactive.records import ParsedCall

RAISED = "Error during execution: "
_FORBIDDEN = '|/\\?%*:"><'
_CURRENCIES = ("AUD", "BRL", "CAD", "CHF", "CNY", "EUR", "GBP", "INR", "JPY", "KRW", "MXN", "NZD", "RMB", "RUB", "SGD")
_NAME_ARGUMENTS = ("file_name", "file_name1", "file_name2", "dir_name", "source", "destination", "folder")
_FILE_TOOLS = frozenset(
    {"cat", "cp", "diff", "echo", "grep", "mkdir", "mv", "rm", "rmdir", "sort", "tail", "touch", "wc"}
)

Explainer = Callable[[ParsedCall, str, Any], str | None]


def explain(call: ParsedCall, result: str, instances: Mapping[str, Any]) -> str:
    """The result of a call as the model is to see it: reworded if it is an error of a known kind, else unchanged.

    Args:
        call: what was called.
        result: BFCL's result text.
        instances: the tools by class name, after the call.
    """
    error = _error(result)
    if error is None:
        return result
    for class_name, explainer in _EXPLAINERS.items():
        if class_name in instances and (text := explainer(call, error, instances[class_name])) is not None:
            return f"{RAISED}{text}" if result.startswith(RAISED) else json.dumps({"error": text})
    return result


def _error(result: str) -> str | None:
    if result.startswith(RAISED):
        return result.removeprefix(RAISED)
    if not result.startswith("{"):
        return None
    try:
        value = json.loads(result)
    except ValueError:
        return None
    return str(value["error"]) if isinstance(value, dict) and "error" in value else None


def _files(call: ParsedCall, error: str, system: Any) -> str | None:
    if call.name not in _FILE_TOOLS:
        return None
    names = [str(call.arguments[key]) for key in _NAME_ARGUMENTS if key in call.arguments]
    paths = [name for name in names if "/" in name]
    if paths:
        return (
            f"{call.name}: {paths[0]!r} is a path, and paths are not accepted here. Go to the directory with cd, one "
            "level at a time, and give a bare name in the current directory."
        )
    if "Invalid character" in error:
        return f"{call.name}: the name holds a forbidden character. None of these is allowed: {' '.join(_FORBIDDEN)}"
    found = {name: system._current_dir._get_item(name) for name in names}
    if call.name == "diff":
        problems = [_problem(name, item) for name, item in found.items()]
        return f"diff: {' and '.join(problem for problem in problems if problem)}." if any(problems) else None
    directories = [name for name, item in found.items() if _is_directory(item)]
    if directories and call.name in ("cat", "echo", "grep", "sort", "tail", "wc"):
        return f"{call.name}: {directories[0]!r} is a directory, not a file. Give the name of a file."
    return None


def _problem(name: str, item: Any) -> str:
    if item is None:
        return f"{name!r} does not exist in the current directory"
    return f"{name!r} is a directory" if _is_directory(item) else ""


def _is_directory(item: Any) -> bool:
    return hasattr(item, "contents")


def _travel(call: ParsedCall, error: str, travel: Any) -> str | None:
    if call.name in ("get_flight_cost", "book_flight") and ("route" in error or "airport code" in error):
        known = set(travel.list_all_airports())
        sides = {"departure": call.arguments.get("travel_from"), "destination": call.arguments.get("travel_to")}
        wrong = [
            f"the {side} {code!r} is not a valid airport code" for side, code in sides.items() if code not in known
        ]
        if wrong:
            return (
                f"{call.name}: {' and '.join(wrong)}. list_all_airports lists the codes; get_nearest_airport_by_city "
                "gives the code for a city."
            )
    if call.name == "compute_exchange_rate" and "exchange rate" in error:
        pair = f"{call.arguments.get('base_currency')} to {call.arguments.get('target_currency')}"
        return f"{call.name}: there is no rate for {pair}. Supported are USD with {', '.join(_currencies(travel))}."
    return None


def _currencies(travel: Any) -> list[str]:
    """The currencies that can be exchanged with US dollars, asked of the tool itself."""
    supported = []
    for currency in _CURRENCIES:
        try:
            travel.compute_exchange_rate("USD", currency, 1.0)
        except ValueError:
            continue
        supported.append(currency)
    return supported


def _vehicle(call: ParsedCall, error: str, vehicle: Any) -> str | None:
    if call.name == "get_outside_temperature_from_weather_com":
        return "The weather.com service is unavailable. Use get_outside_temperature_from_google instead."
    if call.name == "estimate_distance":
        pair = f"{call.arguments.get('cityA')!r} and {call.arguments.get('cityB')!r}"
        return (
            f"estimate_distance: {pair} is no known pair of zip codes. get_zipcode_based_on_city gives the zip code "
            "of a city."
        )
    return None


_EXPLAINERS: dict[str, Explainer] = {"GorillaFileSystem": _files, "TravelAPI": _travel, "VehicleControlAPI": _vehicle}
