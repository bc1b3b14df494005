"""Sums of products as one product: the gradient of a weight that a step uses many times.

A cell that runs over T steps, or a layer that several inputs share, has as the gradient of its weight

    a_1' b_1 + ... + a_T' b_T  =  [a_1; ...; a_T]' [b_1; ...; b_T]

One long product takes less time than T short ones, whose results, each as large as the weight, are written and read
once more to be added. The gradient of a bias, the sum of all rows a, is then one sum. Compilers write much of what is
put together here where it belongs in the first place.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from ...capture.graph_flow import tensor_memory, written_nodes
from .programs import call_operator

__all__ = ["join_products"]

aten = torch.ops.aten

# What sums and their terms consist of.
_PARTS = (aten.add.Tensor, aten.mm.default, aten.t.default, aten.view.default, aten.sum.dim_IntList)
# The way to a product, in numbers that are copied in the same time.
_NUMBERS_OF_A_CALL = 10_000


class _Factor(NamedTuple):
    """A matrix: `base`, or its transpose."""

    base: torch.fx.Node
    is_turned: bool

    def turn(self) -> _Factor:
        return _Factor(self.base, not self.is_turned)


class _Term(NamedTuple):
    """One term of a sum: the product of `left` and `right`, or the sum of the rows of `left` if `right` is None."""

    node: torch.fx.Node
    left: _Factor
    right: Optional[_Factor]

    @property
    def factors(self) -> List[_Factor]:
        return [self.left] if self.right is None else [self.left, self.right]


def join_products(graph: torch.fx.Graph) -> None:
    """Join the products that sums in a flat graph of ATen operators add up; values are in `meta["val"]`.

    Left alone are products that are long already: putting their factors together would take longer.
    """
    joiner = _Joiner(graph)
    sums = [node for node in graph.nodes if _is_sum(node) and not _is_part_of_sum(node)]
    # sums of rows are joined where a product has put the rows together
    for read_term in (_read_product, _read_sum_of_rows):
        sums = [joiner.join(total, read_term) for total in sums]


class _Joiner:
    """Joins terms of sums in one graph, and puts no factors together twice."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self._graph = graph
        self._order = {node: number for number, node in enumerate(graph.nodes)}
        self._joined: Dict[Tuple[Any, ...], torch.fx.Node] = {}
        self._written: Dict[int, int] = {}
        for node, number in self._order.items():
            self._written.update((tensor_memory(target), number) for target in written_nodes(node))

    def join(self, total: torch.fx.Node, read_term: Any) -> torch.fx.Node:
        """Join those terms of a sum that `read_term` understands; return the node that is the sum then."""
        rest = _list_terms(total)
        kinds: Dict[Tuple[bool, ...], List[_Term]] = {}
        for term in filter(None, map(read_term, rest)):
            if self._is_lasting(term):
                kinds.setdefault(tuple(factor.is_turned for factor in term.factors), []).append(term)
        joined = []
        for terms in kinds.values():
            together = self._write_together(terms, before=total) if len(terms) > 1 else None
            if together is not None:
                joined.append(together)
                gone = {term.node for term in terms}
                rest = [node for node in rest if node not in gone]
        if not joined:
            return total
        with self._graph.inserting_before(total):
            whole, *others = [*joined, *rest]
            for other in others:
                whole = call_operator(self._graph, aten.add.Tensor, whole, other)
        total.replace_all_uses_with(whole)
        _erase_sum(total)
        return whole

    def _is_lasting(self, term: _Term) -> bool:
        """Tell whether nobody writes to the factors after they were made, which sums joined before are no part of."""
        bases = [factor.base for factor in term.factors]
        return all(
            base in self._order and self._written.get(tensor_memory(base), -1) <= self._order[base] for base in bases
        )

    def _write_together(self, terms: Sequence[_Term], *, before: torch.fx.Node) -> Optional[torch.fx.Node]:
        lefts, rights = [term.left for term in terms], [term.right for term in terms if term.right is not None]
        if not rights:
            rows = self._joined.get((0, *(left.base for left in lefts)))
            with self._graph.inserting_before(before):
                return None if rows is None else call_operator(self._graph, aten.sum.dim_IntList, rows, [0])
        left, right = self._put_together(lefts, 1), self._put_together(rights, 0)
        with self._graph.inserting_before(before):
            return call_operator(
                self._graph, aten.mm.default, self._turn_like(left, lefts[0]), self._turn_like(right, rights[0])
            )

    def _put_together(self, factors: Sequence[_Factor], dim: int) -> torch.fx.Node:
        """Put bases together so that the factors are, along a dimension of theirs."""
        bases = [factor.base for factor in factors]
        key = (1 - dim if factors[0].is_turned else dim, *bases)
        if key not in self._joined:
            # as early as possible, so that whatever else is made of them comes later, but after all arguments
            last = max(*bases, *self._graph.find_nodes(op="placeholder"), key=self._order.__getitem__)
            with self._graph.inserting_after(last):
                self._joined[key] = call_operator(self._graph, aten.cat.default, bases, key[0])
        return self._joined[key]

    def _turn_like(self, node: torch.fx.Node, like: _Factor) -> torch.fx.Node:
        return call_operator(self._graph, aten.t.default, node) if like.is_turned else node


