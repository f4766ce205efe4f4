"""Protobuf messages in private descriptor pools.

tritonclient, kserve and this project all have a proto package ``inference``, and protobuf's default pool
takes one. Each contract here is a checked-in descriptor set (``make schemas``) in a pool of its own.
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

    The same set gives the same classes. Nested messages are attributes of their class.
    """
    pool = descriptor_pool.DescriptorPool()
    found = load_files(package, descriptor_set)
    for file in found:
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClassesForFiles([file.name for file in found], pool)
