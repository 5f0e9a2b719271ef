"""What a model is shown: nothing of the label, the same options in every order, other catalogues only on request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from bfcl_rollout.errors import SetupError
from bfcl_routing import policies, source
from bfcl_routing.cases import META_IDS, SUITES, Case, load_cases
from bfcl_routing.catalogue import alike, last_part, screened, with_catalogue
from bfcl_routing.forms import build, tool_names
from bfcl_routing.manifest import load_manifest
from bfcl_routing.scoring import declines, route_correct
from bfcl_routing.taskset import plays
from bfcl_routing.view import View, letter_code, option_order, show
from bfcl_routing.wording import NEUTRAL
from pydantic import ValidationError
from routing_helpers import ALL_FORMS, body_of, play, task_data

CARDS = ("suite", "short120", "full", "schema", "name")
IDS = ("native", "opaque", "letters")
METAS = ("three", "neutral", "generic", "none")
ORDERS = ("frozen", "reversed", "meta_last", "rotations", "rotate:2", "shuffle:1")


def some_views(suite: str) -> Iterator[View]:
    """Every form with every card and id policy, and with every other policy."""
    make: Any = View
    for form in ALL_FORMS:
        pairs = [(card, ids) for card in CARDS for ids in IDS if card != "name" or ids == "native"]
        yield from (make(suite=suite, form=form, card=card, ids=ids) for card, ids in pairs)
        yield from (make(suite=suite, form=form, meta=meta) for meta in METAS)
        yield from (make(suite=suite, form=form, order=order) for order in ORDERS)


def sent(case: Case, view: View) -> list[str]:
    """Everything that leaves for the model, as text."""
    return [
        json.dumps([d.system_prompt, d.prompt, d.request], ensure_ascii=False)
        for d in plays(case, view, NEUTRAL, "digest")
    ]


@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES)
def test_no_prompt_depends_on_the_label(suite: str) -> None:
    """The same case with every possible label gives the same prompt, so no prompt can hold it."""
    for view in some_views(suite):
        for case in load_cases(suite):
            other = next((n for n in case.names if n not in case.gold), None)
            relabelled = [case.model_copy(update={"gold": ()})]
            if other is not None:
                relabelled.append(case.model_copy(update={"gold": (other,), "stratum": "multi_tool_no_call"}))
            prompts = sent(case, view)
            assert all(sent(changed, view) == prompts for changed in relabelled), (view.name, case.id)


@pytest.mark.parametrize("suite", SUITES)
def test_no_prompt_names_stratum_reference_or_schema(suite: str) -> None:
    references: dict[str, list[str]] = {}
    for entry in load_manifest(suite).cases:
        found = source.answers(entry.category).get(entry.row_id) or []
        # Call strings are text of their own; argument maps stand in no prompt form.
        references[entry.id] = [r if isinstance(r, str) else json.dumps(r) for r in found]
    words = ("gold", "stratum", "one_tool_call", "one_tool_no_call", "multi_tool_call", "single_call")
    for form in ALL_FORMS:
        view = View(suite=suite, form=form)
        for case in load_cases(suite):
            (text,) = sent(case, view)
            own = json.dumps([case.request, case.functions], ensure_ascii=False)
            assert not [w for w in words if w in text and w not in own], case.id
            assert not [r for r in references[case.id] if r in text], case.id
            for data in plays(case, view, NEUTRAL, ""):
                tools = data.request.get("tools", [])
                assert all(t["function"]["parameters"] == {"type": "object", "properties": {}} for t in tools)
            if form != "tool_call" and form != "json_choice":
                assert '\\"properties\\"' not in text, case.id


def test_schema_views_do_show_schemas() -> None:
    data = task_data(View(card="schema"))[0]
    assert isinstance(data.prompt, str)
    assert '"properties"' in data.prompt
    tools = task_data(View(card="schema", form="tool_call", meta="none"))[0].request["tools"]
    assert tools[0]["function"]["parameters"]["properties"]


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("ids", IDS)
def test_an_order_changes_neither_options_nor_labels(suite: str, ids: str) -> None:
    for order in ORDERS:
        view, plain = (View(suite=suite, ids=ids, order=o) for o in (order, "frozen"))
        for case in load_cases(suite):
            expected = show(case, plain, NEUTRAL)
            pairs = dict(zip(expected.actions, expected.shown.options, strict=True))
            for rotation in range(len(case.functions) if order == "rotations" else 1):
                found = show(case, view, NEUTRAL, rotation)
                assert dict(zip(found.actions, found.shown.options, strict=True)) == pairs
                assert len(found.actions) == len(pairs)
                assert found.gold == expected.gold


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("form", ALL_FORMS)
def test_an_order_blind_policy_scores_the_same_in_every_order(suite: str, form: str) -> None:
    right = set()
    for order in ("frozen", "reversed", "meta_last", "rotate:1", "shuffle:7"):
        tasks = task_data(View(suite=suite, form=form, order=order))
        right.add(frozenset(d.id for d in tasks if route_correct(play(policies.choose_words, d), d.gold)))
    assert len(right) == 1
    assert len(next(iter(right))) > 160


def test_orders() -> None:
    assert option_order(3, 3, "frozen", 0, "c") == [0, 1, 2, 3, 4, 5]
    assert option_order(3, 3, "reversed", 0, "c") == [5, 4, 3, 2, 1, 0]
    assert option_order(3, 3, "meta_last", 0, "c") == [3, 4, 5, 0, 1, 2]
    assert option_order(3, 3, "rotate:4", 0, "c") == [0, 1, 2, 4, 5, 3]
    assert option_order(1, 3, "rotations", 2, "c") == [0, 3, 1, 2]
    assert option_order(3, 0, "rotate:4", 0, "c") == [0, 1, 2]
    shuffled = [option_order(3, 4, "shuffle:1", 0, case) for case in "abcdef"]
    assert all(sorted(order) == list(range(7)) for order in shuffled)
    assert len({tuple(order) for order in shuffled}) > 1
    for bad in ("random", "rotate", "rotate:-1", "shuffle:", "frozen "):
        with pytest.raises(ValidationError, match="order is"):
            View(order=bad)


def test_rotations_show_every_case_in_every_rotation() -> None:
    tasks = task_data(View(order="rotations"))
    assert len(tasks) == sum(len(case.functions) for case in load_cases("v1")) == 527
    assert len({(d.id, d.rotation) for d in tasks}) == 527


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("form", ALL_FORMS)
def test_baselines_and_oracle_in_every_form(suite: str, form: str) -> None:
    tasks = task_data(View(suite=suite, form=form))
    choosers = (policies.choose_first, policies.choose_last, policies.choose_none, policies.choose_oracle)
    scores = [sum(route_correct(play(choose, d), d.gold) for d in tasks) for choose in choosers]
    assert scores == ([106, 114, 50, 250] if suite == "v1" else [116, 107, 50, 250])


@pytest.mark.parametrize("suite", SUITES)
def test_the_oracle_is_right_under_every_view(suite: str) -> None:
    for view in some_views(suite):
        if view.meta == "none" and view.form != "tool_call":
            continue  # a forced choice, which no answer gets right on negatives
        wrong = [d.id for d in task_data(view) if not route_correct(play(policies.choose_oracle, d), d.gold)]
        assert not wrong, view.name


def test_longest_card_baseline() -> None:
    for suite, expected in (("v1", 121), ("v4_live", 116)):
        tasks = task_data(View(suite=suite))
        assert sum(route_correct(play(policies.choose_longest, d), d.gold) for d in tasks) == expected


def test_a_forced_choice_cannot_decline() -> None:
    tasks = task_data(View(meta="none"))
    assert not any(declines(action) for d in tasks for action in d.actions)
    assert not any(route_correct(play(policies.choose_none, d), d.gold) for d in tasks)
    # Without meta tools a reply without a call declines.
    tasks = task_data(View(meta="none", form="tool_call"))
    assert sum(route_correct(play(policies.choose_none, d), d.gold) for d in tasks) == 50


def test_tool_names_are_accepted_by_tool_apis_and_lead_back() -> None:
    assert tool_names(["a.b", "a_b", "a-b", "x" * 70, "x" * 80]) == ["a_b", "a_b_2", "a-b", "x" * 64, "x" * 62 + "_2"]
    replaced = 0
    for suite in SUITES:
        for data in task_data(View(suite=suite, form="tool_call")):
            assert len(set(data.codes)) == len(data.codes) == len(data.actions)
            assert all(len(c) <= 64 and c.replace("-", "_").isidentifier() for c in data.codes)
            replaced += sum(c != a for c, a in zip(data.codes, data.actions, strict=True))
    assert replaced == 216 + 161


def test_neutral_ids_say_nothing() -> None:
    data = task_data(View(ids="opaque", order="rotate:1"))[0]
    assert data.codes[:3] == list(META_IDS)
    assert sorted(data.codes[3:]) == ["action_1", "action_2", "action_3"]
    assert not any(a in str(data.prompt) for a in data.actions[3:])
    assert [letter_code(i) for i in (0, 25, 26, 27, 52)] == ["A", "Z", "AA", "AB", "BA"]


def test_json_choice_allows_the_offered_ids_only() -> None:
    for data in task_data(View(form="json_choice"))[:50]:
        schema = data.request["response_format"]["json_schema"]["schema"]
        assert schema["properties"]["choice"]["enum"] == data.codes


def test_views_have_names_and_different_hashes() -> None:
    views = [
        View(),
        View(suite="v4_live"),
        *(View(form=f) for f in ALL_FORMS[1:]),
        *(View(card=c) for c in CARDS[2:]),
        *(View(ids=i) for i in IDS[1:]),
        *(View(meta=m) for m in METAS[1:]),
        *(View(order=o) for o in ORDERS[1:]),
        View(catalogue_k=8),
        View(catalogue_k=8, seed=1),
        View(catalogue_k=8, sampler="nearest"),
        View(gold_removed=True),
    ]
    assert len({v.sha256(NEUTRAL) for v in views}) == len({v.name for v in views}) == len(views)
    assert View().name == "v1/neutral/id_text"
    # What changes nothing changes no hash.
    assert View(card="short120").sha256(NEUTRAL) == View().sha256(NEUTRAL)
    assert View(seed=5).sha256(NEUTRAL) == View().sha256(NEUTRAL)
    other = NEUTRAL.model_copy(update={"instruction": "Choose."})
    assert View().sha256(other) != View().sha256(NEUTRAL)


@pytest.mark.parametrize("sampler", ["random", "nearest"])
def test_enlarged_catalogues_are_screened_and_keep_the_label(sampler: str) -> None:
    view = View(catalogue_k=24, sampler=sampler)
    positions = []
    for case in load_cases("v1")[::5]:
        offered = with_catalogue(case, view)
        assert offered is not None
        assert offered == with_catalogue(case, view)
        assert len(offered.functions) == len(set(offered.names)) == 24
        assert set(case.names) <= set(offered.names)
        assert offered.gold == case.gold
        added = [f for f in offered.functions if f["name"] not in case.names]
        right = [f for f in case.functions if f["name"] in case.gold]
        assert not [f for f in added if any(alike(f, r) for r in right)]
        assert not {last_part(f["name"]) for f in added} & {last_part(n) for n in case.names}
        positions += [offered.names.index(g) for g in offered.gold]
    # The right function is not always among the first.
    assert max(positions) > 15


def test_the_seed_and_the_sampler_choose_other_functions() -> None:
    case = load_cases("v1")[0]
    views = (View(catalogue_k=8), View(catalogue_k=8, seed=1), View(catalogue_k=8, sampler="nearest"))
    found = [with_catalogue(case, view) for view in views]
    assert len({tuple(sorted(c.names)) for c in found if c is not None}) == 3
    native = with_catalogue(case, View(catalogue_k=2))
    assert native == case


def test_negatives_are_screened_by_their_request() -> None:
    negative = next(case for case in load_cases("v1") if not case.gold)
    names = {profile.name for profile in screened(negative, [])}
    positive = negative.model_copy(update={"gold": ("x",)})
    assert names < {profile.name for profile in screened(positive, [])}


def test_taking_the_right_function_away_makes_paired_negatives() -> None:
    for suite, expected in (("v1", 111), ("v4_live", 130)):
        tasks = task_data(View(suite=suite, gold_removed=True))
        originals = {case.id: case for case in load_cases(suite)}
        # The rest leaves a function that may fit.
        assert len(tasks) == expected
        for data in tasks:
            assert not data.gold
            assert data.stratum in ("one_tool_no_call", "multi_tool_no_call")
            assert not set(originals[str(data.id)].gold) & set(data.actions)


def test_views_that_cannot_be_expressed_say_why() -> None:
    case = load_cases("v1")[0]
    with pytest.raises(ValidationError, match="letters_logprob can tell 20 options apart"):
        View(form="letters_logprob", catalogue_k=24)
    with pytest.raises(ValidationError, match="ids must be native"):
        View(card="name", ids="opaque")
    many = case.model_copy(update={"functions": case.functions * 8})
    with pytest.raises(SetupError, match="letters_logprob can tell 20 options apart"):
        list(plays(many, View(form="letters_logprob"), NEUTRAL, ""))
    with pytest.raises(SetupError, match="functions pass the screens"):
        list(plays(case, View(catalogue_k=5000), NEUTRAL, ""))
    with pytest.raises(ValueError, match="offers nothing"):
        show(case.model_copy(update={"functions": (), "gold": ()}), View(meta="none"), NEUTRAL)


def test_the_builder_gets_nothing_but_what_is_shown() -> None:
    play_ = show(load_cases("v1")[0], View(), NEUTRAL)
    assert set(play_.shown._fields) == {"state", "instruction", "options"}
    assert set(play_.shown.options[0]._fields) == {"id", "card", "kind", "parameters"}
    assert build("id_text", play_.shown).user == task_data(View())[0].prompt


def test_prompts_can_be_read_back() -> None:
    for suite in SUITES:
        for form in ALL_FORMS:
            for data, case in zip(
                task_data(View(suite=suite, form=form)),
                load_cases(suite),
                strict=True,
            ):
                question = policies.read(body_of(data))
                assert question.form == form
                assert question.request == " ".join(case.request.split())
                assert [o.code for o in question.options] == data.codes
                assert [o.no_function for o in question.options] == [declines(a) for a in data.actions]
