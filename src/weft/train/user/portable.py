"""A model as plain values and tensors, from which another process makes the same one: no pickle.

Of a module its class is told by name, and what it holds: plain values, functions by their names, tensors,
other modules. A PyG convolution holds more than that; it is made by its constructor first, whose arguments it
keeps under their names. What cannot be told is refused with what to write instead; what can be is made once
here, and compared.
"""

import dataclasses
import json
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from inspect import Parameter, isclass, isroutine, signature
from typing import Any

import torch
from torch import Tensor, nn

from weft.code import load_code, name_of, told
from weft.errors import InputError

Tensors = dict[str, Tensor]
_PLAIN = (bool, int, float, str, type(None))
_LISTS: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
_DICTS: dict[str, Any] = {"dict": dict, "OrderedDict": OrderedDict}
_EVERY = {*vars(nn.Module())}
"""What every module has; of it parameters, buffers and modules are told apart, and hooks not at all."""


class _CannotTell(Exception):
    """What of a model cannot be told, and why."""


def describe(model: nn.Module, tensors: Tensors) -> dict[str, Any]:
    """Return what `rebuild` makes the model of in another process, or say what to write instead.

    Its tensors are added to those given.
    """
    try:
        teller = _Teller(tensors)
        described = teller.module(model, "")
        _check(model, rebuild(json.loads(json.dumps(described)), teller.tensors))
    except _CannotTell as error:
        name = name_of(type(model)) or f"my_module:{type(model).__name__}"
        raise InputError(
            f"model: workers cannot make this {type(model).__name__} again: {error}; name its class and the "
            f"arguments instead: weft.train(graph, {name!r}, options={{...}}, ...)"
        ) from None
    return described


def rebuild(described: Mapping[str, Any], tensors: Tensors) -> nn.Module:
    """Return the model that was described, with its weights."""
    made: nn.Module = rebuild_value({"is": "module", "of": described}, tensors)
    return made


def describe_value(value: Any, where: str, tensors: Tensors) -> Any:
    """Return a plain value, a function by its name or a module; `where` is what a refusal names."""
    try:
        return _Teller(tensors).value(value, where)
    except _CannotTell as error:
        raise InputError(
            f"{where}: workers cannot be given it: {error}; use what a module holds by name"
        ) from None


def rebuild_value(described: Any, tensors: Tensors) -> Any:
    """Return what `describe_value` described."""
    maker = _Maker(tensors)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        made = maker.value(described)
        maker.fill()
    return made


def arguments_of(module: nn.Module) -> dict[str, Any]:
    """Return the arguments of a module's constructor that it keeps under their names, as PyG's do."""
    arguments: dict[str, Any] = {}
    for name, item in signature(type(module)).parameters.items():
        if item.kind not in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY):
            continue
        value = getattr(module, name, Parameter.empty)
        if name == "bias" and value is not Parameter.empty:
            arguments[name] = value is not None  # one that is there was asked for
        elif value is not Parameter.empty and not isinstance(value, Tensor):
            arguments[name] = value
        elif item.default is Parameter.empty:
            raise _CannotTell(f"{type(module).__name__} does not keep its argument {name!r}")
    return arguments


def known_arguments(model: nn.Module) -> dict[str, Any]:
    """Return the arguments that make such a model again, where it keeps all of them; else nothing.

    They are tried, without taking memory for weights.
    """
    try:
        arguments = arguments_of(model)
        with torch.device("meta"):
            made = type(model)(**arguments)
        same = repr(made) == repr(model) and _shapes(made) == _shapes(model)
    except Exception:  # it was made in another way, or does more than to hold weights
        return {}
    return arguments if same and all(isinstance(each, _PLAIN) for each in arguments.values()) else {}


def _shapes(model: nn.Module) -> dict[str, Any]:
    return {name: value.shape for name, value in model.state_dict().items()}


