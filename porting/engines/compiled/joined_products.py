"""Sums of products as one product: the gradient of a weight that a step uses many times.

A cell that runs over T steps, or a layer that several inputs share, has as the gradient of its weight

    a_1' b_1 + ... + a_T' b_T  =  [a_1; ...; a_T]' [b_1; ...; b_T]

One long product takes less time than T short ones, whose results, each as large as the weight, are written and read
once more to be added. The gradient of a bias, the sum of all rows a, is then one sum. Compilers write much of what is
put together here where it belongs in the first place.

Half types are left as they are: replay rounds each of the products.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch

from ...capture.graph_flow import tensor_memory, written_nodes
from .programs import call_operator

__all__ = ["join_products"]

aten = torch.ops.aten

# What sums and their terms consist of.
_PARTS = (aten.add.Tensor, aten.mm.default, aten.t.default, aten.view.default, aten.sum.dim_IntList)
_TYPES = (torch.float32, torch.float64)
# Two products, such as those of an input and a state, have factors that nobody has put together, and little to add.
_FEWEST_TERMS = 3
# What calling a product costs: as much as copying so many numbers.
_NUMBERS_OF_A_CALL = 10_000
# The numbers that are put together for one product, which are kept up to then: 16 MiB in single precision.
_MOST_NUMBERS = 1 << 22


class _Factor(NamedTuple):
    """A matrix: `base`, or its transpose."""

    base: torch.fx.Node
    is_transposed: bool

    def transpose(self) -> _Factor:
        return _Factor(self.base, not self.is_transposed)


class _Term(NamedTuple):
    """One term of a sum: the product of `left` and `right`, or the sum of the rows of `left` if `right` is None."""

    node: torch.fx.Node
    left: _Factor
    right: Optional[_Factor]

    @property
    def factors(self) -> List[_Factor]:
        return [self.left] if self.right is None else [self.left, self.right]

    @property
    def num_numbers(self) -> int:
        """How many numbers are put together with those of other terms; rows already are, by a product."""
        return 0 if self.right is None else sum(factor.base.meta["val"].numel() for factor in self.factors)


def join_products(graph: torch.fx.Graph) -> None:
    """Join the products that sums in a flat graph of ATen operators add up; values are in `meta["val"]`.

    Left alone are sums of one or two products, and products that are long already: putting their factors together
    would take longer.
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
        self._last_argument = graph.find_nodes(op="placeholder")[-1:]
        self._joined: Dict[Tuple[Any, ...], torch.fx.Node] = {}
        self._written: Dict[int, int] = {}
        for node, number in self._order.items():
            self._written.update((tensor_memory(target), number) for target in written_nodes(node))

    def join(self, total: torch.fx.Node, read_term: Callable[[torch.fx.Node], Optional[_Term]]) -> torch.fx.Node:
        """Join those terms of a sum that `read_term` understands; return the node that is the sum then."""
        rest = _list_terms(total)
        kinds: Dict[Tuple[bool, ...], List[_Term]] = {}
        for term in filter(None, map(read_term, rest)):
            if self._is_lasting(term):
                kinds.setdefault(tuple(factor.is_transposed for factor in term.factors), []).append(term)
        joined = []
        for terms in (part for alike in kinds.values() for part in _cut_into_parts(alike)):
            together = self._write_together(terms, total)
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
        old, new = total, whole
        if whole.meta["val"].stride() != total.meta["val"].stride():
            # what uses the sum was traced for its order in memory
            old, new = whole, total
        old.replace_all_uses_with(new)
        _erase_sum(old)
        return new

    def _is_lasting(self, term: _Term) -> bool:
        """Tell whether the factors keep their values once they are made; of new nodes that is not known."""
        bases = [factor.base for factor in term.factors]
        return all(
            base in self._order and self._written.get(tensor_memory(base), -1) <= self._order[base] for base in bases
        )

    def _write_together(self, terms: Sequence[_Term], total: torch.fx.Node) -> Optional[torch.fx.Node]:
        """Write the sum of some terms before that of all, in the order in memory that it has."""
        lefts, rights = [term.left for term in terms], [term.right for term in terms if term.right is not None]
        if not rights:
            rows = self._joined.get((0, *(left.base for left in lefts)))
            with self._graph.inserting_before(total):
                return None if rows is None else call_operator(self._graph, aten.sum.dim_IntList, rows, [0])
        value = total.meta["val"]
        is_transposed = not value.is_contiguous() and value.t().is_contiguous()
        if is_transposed:
            lefts, rights = [right.transpose() for right in rights], [left.transpose() for left in lefts]
        left, right = self._put_together(lefts, 1), self._put_together(rights, 0)
        with self._graph.inserting_before(total):
            factors = self._transpose_like(left, lefts[0]), self._transpose_like(right, rights[0])
            product = call_operator(self._graph, aten.mm.default, *factors)
            return call_operator(self._graph, aten.t.default, product) if is_transposed else product

    def _put_together(self, factors: Sequence[_Factor], dim: int) -> torch.fx.Node:
        """Put bases together so that the factors are, along a dimension of theirs."""
        bases = [factor.base for factor in factors]
        key = (1 - dim if factors[0].is_transposed else dim, *bases)
        if key not in self._joined:
            # as early as possible, so that whatever else is made of them comes later, but after all arguments
            last = max(*bases, *self._last_argument, key=self._order.__getitem__)
            with self._graph.inserting_after(last):
                self._joined[key] = call_operator(self._graph, aten.cat.default, bases, key[0])
        return self._joined[key]

    def _transpose_like(self, node: torch.fx.Node, like: _Factor) -> torch.fx.Node:
        return call_operator(self._graph, aten.t.default, node) if like.is_transposed else node


