from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Identifier(_message.Message):
    __slots__ = ("uri", "tokens", "score")
    URI_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    uri: str
    tokens: int
    score: float
    def __init__(self, uri: _Optional[str] = ..., tokens: _Optional[int] = ..., score: _Optional[float] = ...) -> None: ...

class AppendMemoryRequest(_message.Message):
    __slots__ = ("thread_id", "resource_id", "identifiers")
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    IDENTIFIERS_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    resource_id: str
    identifiers: _containers.RepeatedCompositeFieldContainer[Identifier]
    def __init__(self, thread_id: _Optional[str] = ..., resource_id: _Optional[str] = ..., identifiers: _Optional[_Iterable[_Union[Identifier, _Mapping]]] = ...) -> None: ...

class AppendMemoryResponse(_message.Message):
    __slots__ = ("resource_id", "appended")
    RESOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    APPENDED_FIELD_NUMBER: _ClassVar[int]
    resource_id: str
    appended: int
    def __init__(self, resource_id: _Optional[str] = ..., appended: _Optional[int] = ...) -> None: ...

class GetWindowRequest(_message.Message):
    __slots__ = ("thread_id", "resource_id", "budget", "allocation")
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    resource_id: str
    budget: int
    allocation: Allocation
    def __init__(self, thread_id: _Optional[str] = ..., resource_id: _Optional[str] = ..., budget: _Optional[int] = ..., allocation: _Optional[_Union[Allocation, _Mapping]] = ...) -> None: ...

class Allocation(_message.Message):
    __slots__ = ("tools", "context", "conversation")
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    tools: float
    context: float
    conversation: float
    def __init__(self, tools: _Optional[float] = ..., context: _Optional[float] = ..., conversation: _Optional[float] = ...) -> None: ...

class GetWindowResponse(_message.Message):
    __slots__ = ("resource_id", "tools", "context", "conversation", "trimmed", "tokens")
    RESOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    TRIMMED_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    resource_id: str
    tools: _containers.RepeatedCompositeFieldContainer[Identifier]
    context: _containers.RepeatedCompositeFieldContainer[Identifier]
    conversation: _containers.RepeatedCompositeFieldContainer[Identifier]
    trimmed: _containers.RepeatedScalarFieldContainer[str]
    tokens: int
    def __init__(self, resource_id: _Optional[str] = ..., tools: _Optional[_Iterable[_Union[Identifier, _Mapping]]] = ..., context: _Optional[_Iterable[_Union[Identifier, _Mapping]]] = ..., conversation: _Optional[_Iterable[_Union[Identifier, _Mapping]]] = ..., trimmed: _Optional[_Iterable[str]] = ..., tokens: _Optional[int] = ...) -> None: ...
