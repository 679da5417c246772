from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class QueryByPatternRequest(_message.Message):
    __slots__ = ("subject", "predicate", "object", "limit")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    PREDICATE_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    subject: str
    predicate: str
    object: str
    limit: int
    def __init__(self, subject: _Optional[str] = ..., predicate: _Optional[str] = ..., object: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class QueryByPatternResponse(_message.Message):
    __slots__ = ("triples", "passages", "cut")
    TRIPLES_FIELD_NUMBER: _ClassVar[int]
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    triples: _containers.RepeatedCompositeFieldContainer[Triple]
    passages: _containers.RepeatedCompositeFieldContainer[Passage]
    cut: bool
    def __init__(self, triples: _Optional[_Iterable[_Union[Triple, _Mapping]]] = ..., passages: _Optional[_Iterable[_Union[Passage, _Mapping]]] = ..., cut: _Optional[bool] = ...) -> None: ...

class Triple(_message.Message):
    __slots__ = ("subject", "predicate", "object")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    PREDICATE_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    subject: str
    predicate: str
    object: str
    def __init__(self, subject: _Optional[str] = ..., predicate: _Optional[str] = ..., object: _Optional[str] = ...) -> None: ...

class Passage(_message.Message):
    __slots__ = ("id", "title", "text", "url")
    ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    id: str
    title: str
    text: str
    url: str
    def __init__(self, id: _Optional[str] = ..., title: _Optional[str] = ..., text: _Optional[str] = ..., url: _Optional[str] = ...) -> None: ...

class GetOntologyRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetOntologyResponse(_message.Message):
    __slots__ = ("turtle", "classes")
    TURTLE_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    turtle: str
    classes: _containers.RepeatedCompositeFieldContainer[OntologyClass]
    def __init__(self, turtle: _Optional[str] = ..., classes: _Optional[_Iterable[_Union[OntologyClass, _Mapping]]] = ...) -> None: ...

class OntologyClass(_message.Message):
    __slots__ = ("iri", "name", "instances", "properties")
    IRI_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    iri: str
    name: str
    instances: int
    properties: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, iri: _Optional[str] = ..., name: _Optional[str] = ..., instances: _Optional[int] = ..., properties: _Optional[_Iterable[str]] = ...) -> None: ...
