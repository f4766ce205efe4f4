"""Protobuf messages in private descriptor pools.

tritonclient, kserve and this project all have a proto package called ``inference``; two of them in
protobuf's default pool clash. Each contract here is a checked-in descriptor set (``make schemas``)
that is loaded into a pool of its own, so that any client library may be imported beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message


@cache
def load_files(package: str, descriptor_set: str) -> tuple[descriptor_pb2.FileDescriptorProto, ...]:
    """The files of ``descriptor_set``, a file in import package ``package``, each after what it imports."""
    data = files(package).joinpath(descriptor_set).read_bytes()
    return tuple(descriptor_pb2.FileDescriptorSet.FromString(data).file)


@cache
def load_messages(package: str, descriptor_set: str) -> Mapping[str, type[Message]]:
    """Message classes by full name from ``descriptor_set``, a file in import package ``package``.

    The same set gives the same classes, however often it is asked for. Nested messages are reached
    through the fields and classes that hold them.
    """
    pool = descriptor_pool.DescriptorPool()
    found = load_files(package, descriptor_set)
    for file in found:
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClassesForFiles([file.name for file in found], pool)