# -- reading sums ------------------------------------------------------------------------------------------------------


def _is_sum(node: torch.fx.Node) -> bool:
    is_plain = node.target is aten.add.Tensor and not node.kwargs
    return is_plain and all(_is_alike(node.meta["val"], other) for other in node.args)


def _is_alike(value: torch.Tensor, node: Any) -> bool:
    other = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return isinstance(other, torch.Tensor) and (other.shape, other.dtype) == (value.shape, value.dtype)


def _is_part_of_sum(node: torch.fx.Node) -> bool:
    return len(node.users) == 1 and _is_sum(next(iter(node.users)))


def _list_terms(total: torch.fx.Node) -> List[torch.fx.Node]:
    """Return what a sum adds up, from left to right."""
    found: List[torch.fx.Node] = []
    waiting: List[Any] = list(reversed(total.args)) if _is_sum(total) else []
    while waiting:
        term = waiting.pop()
        if _is_sum(term) and len(term.users) == 1:
            waiting += reversed(term.args)
        else:
            found.append(term)
    return found


def _read_product(node: torch.fx.Node) -> Optional[_Term]:
    """Return a product of matrices that is used nowhere else, and short; None for any other term."""
    inner, is_turned = node, False
    while inner.target is aten.t.default and len(inner.users) == 1:
        inner, is_turned = inner.all_input_nodes[0], not is_turned
    if inner.target is not aten.mm.default or len(inner.users) != 1:
        return None
    left, right = map(_read_factor, inner.args)
    (rows, length), columns = inner.args[0].meta["val"].shape, node.meta["val"].numel()  # type: ignore[union-attr]
    columns //= rows
    # what is put together is copied; what was added is not written and read any more
    if length * (rows + columns) > 2 * rows * columns + _NUMBERS_OF_A_CALL:
        return None
    return _Term(node, right.turn(), left.turn()) if is_turned else _Term(node, left, right)


def _read_sum_of_rows(node: torch.fx.Node) -> Optional[_Term]:
    """Return the sum of a matrix's rows, used nowhere else; None for any other term."""
    inner = node.all_input_nodes[0] if node.target is aten.view.default and len(node.users) == 1 else node
    if inner.target is not aten.sum.dim_IntList or len(inner.users) != 1 or inner.args[1] != [0]:
        return None
    (rows,) = inner.all_input_nodes
    is_vector = rows.meta["val"].dim() == 2 and node.meta["val"].shape == rows.meta["val"].shape[1:]
    return _Term(node, _Factor(rows, True), None) if is_vector and "dtype" not in inner.kwargs else None


def _read_factor(node: Any) -> _Factor:
    return _Factor(node.args[0], True) if node.target is aten.t.default else _Factor(node, False)


def _erase_sum(node: torch.fx.Node) -> None:
    """Erase a sum that nobody uses, and of its terms what nobody else does."""
    if not node.users and node.target in _PARTS:
        used = node.all_input_nodes
        node.graph.erase_node(node)
        for one in used:
            _erase_sum(one)