def _cut_into_parts(terms: Sequence[_Term]) -> Iterator[List[_Term]]:
    """Cut terms into parts, of which each takes little memory when it is put together; leave out what is left alone."""
    parts: List[List[_Term]] = [[]]
    num_numbers = 0
    for term in terms:
        num_numbers += term.num_numbers
        if num_numbers > _MOST_NUMBERS and parts[-1]:
            parts.append([])
            num_numbers = term.num_numbers
        parts[-1].append(term)
    return (part for part in parts if len(part) >= _FEWEST_TERMS)


# -- reading sums ------------------------------------------------------------------------------------------------------


def _is_sum(node: torch.fx.Node) -> bool:
    if node.target is not aten.add.Tensor or node.kwargs:
        return False
    one, other = node.args
    # a number that is added to itself is no sum of two: thirty of them would have a billion terms
    return one is not other and all(_is_alike(node.meta["val"], term) for term in (one, other))


def _is_alike(value: torch.Tensor, node: object) -> bool:
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
    inner, is_transposed = node, False
    while inner.target is aten.t.default and len(inner.users) == 1:
        inner, is_transposed = inner.all_input_nodes[0], not is_transposed
    if inner.target is not aten.mm.default or len(inner.users) != 1 or node.meta["val"].dtype not in _TYPES:
        return None
    one, other = inner.args
    (rows, length), columns = one.meta["val"].shape, other.meta["val"].shape[1]  # type: ignore[union-attr]
    # what is put together is copied; what was added is not written and read any more
    if length * (rows + columns) > 2 * rows * columns + _NUMBERS_OF_A_CALL:
        return None
    left, right = _read_factor(one), _read_factor(other)
    return _Term(node, right.transpose(), left.transpose()) if is_transposed else _Term(node, left, right)


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
    waiting, gone = [node], set()
    while waiting:
        one = waiting.pop()
        if one.target in _PARTS and not one.users and one not in gone:
            waiting += one.all_input_nodes
            gone.add(one)
            one.graph.erase_node(one)
