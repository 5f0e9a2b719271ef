"""What the tools of a conversation hold, on its way from the process that ran a model's calls to the grader.

The official checker compares the public attributes of two sets of tool instances. One set belongs to the process
that executed the model's calls, the other to the process that knows the accepted ones, so the first travels. It is
pickled, and read by an unpickler that knows nothing but containers, numbers, texts and the classes those attributes
are made of: bytes from a process that ran model output cannot make the grader run anything.

BFCL also keeps some state outside its instances. `long_context` tools are filled from module-level tables, whose
inner dictionaries they share: a booking on such a card changes the table, and officially the accepted calls, executed
in the same process, see the change. The tables travel too, so that here they see it as well.
"""

from __future__ import annotations

import base64
import copy
import datetime
import importlib
import io
import pickle
import zlib
from typing import Any, NamedTuple

_FUNCTIONS = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"
_SHARED_TABLES = ("BOOKING_RECORD_EXTENSION", "CREDIT_CARD_EXTENSION", "LONG_WEATHER_EXTENSION")
_COMPRESSION = 1


class Opaque:
    """Something a tool holds that no accepted state is made of. It equals nothing, not even itself."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


class World(NamedTuple):
    """The tools of one conversation at one moment."""

    attributes: dict[str, dict[str, Any]]
    """Public attributes by class name."""
    tables: dict[str, Any]
    """The shared tables that differ from the shipped ones, by name."""


class StateError(ValueError):
    """A stored state holds something that no state can hold."""


def pack(instances: dict[str, Any]) -> str:
    """The public attributes of all instances, and the shared tables, as base64 text."""
    attributes = {name: public_attributes(instance) for name, instance in instances.items()}
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=5).dump((attributes, _changed_tables()))
    return base64.b64encode(zlib.compress(buffer.getvalue(), _COMPRESSION)).decode()


def unpack(text: str) -> World:
    """Read a packed state.

    Raises:
        StateError: it refers to anything but the plain classes of a state.
    """
    data = zlib.decompress(base64.b64decode(text))
    attributes, tables = _Unpickler(io.BytesIO(data)).load()
    return World(attributes, tables)


def revive(world: World) -> dict[str, Any]:
    """Instances with the stored attributes, by class name, as the official checker wants them."""
    from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING

    instances = {}
    for name, attributes in world.attributes.items():
        class_ = getattr(importlib.import_module(CLASS_FILE_PATH_MAPPING[name]), name)
        instances[name] = object.__new__(class_)
        vars(instances[name]).update(attributes)
    return instances


def public_attributes(instance: object) -> dict[str, Any]:
    """What the official checker compares (`multi_turn_checker.py`, `_compare_instances`)."""
    return {name: value for name, value in vars(instance).items() if not name.startswith("_")}


def keep_tables() -> None:
    """Remember the shared tables as they are shipped. Called once in the zygote."""
    _shipped.update({name: copy.deepcopy(getattr(_long_context(), name)) for name in _SHARED_TABLES})


def set_tables(tables: dict[str, Any]) -> None:
    """Make the shared tables equal to `tables`, and the others as shipped, in place: instances share their insides."""
    for name in _SHARED_TABLES:
        _overwrite(getattr(_long_context(), name), tables.get(name, _shipped[name]))


_shipped: dict[str, Any] = {}


def _changed_tables() -> dict[str, Any]:
    current = {name: getattr(_long_context(), name) for name in _SHARED_TABLES}
    return {name: value for name, value in current.items() if value != _shipped[name]}


def _overwrite(target: dict[str, Any], source: dict[str, Any]) -> None:
    if target == source:
        return
    for key in target.keys() - source.keys():
        del target[key]
    for key, value in source.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            _overwrite(target[key], value)
        else:
            target[key] = copy.deepcopy(value)


def _long_context() -> Any:
    return importlib.import_module(f"{_FUNCTIONS}.long_context")


def _plain_classes() -> dict[tuple[str, str], type]:
    files = importlib.import_module(f"{_FUNCTIONS}.gorilla_file_system")
    classes = (files.File, files.Directory, datetime.datetime, Opaque)
    return {(class_.__module__, class_.__qualname__): class_ for class_ in classes}


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        """Called for everything that is not a plain container, number or text."""
        if type(obj) in _plain_classes().values() or isinstance(obj, type):
            return NotImplemented
        return Opaque, ()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = _plain_classes().get((module, name))
        if found is None:
            raise StateError(f"a state cannot hold {module}.{name}")
        return found
