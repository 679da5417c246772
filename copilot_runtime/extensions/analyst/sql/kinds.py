"""Which kinds of nodes a query may have."""

from sqlglot import exp

from copilot_runtime.extensions.analyst.sql.refusal import SqlRefused

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
    """Raise `SqlRefused` for a node that no reading query has, and for a tree that is too large.

    A chain such as `a OR b OR c` is one level: it hangs to the left, however long it is.
    """
    count = 0
    stack: list[tuple[exp.Expr, int]] = [(tree, 0)]
    while stack:
        node, depth = stack.pop()
        count += 1
        if depth > max_depth:
            raise SqlRefused(
                "too_deep", "The query is nested too deeply.", hint="Use WITH for its steps."
            )
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
