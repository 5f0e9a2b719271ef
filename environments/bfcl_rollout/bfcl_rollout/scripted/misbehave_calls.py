"""Tool calls that go wrong: arguments, names, types, batches, and destructive ones.

In prompting mode, where calls are text, the kinds that are about JSON have no counterpart and return None; there
`written_call` stands for them.
"""

from __future__ import annotations

import json

from bfcl_rollout.scripted.notes import ARCHIVAL_LENGTH, SUMMARY_LENGTH, memory_in_prompt
from bfcl_rollout.scripted.reply import Call, Reply
from bfcl_rollout.scripted.scene import Scene, kinds

_UNKNOWN_TOOLS = ("core_memory_append", "search_memory", "archival_memory_export", "memory_summarise")
_REPLACE_BELOW = 3000
"""Characters of memory at the start of a session up to which a replacement of nothing may double it."""


def _raw(scene: Scene, arguments: str) -> Reply | None:
    if scene.prompting:
        return None
    return Reply(calls=(Call(scene.write("").name, arguments),))


def invalid_json(scene: Scene) -> Reply | None:
    return _raw(scene, scene.pick("json", ('{"text": "unfinished', "{'text': 'Python'}", "{text: 1}", "{}{}", "{")))


def empty_arguments(scene: Scene) -> Reply | None:
    return _raw(scene, "")


def list_arguments(scene: Scene) -> Reply | None:
    return _raw(scene, scene.pick("list", ("[]", '["a", "b"]', '[{"text": "a"}]')))


def null_arguments(scene: Scene) -> Reply | None:
    return _raw(scene, "null")


def number_arguments(scene: Scene) -> Reply | None:
    return _raw(scene, scene.pick("number", ("42", "-1.5e3", "true")))


def string_arguments(scene: Scene) -> Reply | None:
    return _raw(scene, json.dumps(scene.word()))


def double_encoded_arguments(scene: Scene) -> Reply | None:
    return _raw(scene, json.dumps(scene.write(scene.word()).arguments))


def not_a_number(scene: Scene) -> Reply | None:
    """JSON that only Python accepts: the value becomes a name in BFCL's call text."""
    return _raw(scene, scene.pick("nan", ('{"top_k": NaN}', '{"text": Infinity}', '{"key": "a", "value": -Infinity}')))


def odd_arguments(scene: Scene) -> Reply | None:
    """Unusual white space, the order of keys reversed, a key given twice, characters escaped and not."""
    call = scene.write(scene.word() + " – Größe 漢字 🙂")
    pairs = list(json.loads(call.arguments).items())
    if not pairs or scene.prompting:
        return None
    texts = [
        f"{json.dumps(key)} :\t{json.dumps(value, ensure_ascii=index % 2 == 0)}"
        for index, (key, value) in enumerate(reversed([pairs[0], *pairs]))
    ]
    return Reply(calls=(Call(call.name, "\n {  " + " ,\r\n".join(texts) + "  }\n"),))


def unknown_tool(scene: Scene) -> Reply | None:
    return scene.say([Call.of(scene.pick("unknown", _UNKNOWN_TOOLS), text=scene.word())])


def private_tool(scene: Scene) -> Reply | None:
    name = scene.pick("private", ("_flush_memory_to_local_file", "_dump_core_memory_to_context", "_load_scenario"))
    return scene.say([Call(name, "{}")])


def wrong_argument(scene: Scene) -> Reply | None:
    return scene.say([Call.of(scene.write("").name, content=scene.word(), note="x")])


def keyword_argument(scene: Scene) -> Reply | None:
    """An argument name that is a word of Python's grammar: the call text does not compile."""
    if scene.prompting:
        return None
    return scene.say([Call(scene.write("").name, json.dumps({"from": scene.word()}))])


def missing_argument(scene: Scene) -> Reply | None:
    return scene.say([Call(scene.write("").name, "{}")])


