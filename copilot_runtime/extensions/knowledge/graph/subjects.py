"""Find subjects by their types, including alternative labels of types."""

from collections.abc import Iterable, Sequence

import numpy as np

from copilot_runtime.extensions.knowledge.graph.table import Snapshot, Visibility
from copilot_runtime.extensions.knowledge.graph.terms import PREFIXES, Prefixes, TermQuery
from copilot_runtime.extensions.knowledge.rdf.terms import RDF_TYPE

ALTERNATIVE_LABEL = f"{PREFIXES['skos']}altLabel"
_SHAPE = "Shape"

Labels = dict[str, set[str]]
"""Alternative labels of classes, by IRI."""


def find_subjects(
    snapshot: Snapshot,
    visibility: Visibility,
    type: str,
    prefixes: Prefixes,
    vocabulary: Iterable[Sequence[str]],
) -> dict[str, tuple[str, ...]]:
    """Return the types of subjects, optionally only of one type, in index order."""
    rows = [
        visibility.rows(rows) for rows in snapshot.match((None, TermQuery((str(RDF_TYPE),)), None))
    ]
    if not rows:
        return {}
    numbers = np.concatenate(rows)
    texts = snapshot.terms.texts
    subjects, _, types = (column[numbers].tolist() for column in snapshot.columns)
    found: dict[str, dict[str, None]] = {}
    for subject, class_ in zip(subjects, types, strict=True):
        iri = texts[class_]
        if iri.startswith("<"):
            found.setdefault(texts[subject][1:-1], {})[iri[1:-1]] = None
    if type:
        labels = find_labels(snapshot, visibility, vocabulary)
        classes = {class_ for types in found.values() for class_ in types}
        classes = resolve_type(type, classes, labels, prefixes)
        found = {iri: types for iri, types in found.items() if not classes.isdisjoint(types)}
    return {iri: tuple(types) for iri, types in found.items()}


def resolve_type(type: str, classes: set[str], labels: Labels, prefixes: Prefixes) -> set[str]:
    """Return the classes of a type name: by IRI, local name or alternative label.

    Another name stands for the class of that name in the same namespace, so that
    `schema:Person skos:altLabel "Individual"` makes subjects of `schema:Individual` persons.
    """
    if ":" in type:
        means = {query[1:-1] for query in prefixes.parse_node(type, "type").terms}
    else:
        means = {iri for iri in classes if local_name(iri) == type}
        means |= {iri for iri, names in labels.items() if type in names}
    return means | {
        iri[: -len(local_name(iri))] + name.replace(" ", "")
        for iri in means
        for name in labels.get(iri, ())
        if local_name(iri)
    }


def find_labels(
    snapshot: Snapshot, visibility: Visibility, vocabulary: Iterable[Sequence[str]]
) -> Labels:
    """Return the alternative labels of classes, from the graph and the operator's vocabulary."""
    predicate = f"<{ALTERNATIVE_LABEL}>"
    texts = snapshot.terms.texts
    labels: Labels = {}
    for rows in snapshot.match((None, TermQuery((predicate,)), None)):
        visible = visibility.rows(rows)
        subjects, _, objects = (column[visible].tolist() for column in snapshot.columns)
        for subject, object in zip(subjects, objects, strict=True):
            _add_label(labels, texts[subject], texts[object])
    for subject, property, object in vocabulary:
        if property == predicate:
            _add_label(labels, subject, object)
    return labels


def local_name(iri: str) -> str:
    """Return the last part of an IRI, behind the last `/`, `#` or `:`."""
    return iri[max(iri.rfind(mark) for mark in "/#:") + 1 :]


def _add_label(labels: Labels, subject: str, object: str) -> None:
    if object.startswith('"'):
        labels.setdefault(subject[1:-1].removesuffix(_SHAPE), set()).add(
            object[1 : object.rindex('"')]
        )
