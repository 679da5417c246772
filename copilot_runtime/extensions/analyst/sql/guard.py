"""The guard of SQL: one query, over allowed tables and functions, and the user's rows only.

The SQL to run is generated from the tree, never taken from the text. DuckDB's own parse of it is
checked last.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError, UnsupportedError
from sqlglot.tokenizer_core import TokenType

from copilot_runtime.extensions.analyst.sql.parsing import ParsingTooLong, parse_sql, quote
from copilot_runtime.extensions.analyst.sql.rules import GuardRules, Scope, SqlRefused, TableRule
from copilot_runtime.extensions.analyst.sql.sizes import bound_sizes
from copilot_runtime.extensions.analyst.sql.syntax_tree import check_syntax_tree
from copilot_runtime.extensions.analyst.sql.tables import TableReader, name_subqueries


@dataclass(frozen=True, kw_only=True)
class GuardedQuery:
    """A query that has passed the guard."""

    sql: str
    """The SQL to run: with physical tables, and each filtered one as a subquery."""
    display_sql: str
    """The SQL for display: without row filters."""
    tree: exp.Expr
    """The query before row filters; copy it before modifying it."""
    runs: exp.Expr
    """The tree of `sql`."""
    tables: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    """Names of the columns of these tables."""
    filters: tuple[str, ...] = ()
    """The conditions of the query, for display."""
    restricted: tuple[str, ...] = ()
    """Tables of which row filters exclude rows."""

    def with_limit(self, limit: int) -> str:
        """Return the SQL with a maximum number of rows; a smaller limit of the query stays."""
        tree = self.runs
        own_limit = tree.args.get("limit") if isinstance(tree, exp.Select) else None
        if isinstance(tree, exp.Select) and own_limit is None and not tree.args.get("sample"):
            return _write(tree.limit(limit))
        inner = exp.Subquery(this=tree.copy(), alias=exp.TableAlias(this=quote("result")))
        return _write(exp.select("*").from_(inner).limit(limit))


def guard_sql(sql: str, rules: GuardRules, scope: Scope) -> GuardedQuery:
    """Return the guarded query of a text. Raises `SqlRefused` or `ConfigurationFailed`."""
    if len(sql) > rules.max_chars:
        raise SqlRefused(
            "too_long",
            f"The SQL has {len(sql):,} characters; {rules.max_chars:,} are allowed.",
            hint="Ask for less in one query.",
        )
    return guard_tree(_parse(sql, rules), rules, scope)


def guard_tree(tree: exp.Expr, rules: GuardRules, scope: Scope) -> GuardedQuery:
    """Return the guarded query of a tree, as `guard_sql` does for a text."""
    check_kinds(tree, max_depth=rules.max_depth, max_nodes=rules.max_nodes)
    try:
        tree = tree.copy()
        runs = tree.copy()
        bound_sizes(runs)
        name_subqueries(runs)
        reader = TableReader(rules, scope)
        runs = reader.replace_tables(runs)
        sql = _write(runs)
        judged = _write(_name_values(runs))
        display_sql = tree.sql(dialect="duckdb", comments=False, pretty=True)
    except RecursionError:
        raise _too_deep() from None
    except UnsupportedError as error:
        raise _not_duckdb(tree) from error
    except (SqlglotError, ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        # sqlglot raises arbitrary exceptions even for trees that its parser accepted
        raise SqlRefused("parse_error", "The query could not be understood.") from error
    check_syntax_tree(judged, tables=reader.paths, functions=rules.functions)
    return GuardedQuery(
        sql=sql,
        display_sql=display_sql,
        tree=tree,
        runs=runs,
        tables=tuple(reader.tables),
        columns=_list_columns(tree, [rules.tables[name] for name in reader.tables]),
        filters=_list_conditions(tree),
        restricted=tuple(reader.restricted),
    )


def _parse(sql: str, rules: GuardRules) -> exp.Expr:
    """Return the tree of the only statement in a text."""
    if any(char == "\0" or "\ud800" <= char <= "\udfff" for char in sql):
        raise SqlRefused("parse_error", "The SQL has characters that no text has.")
    try:
        depth, statements = _measure(sql)
        if depth > rules.max_depth:
            raise _too_deep()
        if statements > 1:
            raise SqlRefused(
                "multiple_statements",
                f"Only one statement is allowed, and there are {statements}.",
                hint="Send one SELECT.",
            )
        trees = [one for one in parse_sql(sql) if one is not None]
    except ParsingTooLong as error:
        raise SqlRefused(
            "too_large", "The query is too ambiguous to read.", hint="Write ON for each JOIN."
        ) from error
    except SqlglotError as error:
        if _STATEMENTS.fullmatch(word := _first_word(sql)):
            raise _not_select(word) from error
        raise SqlRefused("parse_error", _describe_error(error)) from error
    except RecursionError:
        raise _too_deep() from None
    except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        # sqlglot raises arbitrary exceptions for text that is not SQL
        raise SqlRefused("parse_error", "The SQL could not be read.") from error
    trees = [one for one in trees if not isinstance(one, exp.Semicolon)]
    match trees:
        case []:
            raise SqlRefused("parse_error", "There is no SQL.")
        case [exp.Query() | exp.Values() | exp.Pivot() as tree]:
            return tree
        case [tree]:
            word = _first_word(sql)
            if isinstance(tree, exp.Condition) and not _STATEMENTS.fullmatch(word):
                raise SqlRefused("parse_error", f"The SQL does not begin with SELECT: {word!r}.")
            raise _not_select(word)
        case _:
            raise SqlRefused("multiple_statements", "Only one statement is allowed.")


_STATEMENTS = re.compile(
    "ALTER|ANALYZE|ATTACH|BEGIN|CALL|CHECKPOINT|COMMENT|COMMIT|COPY|CREATE|DEALLOCATE|DELETE|"
    "DESC|DESCRIBE|DETACH|DROP|END|EXECUTE|EXPLAIN|EXPORT|FORCE|GRANT|IMPORT|INSERT|INSTALL|KILL|LOAD|"
    "MERGE|PRAGMA|PREPARE|REFRESH|RELEASE|RENAME|REPLACE|RESET|REVOKE|ROLLBACK|SAVEPOINT|SET|SHOW|"
    "START|SUMMARIZE|TRUNCATE|UNINSTALL|UPDATE|USE|VACUUM"
)
"""First words of statements that are not queries."""
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)


def _measure(sql: str) -> tuple[int, int]:
    """Return the nesting depth of brackets, and the number of statements."""
    depth = deepest = statements = 0
    is_empty = True
    for token in sqlglot.tokenize(sql, read="duckdb"):
        if token.token_type is TokenType.SEMICOLON:
            is_empty = True
            continue
        statements += is_empty
        is_empty = False
        if token.token_type in _OPENING:
            depth += 1
            deepest = max(deepest, depth)
        elif token.token_type in _CLOSING:
            depth -= 1
    return deepest, statements


def _first_word(sql: str) -> str:
    try:
        tokens = sqlglot.tokenize(sql, read="duckdb")
    except SqlglotError:
        return ""
    words = tokens[0].text.split(None, 1) if tokens else []
    return words[0].upper()[:30] if words else ""


def _not_select(word: str) -> SqlRefused:
    hint = "Send one SELECT."
    if word in ("DESCRIBE", "DESC", "SUMMARIZE"):
        hint = f"{word} may stand in brackets in FROM, as a table."
    return SqlRefused("not_select", f"Only queries that read are allowed, not {word!r}.", hint=hint)


def _too_deep() -> SqlRefused:
    return SqlRefused("too_deep", "The query is nested too deeply.", hint="Use WITH for its steps.")


def _not_duckdb(tree: exp.Expr) -> SqlRefused:
    """Return the refusal of a tree that has no exact translation to DuckDB."""
    name = next((one.sql_name().lower() for one in tree.find_all(exp.Func) if _is_lossy(one)), None)
    return SqlRefused(
        "function_not_allowed",
        f"DuckDB has no {name or 'function'!r} that does what the query asks for.",
        hint="Use DuckDB's own functions, such as strftime for dates as text.",
        name=name,
        is_unknown=True,
    )


def _is_lossy(node: exp.Expr) -> bool:
    try:
        _write(node)
    except UnsupportedError:
        return True
    return False


def _describe_error(error: SqlglotError) -> str:
    """Return the position of a syntax error, without sqlglot's colours."""
    details = getattr(error, "errors", None) or []
    if not details:
        return "The SQL could not be read."
    first = details[0]
    return (
        f"The SQL could not be read at line {first.get('line')}, column {first.get('col')}: "
        f"{str(first.get('description'))[:200]}"
    )