def string_id(scene: Scene) -> Reply | None:
    if scene.backend == "vector":
        return scene.say([Call.of("archival_memory_update", vec_id="0", new_text=scene.word())])
    if scene.backend == "kv":
        return scene.say([Call.of("archival_memory_key_search", query=scene.word(), k="3")])
    return None


def wrong_type(scene: Scene) -> Reply | None:
    values: tuple[object, ...] = (7, 1.5, True, None, ["a", "b"], [])
    if scene.backend != "vector":
        # What sentence-transformers makes of a dictionary, or of a query that is no text, changes with its version.
        values += ({"a": {"b": [1]}},)
    value = scene.pick("type", values)
    if scene.backend == "kv":
        name = scene.pick("type tool", ("core_memory_add", "archival_memory_retrieve", "archival_memory_key_search"))
        arguments = {"query": value} if name.endswith("search") else {"key": value}
        return scene.say([Call.of(name, **arguments, **({"value": value} if name.endswith("add") else {}))])
    if scene.backend == "vector":
        return scene.say([Call.of(scene.pick("type tool", ("core_memory_add", "archival_memory_add")), text=value)])
    if scene.backend == "rec_sum":
        return scene.say([Call.of("memory_append", text=value)])
    return None


def extreme_number(scene: Scene) -> Reply | None:
    value = scene.pick("extreme", (0, -1, 10**6, 2.0, True))
    if scene.backend == "kv":
        return scene.say([Call.of("archival_memory_key_search", query=scene.word(), k=value)])
    if scene.backend == "vector":
        return scene.say([Call.of("archival_memory_retrieve", query=scene.word(), top_k=value)])
    return None


def bad_key(scene: Scene) -> Reply | None:
    if scene.backend != "kv":
        return None
    key = scene.pick("bad key", ("Not Snake Case", "order1", "", "_a", "größe", "line_break\n", "a" * 500))
    return scene.say([Call.of("core_memory_add", key=key, value=scene.word())])


def oversized_value(scene: Scene) -> Reply | None:
    length = SUMMARY_LENGTH if scene.backend == "rec_sum" else ARCHIVAL_LENGTH
    return scene.say([scene.write("x" * (length + 1))])


def odd_text(scene: Scene) -> Reply | None:
    """Characters that are hard on whoever quotes, encodes or prints them."""
    text = scene.pick(
        "odd", ("\x00\x07\x7f", "a\u2028b\u202ec", 'it\'s "quoted" \\ and \\n', "{'a': [1}", "%s {0} $x", "\r\n\t")
    )
    return scene.say([scene.write(text + scene.word())])


def tool_name_in_text(scene: Scene) -> Reply | None:
    """Stored text that looks like a call. BFCL rewrites tool names in front of a bracket, even inside
    strings."""
    name = {"rec_sum": "memory_clear", "kv": "core_memory_clear", "vector": "core_memory_clear"}
    text = f"{name.get(scene.backend or '', 'help')} (now) and {scene.word()} (later)"
    return scene.say([scene.write(text)])


def parallel_calls(scene: Scene) -> Reply | None:
    return scene.say([scene.write(scene.text[:200]), scene.read(), scene.write(scene.word())])


def duplicate_calls(scene: Scene) -> Reply | None:
    return scene.say([scene.write(scene.text[:200])] * 2)


def bad_call_in_good_batch(scene: Scene) -> Reply | None:
    if scene.prompting:
        return None
    bad = Call(scene.write("").name, scene.pick("bad", ("", "{", "[]", "null")))
    return Reply(calls=(scene.write(scene.text[:200]), bad, scene.read()))


def failing_call_in_good_batch(scene: Scene) -> Reply | None:
    """Like the above, but the bad call decodes, so the others are executed."""
    return scene.say([scene.read(), Call.of(scene.pick("unknown", _UNKNOWN_TOOLS)), scene.write(scene.word())])


