from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetWindowRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class Window(_message.Message):
    __slots__ = ("id", "tokens", "resources")
    ID_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    id: str
    tokens: int
    resources: _containers.RepeatedCompositeFieldContainer[Resource]
    def __init__(self, id: _Optional[str] = ..., tokens: _Optional[int] = ..., resources: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ...) -> None: ...

class Resource(_message.Message):
    __slots__ = ("id", "type", "role", "tokens", "content")
    ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    id: str
    type: str
    role: str
    tokens: int
    content: str
    def __init__(self, id: _Optional[str] = ..., type: _Optional[str] = ..., role: _Optional[str] = ..., tokens: _Optional[int] = ..., content: _Optional[str] = ...) -> None: ...

class OptimizeWindowRequest(_message.Message):
    __slots__ = ("id", "budget")
    ID_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    id: str
    budget: int
    def __init__(self, id: _Optional[str] = ..., budget: _Optional[int] = ...) -> None: ...

class OptimizeWindowResponse(_message.Message):
    __slots__ = ("successful", "optimized")
    SUCCESSFUL_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZED_FIELD_NUMBER: _ClassVar[int]
    successful: bool
    optimized: bool
    def __init__(self, successful: _Optional[bool] = ..., optimized: _Optional[bool] = ...) -> None: ...
