"""Reads Protocol Buffers with their own library, by the text of a schema as it stands in a registry."""

from __future__ import annotations

import re
from typing import Any

from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    json_format,
    message_factory,
)

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bool": _FIELD.TYPE_BOOL,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
    "float": _FIELD.TYPE_FLOAT,
    "double": _FIELD.TYPE_DOUBLE,
    "string": _FIELD.TYPE_STRING,
    "bytes": _FIELD.TYPE_BYTES,
}
_TOKEN = re.compile(r"(?:(optional|repeated) )?([\w.]+) (\w+) = (\d+);")


def read_protobuf(text: str, record: bytes) -> dict[str, Any]:
    """One record of the schema's first message, as Protocol Buffers' own JSON has it."""
    file = descriptor_pb2.FileDescriptorProto(name="record.proto", syntax="proto3")
    stack: list[descriptor_pb2.DescriptorProto] = []
    for line in (line.strip() for line in text.splitlines()):
        if line.startswith("package "):
            file.package = line[8:-1]
        elif line.startswith("message "):
            owner = stack[-1].nested_type if stack else file.message_type
            stack.append(owner.add(name=line.split()[1]))
        elif line == "}":
            stack.pop()
        elif token := _TOKEN.fullmatch(line):
            _add(stack, *token.groups())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    first = f"{file.package}.{file.message_type[0].name}".lstrip(".")
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName(first))()
    assert message.ParseFromString(record) == len(record)
    assert not _unknown(message)
    found: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return found


def _add(stack: list[descriptor_pb2.DescriptorProto], label: str | None, type_: str, name: str, number: str) -> None:
    field = stack[-1].field.add(name=name, number=int(number), label=_FIELD.LABEL_OPTIONAL)
    if label == "repeated":
        field.label = _FIELD.LABEL_REPEATED
    elif label == "optional":
        field.proto3_optional = True
        field.oneof_index = len(stack[-1].oneof_decl)
        stack[-1].oneof_decl.add(name=f"_{name}")
    if type_ in _SCALARS:
        field.type = _SCALARS[type_]
    else:
        field.type_name = type_


def _unknown(message: Any) -> bool:
    """Whether anything in the message has no field in the schema."""
    return message.ByteSize() != len(message.SerializeToString()) or bool(
        [1 for _, value in message.ListFields() if hasattr(value, "ListFields") and _unknown(value)]
    )