def _write(tree: exp.Expr) -> str:
    return tree.sql(
        dialect="duckdb", comments=False, identify=True, unsupported_level=ErrorLevel.RAISE
    )


def _name_values(tree: exp.Expr) -> exp.Expr:
    """Return the tree with explicit values in each PIVOT that takes them from the rows.

    DuckDB splits such a PIVOT into two statements, and only exposes its parse of single ones.
    """
    if tree.find(exp.Pivot) is None:
        return tree
    tree = tree.copy()
    for pivot in tree.find_all(exp.Pivot):
        if isinstance(pivot.this, exp.Expr) and not pivot.args.get("unpivot"):
            for one in pivot.expressions:
                if not isinstance(one, exp.In):
                    one.replace(
                        exp.In(
                            this=exp.Paren(this=one.copy()), expressions=[exp.Literal.string("x")]
                        )
                    )
    return tree


def _list_columns(tree: exp.Expr, tables: Sequence[TableRule]) -> tuple[str, ...]:
    columns = {column.name.lower(): column.name for rule in tables for column in rule.columns}
    names = (node.name.lower() for node in tree.find_all(exp.Column))
    return tuple(dict.fromkeys(columns[name] for name in names if name in columns))


def _list_conditions(tree: exp.Expr) -> tuple[str, ...]:
    clauses = tree.find_all(exp.Where, exp.Having, exp.Qualify)
    return tuple(
        dict.fromkeys(clause.this.sql(dialect="duckdb", comments=False) for clause in clauses)
    )


