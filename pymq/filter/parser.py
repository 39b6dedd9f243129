"""The grammar: RocketMQ's SelectorParser.jj, its order of precedence and its quirks.

    expression := and { OR and }                                   level 1
    and        := equality { AND equality }                        level 2
    equality   := comparison { (= | <>) comparison | IS [NOT] NULL }   level 3
    comparison := unary { (> | >= | < | <=) unary | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) string
                        | [NOT] BETWEEN unary AND unary | [NOT] IN ( string { , string } ) }   level 4
    unary      := + unary | - unary | NOT unary | literal | name | ( expression )

Compat: NOT binds tighter than a comparison, so `NOT a = 1` asks whether the boolean (NOT a) equals 1; and what follows
a whole expression is ignored, which is why `a = 1 AND b LIKE 'x'` asks only for `a = 1 AND b`. The caller is told where
that begins (`Parsed.ignored_from`), so that it can be said aloud.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from pymq.filter.errors import FilterError
from pymq.filter.lexer import DECIMAL, END, FLOATING, NAME, STRING, Token, tokens
from pymq.filter.tree import (
    FALSE,
    NULL,
    TRUE,
    Cast,
    Compare,
    Comparison,
    Constant,
    In,
    Kind,
    Logic,
    Match,
    Negate,
    Node,
    Not,
    Property,
    TextMatch,
    is_boolean,
    number,
)

# Differs: RocketMQ goes on until its thread's stack is full. Both are far beyond what people write.
NESTING_MAX: Final = 200  # parentheses and signs within each other
DEPTH_MAX: Final = 250  # nodes from the root to a leaf; the evaluator's stack is as deep
EXPRESSION_MAX: Final = 65535  # characters: reading them is work of the control loop
LONG_MAX: Final = 2**63 - 1
LONG_DIGITS: Final = 19

OR_LEVEL, AND_LEVEL, EQUALITY_LEVEL, COMPARISON_LEVEL = 1, 2, 3, 4
ORDERINGS: Final = {"<": Compare.LT, "<=": Compare.LE, ">": Compare.GT, ">=": Compare.GE}
MATCHES: Final = {match.value: match for match in Match}
AFTER_NOT: Final = (*MATCHES, "BETWEEN", "IN")
LEVELS: Final = {
    "OR": OR_LEVEL,
    "AND": AND_LEVEL,
    "=": EQUALITY_LEVEL,
    "<>": EQUALITY_LEVEL,
    "IS": EQUALITY_LEVEL,
    "NOT": COMPARISON_LEVEL,
    "BETWEEN": COMPARISON_LEVEL,
    "IN": COMPARISON_LEVEL,
    **dict.fromkeys(ORDERINGS, COMPARISON_LEVEL),
    **dict.fromkeys(MATCHES, COMPARISON_LEVEL),
}

AnyNode = TypeVar("AnyNode", bound=Node)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A tree, boolean at its root, and where the part of the text begins that was ignored (None: nowhere)."""

    root: Node
    ignored_from: int | None


def parse(expression: str) -> Parsed:
    """Read *expression*.

    Raises:
        FilterError: RocketMQ would refuse it too, or it is nested deeper than we go.
    """
    if len(expression) > EXPRESSION_MAX:
        reason = f"the expression has {len(expression)} characters; {EXPRESSION_MAX} at most"
        raise FilterError(reason, expression, EXPRESSION_MAX)
    parser = Parser(expression)
    start = parser.peek()
    root = parser.boolean(parser.climb(OR_LEVEL), start)
    rest = parser.peek()
    return Parsed(root, None if rest.kind == END else rest.offset)


