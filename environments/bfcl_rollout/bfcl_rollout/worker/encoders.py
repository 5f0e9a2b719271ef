"""The processes that embed texts for all workers: trusted, one thread each, never given model output to execute.

`EncoderPool` lives in the zygote. It starts encoder processes and gives each worker a connection to one of them. An
encoder answers one question at a time, in turn; it looks up the batch among the remembered ones, else computes it and
remembers it. It reads what hostile workers send, so it is confined like one, may write nothing but the store, and
drops whoever breaks the protocol. If an encoder dies, the rollouts connected to it fail, and the next one starts anew.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy.typing as npt

from bfcl_rollout.records import Limits
from bfcl_rollout.worker import embeddings, limits
from bfcl_rollout.worker.remembered import EmbeddingStore

MAX_REMEMBERED = 50
"""Texts of the largest batch that is remembered: a full archive (`memory_vector.py:22`)."""
MAX_TEXTS = 2000
"""Texts of one batch. BFCL's longest is 50; a list in place of a text may have 2,000 items and still reach the
encoder (`memory_vector.py:229`)."""
_LIMITS = Limits.model_validate({"wall_s": 0, "open_files": 4096, "file_mb": 2048})
_PACKAGES = ("torch", "sentence-transformers", "transformers", "tokenizers", "numpy")


class EncoderPool:
    """Encoder processes, and connections to them. For a process with one thread; ends them when it ends.

    Args:
        count: Number of processes.
        store: Folder for remembered embeddings, shared with all other pools; None remembers nothing.

    Raises:
        WeightsError: the weights, or a package that the encoder needs, are not installed.
    """

    def __init__(self, count: int, store: Path | None) -> None:
        for module in ("torch", "sentence_transformers", "faiss"):
            if importlib.util.find_spec(module) is None:
                raise embeddings.WeightsError(f"the vector memory needs the package {module}, which is not installed")
        self.weights = embeddings.locate_weights()
        self._store = store
        with suppress(OSError):
            if store is not None:
                store.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._scratch = Path(tempfile.mkdtemp(prefix="bfcl-encoder-"))
        self._encoders = [self._start() for _ in range(count)]
        self._next = 0

    def connect(self) -> socket.socket:
        """A connection for one worker: pass it to `RemoteEncoder.attach` there and close it here.

        It can be used at once; an encoder that is still loading answers when it is ready.
        """
        self._next = (self._next + 1) % len(self._encoders)
        for _ in range(2):
            control = self._encoders[self._next][0]
            ours, theirs = socket.socketpair()
            try:
                socket.send_fds(control, [b"c"], [theirs.fileno()])
                return ours
            except OSError:
                ours.close()
                self._stop(self._next)
                self._encoders[self._next] = self._start()
            finally:
                theirs.close()
        raise embeddings.EncoderLost("an encoder process ends as soon as it starts")

    def pids(self) -> list[int]:
        """Process ids of the encoders."""
        return [process.pid for _, process in self._encoders]

    def forget(self) -> None:
        """Give up the encoders in a forked child: they remain the parent's."""
        for control, process in self._encoders:
            control.close()
            process.returncode = 0  # nothing to wait for here
        self._encoders = []

    def close(self) -> None:
        """End the encoders."""
        for index in range(len(self._encoders)):
            self._stop(index)
        self._encoders = []
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _start(self) -> tuple[socket.socket, subprocess.Popen[bytes]]:
        ours, theirs = socket.socketpair()
        with theirs:
            remember = self._store is not None and self._store.is_dir()
            folder = self._store if remember else self._scratch
            arguments = [str(theirs.fileno()), str(os.getpid()), str(self.weights.path), str(folder)]
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, *arguments, "store" if remember else "none"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=limits.clean_environment(os.environ) | {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"},
                start_new_session=True,
            )
        return ours, process

    def _stop(self, index: int) -> None:
        control, process = self._encoders[index]
        control.close()
        process.kill()
        process.wait()


def load_encoder(weights: Path) -> Any:
    """The SentenceTransformer that BFCL would load, from local files. One thread, as in official runs."""
    import torch

    torch.set_num_threads(1)
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(weights), device="cpu")