_CLAUSES: tuple[type[exp.Expr], ...] = (
    exp.Query,
    exp.Func,
    exp.Binary,
    exp.Unary,
    exp.Condition,
    exp.Alias,
    exp.Aliases,
    exp.CTE,
    exp.Comprehension,
    exp.DataTypeParam,
    exp.Describe,
    exp.Distinct,
    exp.From,
    exp.Group,
    exp.GroupingSets,
    exp.Cube,
    exp.Rollup,
    exp.Having,
    exp.HavingMax,
    exp.Identifier,
    exp.IgnoreNulls,
    exp.RespectNulls,
    exp.In,
    exp.Interval,
    exp.JSONKeyValue,
    exp.JSONPath,
    exp.JSONPathPart,
    exp.Join,
    exp.Kwarg,
    exp.Lambda,
    exp.Lateral,
    exp.Limit,
    exp.LimitOptions,
    exp.Fetch,
    exp.Offset,
    exp.Order,
    exp.Ordered,
    exp.Pivot,
    exp.PivotAlias,
    exp.PivotAny,
    exp.PositionalColumn,
    exp.PropertyEQ,
    exp.Qualify,
    exp.Slice,
    exp.Star,
    exp.Summarize,
    exp.Table,
    exp.TableAlias,
    exp.TableSample,
    exp.Tuple,
    exp.UnpivotColumns,
    exp.Unnest,
    exp.Values,
    exp.Var,
    exp.Where,
    exp.WindowSpec,
    exp.With,
    exp.WithinGroup,
    exp.Window,
    exp.Filter,
    exp.AtTimeZone,
    exp.ColumnDef,
    exp.Collate,
    exp.DataType,
)
_WRITES: tuple[type[exp.Expr], ...] = (
    exp.Insert,
    exp.Update,
    exp.Delete,
    exp.DDL,
    exp.Into,
    exp.Command,
    exp.Drop,
    exp.Alter,
    exp.Copy,
    exp.Set,
    exp.Pragma,
    exp.Attach,
    exp.Detach,
    exp.Use,
    exp.TruncateTable,
    exp.Merge,
    exp.LoadData,
    exp.Transaction,
    exp.Commit,
    exp.Rollback,
    exp.Kill,
    exp.Cache,
    exp.Lock,
)
_PARAMETERS = (exp.Parameter, exp.Placeholder, exp.SessionParameter)
_TABLE_PARTS = frozenset(
    {"this", "db", "catalog", "alias", "pivots", "joins", "laterals", "sample"}
)


def check_kinds(tree: exp.Expr, *, max_depth: int, max_nodes: int) -> None:
    """Raise `SqlRefused` for a node type that queries lack, and for a tree that is too large.

    A chain such as `a OR b OR c` counts as one level, although its tree is as deep as the chain is
    long.
    """
    count = 0
    stack: list[tuple[exp.Expr, int]] = [(tree, 0)]
    while stack:
        node, depth = stack.pop()
        count += 1
        if depth > max_depth:
            raise _too_deep()
        if count > max_nodes:
            raise SqlRefused("too_large", f"The query has more than {max_nodes:,} parts.")
        _check_kind(node)
        is_chain = isinstance(node, exp.Binary | exp.SetOperation)
        for child in node.iter_expressions():
            is_link = is_chain and child is node.this and type(child) is type(node)
            stack.append((child, depth if is_link else depth + 1))


def _check_kind(node: exp.Expr) -> None:
    if isinstance(node, _WRITES) and not isinstance(node, exp.Query):
        raise SqlRefused(
            "write_in_tree",
            "The query writes, and only reading is allowed.",
            hint="save_as_dataset keeps the result of a SELECT.",
        )
    if isinstance(node, _PARAMETERS):
        raise SqlRefused("parse_error", "The query has a parameter; write the value itself.")
    if not isinstance(node, _CLAUSES):
        raise SqlRefused("not_select", f"The query uses {node.key.upper()}, which is not allowed.")
    if isinstance(node, exp.Anonymous) and node.name.lower() == "error":
        raise SqlRefused(
            "function_not_allowed", "The function 'error' is not allowed.", name="error"
        )
    if isinstance(node, exp.Table):
        extra = [key for key, value in node.args.items() if value and key not in _TABLE_PARTS]
        if extra:
            raise SqlRefused("not_select", f"A table with {extra[0].upper()} is not allowed.")