class Parser:
    """Reads one expression; a token is looked at when it is needed, and never further ahead."""

    def __init__(self, expression: str) -> None:
        """At the first token."""
        self._expression = expression
        self._tokens: Iterator[Token] = tokens(expression)
        self._next: Token | None = None
        self._nesting = 0

    def peek(self) -> Token:
        """The next token, left in place."""
        if self._next is None:
            self._next = next(self._tokens)
        return self._next

    def take(self, *kinds: str) -> Token:
        """The next token, which must be one of *kinds*."""
        token = self.peek()
        if token.kind not in kinds:
            raise self.unexpected(token, " or ".join(kinds))
        self._next = None
        return token

    def skip(self) -> Token:
        """The next token, whatever it is."""
        token = self.peek()
        self._next = None
        return token

    def fail(self, reason: str, token: Token) -> FilterError:
        """What to raise about the expression at *token*."""
        return FilterError(reason, self._expression, token.offset)

    def unexpected(self, token: Token, wanted: str) -> FilterError:
        """What to raise when *token* stands where *wanted* was expected."""
        return self.fail(f"expected {wanted}, found {token}", token)

    def node(self, node: AnyNode, token: Token) -> AnyNode:
        """*node*, unless the tree becomes too deep with it."""
        if node.depth > DEPTH_MAX:
            raise self.fail(f"more than {DEPTH_MAX} operations within each other", token)
        return node

    # ---- operators -----------------------------------------------------------------------------------------------

    def climb(self, level: int) -> Node:
        """Everything that binds at least as tightly as *level*."""
        first = self.peek()
        left = self.unary()
        last = COMPARISON_LEVEL  # what a looser operator has made takes no tighter one: `a IS NULL > 5` ends at the >
        while level <= LEVELS.get(self.peek().kind, 0) <= last:
            last = LEVELS[self.peek().kind]
            if last <= AND_LEVEL:
                left = self.logic(left, first)
            elif last == EQUALITY_LEVEL:
                left = self.equality(left, first)
            else:
                left = self.comparison(left, first)
        return left

    def logic(self, left: Node, first: Token) -> Node:
        """AND or OR: all terms of one chain together, which evaluates as they would in pairs."""
        operator = self.peek()
        terms = [self.boolean(left, first)]
        while self.peek().kind == operator.kind:
            self.skip()
            start = self.peek()
            terms.append(self.boolean(self.climb(LEVELS[operator.kind] + 1), start))
        return self.node(logic_of(operator.kind == "AND", *terms), operator)

    def equality(self, left: Node, first: Token) -> Node:
        """= <> IS."""
        operator = self.skip()
        if operator.kind == "IS":
            negated = self.peek().kind == "NOT"
            if negated:
                self.skip()
            if self.peek().kind != "NULL":
                raise self.unexpected(self.peek(), "NULL" if negated else "NULL or NOT NULL")
            self.skip()
            return self.node(equal_of(left, NULL, negated=negated), operator)
        start = self.peek()
        right = self.climb(COMPARISON_LEVEL)
        for operand, at in ((left, first), (right, start)):
            if operand == NULL:
                raise self.fail(f"NULL cannot be compared with {operator}; write IS NULL or IS NOT NULL", at)
        if isinstance(left, Constant) and isinstance(right, Constant) and is_boolean(left) and not is_boolean(right):
            raise self.fail(f"{left} cannot be compared with {right}", operator)
        return self.node(equal_of(left, right, negated=operator.kind == "<>"), operator)

    def comparison(self, left: Node, first: Token) -> Node:
        """Orderings, looks into strings, BETWEEN, IN."""
        operator = self.skip()
        negated = operator.kind == "NOT"
        if negated:
            if self.peek().kind not in AFTER_NOT:
                raise self.unexpected(self.peek(), " or ".join(AFTER_NOT))
            operator = self.skip()
        if operator.kind in ORDERINGS:
            start = self.peek()
            right = self.unary()
            return self.node(self.ordering(ORDERINGS[operator.kind], left, first, right, start), operator)
        if operator.kind in MATCHES:
            search = unquoted(self.take(STRING))
            return self.node(TextMatch(MATCHES[operator.kind], left, search, negated, left.depth + 1), operator)
        if operator.kind == "BETWEEN":
            return self.node(self.between(left, first, negated=negated), operator)
        values = self.values()
        if not isinstance(left, Property):
            raise self.fail("IN asks for a property on its left", first)
        return self.node(In(left, values, negated, 2), operator)

    def ordering(self, operation: Compare, left: Node, first: Token, right: Node, start: Token) -> Comparison:
        """< and its like: numbers and properties only."""
        for operand, at in ((left, first), (right, start)):
            if is_boolean(operand) or (isinstance(operand, Constant) and operand.kind is Kind.STRING):
                what = str(operand) if isinstance(operand, Constant) else "a boolean"
                raise self.fail(f"{what} cannot be compared with {operation.value}; a number or a property can", at)
        return Comparison(operation, left, right, max(left.depth, right.depth) + 1)

    def between(self, left: Node, first: Token, *, negated: bool) -> Node:
        """BETWEEN low AND high, which is two comparisons."""
        low_at = self.peek()
        low = self.unary()
        self.take("AND")
        high_at = self.peek()
        high = self.unary()
        below, above = (Compare.LT, Compare.GT) if negated else (Compare.GE, Compare.LE)
        lower = self.ordering(below, left, first, low, low_at)
        upper = self.ordering(above, left, first, high, high_at)
        if not negated and isinstance(low, Constant) and isinstance(high, Constant) and is_less(high, low):
            raise self.fail(f"BETWEEN {low} AND {high}: the second must not be less than the first", high_at)
        return logic_of(not negated, lower, upper)

    def values(self) -> tuple[str, ...]:
        """('a', 'b')."""
        self.take("(")
        values = [unquoted(self.take(STRING))]
        while self.take(",", ")").kind == ",":
            values.append(unquoted(self.take(STRING)))
        return tuple(values)

    # ---- operands ------------------------------------------------------------------------------------------------

    def unary(self) -> Node:
        """Signs and NOT, then what they apply to."""
        token = self.skip()
        self._nesting += 1
        if self._nesting > NESTING_MAX:
            raise self.fail(f"more than {NESTING_MAX} parentheses, signs or NOTs within each other", token)
        node: Node
        match token.kind:
            case "+":
                node = self.unary()
            case "-":
                operand = self.unary()
                node = Negate(operand, operand.depth + 1)
            case "NOT":
                start = self.peek()
                wanted = self.boolean(self.unary(), start)
                node = Not(wanted, wanted.depth + 1)
            case "(":
                node = self.climb(OR_LEVEL)
                if self.peek().kind != ")":
                    raise self.unexpected(self.peek(), "an operator or )")
                self.skip()
            case _:
                node = self.operand(token)
        self._nesting -= 1
        return self.node(node, token)

    def operand(self, token: Token) -> Node:
        """A literal or a name."""
        match token.kind:
            case "NULL":
                return NULL
            case "TRUE":
                return TRUE
            case "FALSE":
                return FALSE
            case kind if kind == STRING:
                return Constant(Kind.STRING, unquoted(token))
            case kind if kind == DECIMAL:
                digits = token.text.rstrip("lL")
                if len(digits) > LONG_DIGITS or int(digits) > LONG_MAX:
                    raise self.fail(f"{token} is greater than {LONG_MAX}", token)
                return number(int(digits))
            case kind if kind == FLOATING:
                return self.floating(token)
            case kind if kind == NAME:
                return Property(token.text)
            case _:
                raise self.unexpected(token, "a property, a literal, (, NOT, + or -")

    def floating(self, token: Token) -> Constant:
        """A number with a point or an exponent. Compat: zero is refused, being less than the smallest double."""
        value = float(token.text)
        if value == float("inf"):
            raise self.fail(f"{token} is greater than the largest double", token)
        if value == 0.0:
            raise self.fail(f"{token} is less than the smallest positive double; write 0", token)
        return Constant(Kind.DOUBLE, value)

    def boolean(self, node: Node, token: Token) -> Node:
        """*node* where a boolean is wanted."""
        if is_boolean(node):
            return node
        if isinstance(node, Property):
            return Cast(node, 2)
        raise self.fail("a boolean is wanted here", token)


def logic_of(is_and: bool, *terms: Node) -> Logic:
    """A chain of *terms*."""
    return Logic(is_and, terms, max(term.depth for term in terms) + 1)


def equal_of(left: Node, right: Node, *, negated: bool) -> Node:
    """left = right, or NOT of it."""
    depth = max(left.depth, right.depth) + 1
    equal = Comparison(Compare.EQ, left, right, depth)
    return Not(equal, depth + 1) if negated else equal


def unquoted(token: Token) -> str:
    """The text of a string literal."""
    return token.text[1:-1].replace("''", "'")


def is_less(left: Constant, right: Constant) -> bool:
    """Whether one number is less than another, compared as Java does: as doubles when one is a double."""
    a, b = left.value, right.value
    assert isinstance(a, int | float)
    assert isinstance(b, int | float)
    if Kind.DOUBLE in (left.kind, right.kind):
        return float(a) < float(b)
    return a < b