def written_call(scene: Scene) -> Reply | None:
    """Prompting mode only: calls that are Python without being what was asked for."""
    if not scene.prompting:
        return None
    name, word = scene.write("").name, scene.word()
    forms = (
        f"[{name}(text='{word}]",
        f"[{name}('{word}', '{word}')]",
        f"{name}(text='{word}')",
        f"[{name}(text='{word}'), {name}]",
        f"[{name}(key={word}, value=[-1, {{'a': None}}, (True,)])]",
        f"[{name}({'key=1, value' if scene.backend == 'kv' else 'text'}={_nested(scene, word)})]",
        f'[{{"name": "{name}", "parameters": {{"text": "{word}"}}}}]',
        f"<TOOLCALL>[{name}(text='{word}')]</TOOLCALL>",
    )
    return Reply(scene.pick("written", forms))


def _nested(scene: Scene, word: str) -> str:
    """A call as an argument, which BFCL's prompting decoder lets through."""
    if scene.backend == "kv":
        return f"core_memory_retrieve(key='{word}')"
    if scene.backend == "rec_sum":
        return f"memory_replace(old_text='{word}', new_text='{word}')"
    return f"'{word}'"


def text_with_calls(scene: Scene) -> Reply | None:
    if scene.prompting:
        return Reply(f"Let me write that down: {scene.say([scene.write(scene.word())]).content}")
    return scene.say([scene.write(scene.word())], "Let me write that down.")


def clear(scene: Scene) -> Reply | None:
    if scene.backend is None or scene.question:
        return None
    name = (
        "memory_clear"
        if scene.backend == "rec_sum"
        else scene.pick("clear", ("core_memory_clear", "archival_memory_clear"))
    )
    return scene.say([Call(name, "{}"), scene.write(scene.text[:1000])])


def overwrite(scene: Scene) -> Reply | None:
    """Replace what was stored by something else, or remove it."""
    if scene.backend == "rec_sum":
        return scene.say([Call.of("memory_update", text=scene.text[:1000])])
    if scene.backend == "vector":
        return scene.say(
            [
                Call.of("archival_memory_update", vec_id=scene.draw("id", 4), new_text=scene.word()),
                Call.of("core_memory_remove", vec_id=0),
            ]
        )
    keys = [str(each.arguments["key"]) for each in scene.conversation.results if "key" in each.arguments]
    if scene.backend == "kv" and keys:
        return scene.say(
            [Call.of("archival_memory_replace", key=keys[-1], value=""), Call.of("core_memory_remove", key=keys[0])]
        )
    return None


def replace_nothing(scene: Scene) -> Reply | None:
    """Replace the empty text, which inserts the new one between all characters. Once a session, on a small
    memory."""
    tried = any(each.name == "memory_replace" for each in scene.conversation.results)
    if scene.backend != "rec_sum" or tried or len(memory_in_prompt(scene.conversation)) > _REPLACE_BELOW:
        return None
    return scene.say([Call.of("memory_replace", old_text="", new_text="#")])


KINDS = kinds(
    invalid_json,
    empty_arguments,
    list_arguments,
    null_arguments,
    number_arguments,
    string_arguments,
    double_encoded_arguments,
    not_a_number,
    odd_arguments,
    unknown_tool,
    private_tool,
    wrong_argument,
    keyword_argument,
    missing_argument,
    string_id,
    wrong_type,
    extreme_number,
    bad_key,
    oversized_value,
    odd_text,
    tool_name_in_text,
    parallel_calls,
    duplicate_calls,
    bad_call_in_good_batch,
    failing_call_in_good_batch,
    text_with_calls,
)
# Few enough destructive calls that memory keeps something; kinds that seldom fit are drawn more often.
KINDS |= kinds(clear, overwrite, weight=0.5) | kinds(written_call, weight=3) | kinds(replace_nothing, weight=20)