def fingerprint(weights: Path) -> str:
    """SHA-256 over what decides the bits of a vector: files of the model, package versions, kind of processor."""
    import torch

    digest = hashlib.sha256()
    for file in sorted(path for path in weights.rglob("*") if path.is_file()):
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    for package in _PACKAGES:
        digest.update(f"{package}={importlib.metadata.version(package)};".encode())
    digest.update(f"{platform.machine()};{torch.backends.cpu.get_cpu_capability()};".encode())
    with suppress(OSError):
        # The linear algebra libraries choose their kernels by model and features.
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        kinds = {line for line in lines if line.startswith(("vendor_id", "model", "flags", "Features", "CPU part"))}
        digest.update("\n".join(sorted(kinds)).encode())
    return digest.hexdigest()


class Server:
    """Answers questions on any number of connections, without ever waiting for one of them."""

    def __init__(self, control: socket.socket, encode: Callable[[Any], npt.NDArray[Any]]) -> None:
        self._encode = encode
        self._control = control
        self._buffers: dict[socket.socket, tuple[bytearray, bytearray]] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)

    def serve(self) -> None:
        """Run until the pool closes the control connection."""
        while True:
            for key, _ in self._selector.select():
                connection: Any = key.fileobj
                if connection is not self._control:
                    self._attend(connection)
                elif not self._accept():
                    return

    def _accept(self) -> bool:
        message, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
        for descriptor in descriptors:
            connection = socket.socket(fileno=descriptor)
            connection.setblocking(False)
            self._buffers[connection] = (bytearray(), bytearray())
            self._selector.register(connection, selectors.EVENT_READ)
        return bool(message)

    def _attend(self, connection: socket.socket) -> None:
        asked, answer = self._buffers[connection]
        try:
            if not answer:
                data = connection.recv(1 << 16)
                if not data:
                    raise ConnectionError("the worker has gone")
                asked += data
                request = embeddings.take_frame(asked)
                if request is None:
                    return
                answer += embeddings.frame(self._reply(request))
            del answer[: connection.send(answer)]
        except BlockingIOError:
            pass
        except (OSError, ValueError, RecursionError, MemoryError):
            # Gone, or not what the protocol says, or ours: for the worker the encoder is lost.
            self._selector.unregister(connection)
            del self._buffers[connection]
            connection.close()
            return
        events = selectors.EVENT_WRITE if answer else selectors.EVENT_READ
        self._selector.modify(connection, events)

    def _reply(self, request: bytes) -> bytes:
        """The reply to one question. Raises ValueError or MemoryError if it gets none."""
        inputs = embeddings.from_json(json.loads(request))
        if isinstance(inputs, list) and len(inputs) > MAX_TEXTS:
            raise ValueError("too many texts")
        try:
            return embeddings.VECTORS + embeddings.pack_vectors(self._encode(inputs))
        except MemoryError:
            raise
        except Exception as error:
            if isinstance(error, (RuntimeError, OSError)) and is_batch(inputs):
                raise MemoryError("the encoder failed on plain texts") from error
            return embeddings.FAILED + json.dumps(str(error)).encode()


def is_batch(inputs: Any) -> bool:
    """Whether this is a plain list of texts, the only thing that is remembered."""
    return isinstance(inputs, list) and all(isinstance(text, str) for text in inputs)


def remembering(encode: Callable[[Any], npt.NDArray[Any]], store: EmbeddingStore) -> Callable[[Any], npt.NDArray[Any]]:
    """`encode` that first looks into `store`, by the exact batch."""

    def look_up(inputs: Any) -> npt.NDArray[Any]:
        if not is_batch(inputs) or len(inputs) > MAX_REMEMBERED:
            return encode(inputs)
        vectors = store.get(inputs)
        if vectors is None:
            vectors = encode(inputs)
            store.put(inputs, vectors)
        return vectors

    return look_up


def main(argv: list[str]) -> None:
    """`python -m bfcl_rollout.worker.encoders FD PARENT WEIGHTS FOLDER store|none`, started by `EncoderPool`."""
    control, weights, folder = socket.socket(fileno=int(argv[0])), Path(argv[2]), Path(argv[3])
    model = load_encoder(weights)

    def encode(inputs: Any) -> npt.NDArray[Any]:
        vectors: npt.NDArray[Any] = model.encode(inputs, normalize_embeddings=True)
        return vectors

    encode(["warm"])
    answer: Callable[[Any], npt.NDArray[Any]] = encode
    if argv[4] == "store":
        answer = remembering(encode, EmbeddingStore(folder, fingerprint(weights)))
    limits.apply(
        _LIMITS,
        folder=folder,
        readable=limits.code_paths(),
        endpoint=None,
        parent=int(argv[1]),
    )
    Server(control, answer).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