class _Teller:
    def __init__(self, tensors: Tensors) -> None:
        self.tensors = tensors
        self._keys: dict[int, str] = {}
        self._paths: dict[int, str] = {}

    def module(self, module: nn.Module, path: str) -> dict[str, Any]:
        if id(module) in self._paths:
            return {"same": self._paths[id(module)]}
        name = name_of(type(module))
        if name is None:
            raise _CannotTell(
                f"{_at(path)}its class {told(type(module))} is not found in a module by that name"
            )
        if any(hooks for key, hooks in vars(module).items() if key in _EVERY and key.endswith("_hooks")):
            raise _CannotTell(f"{_at(path)}it has hooks")
        self._paths[id(module)] = path
        described: dict[str, Any] = {"path": path, "class": name, "training": module.training}
        values = {key: value for key, value in vars(module).items() if key not in _EVERY}
        if type(module).__module__.startswith("torch_geometric."):
            described["arguments"] = self._able(arguments_of(module), path)
            return {**described, **self._parts(module, path), "values": self._able(values, path)}
        told_values = {key: self.value(value, _join(path, key)) for key, value in values.items()}
        return {**described, **self._parts(module, path), "values": told_values}

    def value(self, value: Any, path: str) -> Any:
        if type(value) in _PLAIN:  # one of a class made of it, as an IntEnum, would come back as an int
            return value
        kind = type(value).__name__
        if type(value) is _LISTS.get(kind):
            return {"is": kind, "of": [self.value(item, path) for item in value]}
        if type(value) is _DICTS.get(kind):
            pairs = [[self.value(key, path), self.value(item, path)] for key, item in value.items()]
            return {"is": kind, "of": pairs}
        if isinstance(value, torch.dtype | torch.device):
            return {"is": type(value).__name__, "of": str(value).removeprefix("torch.")}
        if isinstance(value, Tensor):
            return {"is": "tensor", "of": self._tensor(value, path)}
        if isinstance(value, nn.Module):
            return {"is": "module", "of": self.module(value, path)}
        if dataclasses.is_dataclass(value) and not isclass(value) and (name := name_of(type(value))):
            fields = {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
            return {"is": "record", "class": name, "of": self.value(fields, path)}
        if (isclass(value) or isroutine(value)) and (name := name_of(value)):
            return {"is": "code", "of": name}
        if hasattr(value, "__name__"):
            raise _CannotTell(f"{path} is {value.__name__}, which no module holds by name")
        raise _CannotTell(f"{path} is of {told(type(value))}, which is no plain type")

    def _parts(self, module: nn.Module, path: str) -> dict[str, Any]:
        """Return parameters, buffers and modules."""
        unkept = module._non_persistent_buffers_set
        parameters = [
            (key, None if part is None else [self._tensor(part, _join(path, key)), part.requires_grad])
            for key, part in module._parameters.items()
        ]
        buffers = [
            (key, None if part is None else self._tensor(part, _join(path, key)), key not in unkept)
            for key, part in module._buffers.items()
        ]
        modules = [
            (key, None if part is None else self.module(part, _join(path, key)))
            for key, part in module._modules.items()
        ]
        return {"parameters": parameters, "buffers": buffers, "modules": modules}

    def _able(self, values: Mapping[str, Any], path: str) -> dict[str, Any]:
        """Return those of some values that can be told."""
        able: dict[str, Any] = {}
        for key, value in values.items():
            with suppress(_CannotTell):
                able[key] = self.value(value, _join(path, key))
        return able

    def _tensor(self, value: Tensor, path: str) -> str:
        """Keep a tensor under a key; the same one again, as tied weights are, has the same."""
        if type(value) not in (Tensor, nn.Parameter) or value.is_sparse:
            raise _CannotTell(f"{path} is a {type(value).__name__} that a file of tensors does not hold")
        if id(value) not in self._keys:
            self._keys[id(value)] = key = str(len(self.tensors))
            self.tensors[key] = value.detach().to("cpu", copy=True).contiguous()
        return self._keys[id(value)]


class _Maker:
    def __init__(self, tensors: Tensors) -> None:
        self.tensors = tensors
        self._modules: dict[str, nn.Module] = {}
        self._parameters: dict[str, nn.Parameter] = {}
        self._buffers: list[tuple[Tensor, str]] = []

    def fill(self) -> None:
        """Give all parameters and buffers their values: a constructor may have drawn others meanwhile."""
        for key, parameter in self._parameters.items():
            parameter.copy_(self.tensors[key])
        for buffer, key in self._buffers:
            buffer.copy_(self.tensors[key])

    def module(self, described: Mapping[str, Any]) -> nn.Module:
        if "same" in described:
            return self._modules[described["same"]]
        kind = load_code(described["class"], "model")
        if not (isclass(kind) and issubclass(kind, nn.Module)):
            raise InputError(f"model: {described['class']} is no torch.nn.Module")
        made = self._new(kind, described.get("arguments"))
        self._modules[described["path"]] = made
        for name, part in described["parameters"]:
            made.register_parameter(name, None if part is None else self._parameter(*part))
        for name, key, kept in described["buffers"]:
            made.register_buffer(name, None if key is None else self._buffer(key), persistent=kept)
        for name, part in described["modules"]:
            made.add_module(name, None if part is None else self.module(part))
        vars(made).update({name: self.value(value) for name, value in described["values"].items()})
        made.training = described["training"]
        return made

    def value(self, described: Any) -> Any:
        if isinstance(described, _PLAIN):
            return described
        kind, content = described["is"], described["of"]
        if kind in _LISTS:
            return _LISTS[kind](self.value(item) for item in content)
        if kind in _DICTS:
            return _DICTS[kind]((self.value(key), self.value(item)) for key, item in content)
        if kind == "tensor":
            return self.tensors[content].clone()
        if kind == "module":
            return self.module(content)
        if kind == "record":
            return load_code(described["class"], "model")(**self.value(content))
        if kind == "code":
            return load_code(content, "model")
        return getattr(torch, content) if kind == "dtype" else torch.device(content)

    def _new(self, kind: type[nn.Module], arguments: Mapping[str, Any] | None) -> nn.Module:
        """Return a module without parameters, buffers and modules."""
        if arguments is None:
            made = kind.__new__(kind)
            nn.Module.__init__(made)
            return made
        try:
            made = kind(**{name: self.value(value) for name, value in arguments.items()})
        except (TypeError, ValueError) as error:
            raise _CannotTell(f"{kind.__name__}: {' '.join(str(error).split())}") from None
        for table in (made._parameters, made._buffers, made._modules):
            table.clear()  # type: ignore[attr-defined]
        return made

    def _buffer(self, key: str) -> Tensor:
        self._buffers.append((self.tensors[key].clone(), key))
        return self._buffers[-1][0]

    def _parameter(self, key: str, requires_grad: bool) -> nn.Parameter:
        if key not in self._parameters:
            self._parameters[key] = nn.Parameter(self.tensors[key].clone(), requires_grad=requires_grad)
        return self._parameters[key]


def _check(model: nn.Module, again: nn.Module) -> None:
    """Refuse what was made from a description and is not the same."""
    if repr(model) != repr(again):
        raise _CannotTell("made again from what it holds, it differs")
    state, other = model.state_dict(), again.state_dict()
    if list(state) != list(other) or any(not torch.equal(state[key].cpu(), other[key]) for key in state):
        raise _CannotTell("made again from what it holds, its weights differ")


def _at(path: str) -> str:
    return f"{path}: " if path else ""


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
