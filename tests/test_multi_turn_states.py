"""The state of a conversation's tools on its way to the grader."""

from __future__ import annotations

import base64
import copy
import importlib
import pickle
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from bfcl_rollout import official
from bfcl_rollout.worker import states
from multi_turn_helpers import official_entry

official.package_dir()
FUNCTIONS = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"


def tool(entry_id: str, name: str) -> Any:
    with official.project_root():
        from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING
    made = getattr(importlib.import_module(CLASS_FILE_PATH_MAPPING[name]), name)()
    config = copy.deepcopy(official_entry(entry_id)["initial_config"][name])
    made._load_scenario(config, long_context="long_context" in entry_id)
    return made


@pytest.fixture
def tables() -> Iterator[Any]:
    """BFCL's shared tables, as shipped again afterwards."""
    states.keep_tables()
    yield importlib.import_module(f"{FUNCTIONS}.long_context")
    states.set_tables({})


@pytest.mark.parametrize("entry_id", ["multi_turn_base_0", "multi_turn_long_context_0"])
def test_a_file_system_travels(tables: Any, entry_id: str) -> None:
    system = tool(entry_id, "GorillaFileSystem")
    packed = states.pack({"GorillaFileSystem": system})
    world = states.unpack(packed)
    again = states.revive(world)["GorillaFileSystem"]
    assert type(again) is type(system)
    assert states.public_attributes(again) == states.public_attributes(system)
    assert world.tables == {}
    system.mkdir("another")
    assert states.public_attributes(again) != states.public_attributes(system)


def test_what_no_tool_is_made_of_equals_nothing(tables: Any) -> None:
    system = tool("multi_turn_base_0", "GorillaFileSystem")
    system.extra = range(3)
    again = states.revive(states.unpack(states.pack({"GorillaFileSystem": system})))["GorillaFileSystem"]
    assert again.extra != range(3)
    assert again.extra != again.extra


class Attack:
    def __reduce__(self) -> Any:
        return print, ("evaluated",)


@pytest.mark.parametrize("payload", [Attack(), print, {"a": [Attack()]}])
def test_the_unpickler_knows_no_code(payload: object, capsys: pytest.CaptureFixture[str]) -> None:
    text = base64.b64encode(zlib.compress(pickle.dumps(({"X": {"a": payload}}, {})))).decode()
    with pytest.raises(states.StateError, match=r"a state cannot hold builtins\.print"):
        states.unpack(text)
    assert capsys.readouterr().out == ""


def test_shared_tables_travel_and_are_put_back(tables: Any) -> None:
    travel = tool("multi_turn_long_context_150", "TravelAPI")
    card = next(iter(tables.CREDIT_CARD_EXTENSION))
    before = tables.CREDIT_CARD_EXTENSION[card]["balance"]
    travel.credit_card_list[card]["balance"] -= 100
    assert tables.CREDIT_CARD_EXTENSION[card]["balance"] == before - 100  # the instance shares the table's insides
    world = states.unpack(states.pack({"TravelAPI": travel}))
    states.set_tables({})
    assert travel.credit_card_list[card]["balance"] == before
    states.set_tables(world.tables)
    assert travel.credit_card_list[card]["balance"] == before - 100
