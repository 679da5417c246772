from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ResourceEvent(_message.Message):
    __slots__ = ("id", "source", "time", "detail_type", "resources", "detail")
    ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    DETAIL_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    id: str
    source: str
    time: str
    detail_type: str
    resources: _containers.RepeatedScalarFieldContainer[str]
    detail: _struct_pb2.Struct
    def __init__(self, id: _Optional[str] = ..., source: _Optional[str] = ..., time: _Optional[str] = ..., detail_type: _Optional[str] = ..., resources: _Optional[_Iterable[str]] = ..., detail: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ("detail_type", "source", "resources", "detail")
    DETAIL_TYPE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    detail_type: str
    source: str
    resources: _containers.RepeatedScalarFieldContainer[str]
    detail: _struct_pb2.Struct
    def __init__(self, detail_type: _Optional[str] = ..., source: _Optional[str] = ..., resources: _Optional[_Iterable[str]] = ..., detail: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("sources", "detail_types", "prefix", "after")
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    DETAIL_TYPES_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    sources: _containers.RepeatedScalarFieldContainer[str]
    detail_types: _containers.RepeatedScalarFieldContainer[str]
    prefix: str
    after: str
    def __init__(self, sources: _Optional[_Iterable[str]] = ..., detail_types: _Optional[_Iterable[str]] = ..., prefix: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class SubscribeResponse(_message.Message):
    __slots__ = ("events", "cursor")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[ResourceEvent]
    cursor: str
    def __init__(self, events: _Optional[_Iterable[_Union[ResourceEvent, _Mapping]]] = ..., cursor: _Optional[str] = ...) -> None: ...
