"""The tree of tenants: nobody uses what nobody owns, and what is not lent stays home."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.scheduler.events import NEVER, Cap, Quota
from windlass.scheduler.quota import WHOLE, Tree

RESOURCES = ("cpus", "gpus", "gpus:A100", "memory")


def gpus(tree: Tree, count: int) -> tuple[int, ...]:
    return tree.amounts({"gpus": count})


def charge(tree: Tree, tenant: str, count: int, kind: str = "train", user: str = "ann") -> None:
    amounts = gpus(tree, count)
    assert tree.fits(tenant, kind, user, amounts)
    tree.charge(tenant, kind, user, amounts)


# A few trees that one can hold in the head


def test_a_tenant_without_a_cohort_gets_what_it_owns_and_no_more() -> None:
    tree = Tree([Quota("a", nominal={"gpus": 8}, borrow={"gpus": 9})], [])
    assert tree.fits("a", "", "", gpus(tree, 8))
    assert not tree.fits("a", "", "", gpus(tree, 9))
    assert tree.missing("a", "", "", gpus(tree, 11)) == {"gpus": 3}
    assert tree.never("a", "", "", gpus(tree, 11)) == {"gpus": 3}


def test_a_tenant_that_nobody_names_is_not_metered() -> None:
    tree = Tree([Quota("a", nominal={"gpus": 8})], [])
    huge = tree.amounts({"gpus": 10**9, "memory": 2**50})
    assert tree.fits("stranger", "", "", huge)
    assert tree.missing("stranger", "", "", huge) == {}
    assert tree.never("stranger", "", "", huge) == {}
    assert tree.within_nominal("stranger", huge)
    assert tree.cohort("stranger") == "stranger"
    tree.charge("stranger", "", "", huge)
    assert tree.usage("stranger")["memory"] == 2**50
    assert not tree.over_nominal("stranger")


def test_what_nobody_in_the_cohort_names_is_not_metered_there() -> None:
    tree = Tree(
        [
            Quota("c"),
            Quota("a", "c", {"gpus": 8}),
            Quota("d"),
            Quota("b", "d", {"cpus": 1}),
        ],
        [],
    )
    assert tree.columns == ("cpus", "gpus", "memory")
    assert tree.fits("a", "", "", tree.amounts({"gpus": 8, "cpus": 10**6}))
    assert not tree.fits("b", "", "", tree.amounts({"gpus": 8, "cpus": 2}))
    assert tree.nominal("a") == {"gpus": 8}
    assert tree.available("b") == {"cpus": 1}


def test_a_tenant_of_a_cohort_owns_nothing_of_what_only_others_name() -> None:
    tree = Tree([Quota("c"), Quota("a", "c", {"gpus": 8}), Quota("b", "c")], [])
    assert tree.nominal("b") == {"gpus": 0}
    charge(tree, "b", 3)
    assert tree.over_nominal("b")
    assert tree.available("a") == {"gpus": 5}


def test_idle_quota_is_lent_up_to_both_limits() -> None:
    tree = Tree(
        [
            Quota("c"),
            Quota("a", "c", {"gpus": 10}, lend={"gpus": 4}),
            Quota("b", "c", {"gpus": 10}, borrow={"gpus": 3}),
            Quota("d", "c", {"gpus": 0}),
        ],
        [],
    )
    assert tree.available("b") == {"gpus": 13}  # its own, and three of the four that a lends
    assert tree.available("d") == {"gpus": 14}
    charge(tree, "d", 14)
    assert tree.available("b") == {"gpus": 0}  # lent away: to be reclaimed
    assert tree.within_nominal("b", gpus(tree, 10))
    assert tree.available("a") == {"gpus": 6}  # what it keeps home is there at once
    assert tree.never("d", "", "", gpus(tree, 15)) == {"gpus": 1}


def test_who_lends_little_may_still_borrow_no_more_than_its_limit() -> None:
    tree = Tree(
        [
            Quota("c", nominal={"gpus": 20}),
            Quota("a", "c", {"gpus": 10}, borrow={"gpus": 3}, lend={"gpus": 4}),
        ],
        [],
    )
    for used in range(14):
        assert tree.available("a") == {"gpus": 13 - used}
        assert tree.fits("a", "", "", gpus(tree, 13 - used))
        assert tree.missing("a", "", "", gpus(tree, 14 - used)) == {"gpus": 1}
        tree.charge("a", "", "", gpus(tree, 1))


def test_a_cohort_of_cohorts_lends_between_its_branches() -> None:
    tree = Tree(
        [
            Quota("org", nominal={"gpus": 2}),
            Quota("left", "org", borrow={"gpus": 5}),
            Quota("right", "org", lend={"gpus": 6}),
            Quota("l1", "left", {"gpus": 4}),
            Quota("r1", "right", {"gpus": 8}),
            Quota("r2", "right", {"gpus": 2}, lend={"gpus": 0}),
        ],
        [],
    )
    # left owns 4 and may borrow 5; right owns 8 (r2 lends nothing) and lends 6; org has 2 itself.
    assert tree.available("l1") == {"gpus": 9}
    charge(tree, "l1", 9)
    assert tree.available("r1") == {"gpus": 5}  # of its 8 three are lent, besides the org's two
    assert tree.available("r2") == {"gpus": 2 + 5}
    assert tree.cohort("r2") == tree.cohort("l1") == "org"
    assert tree.tenants() == ["l1", "r1", "r2"]


def test_caps_hold_for_a_kind_a_user_and_both() -> None:
    caps = [
        Cap("a", {"gpus": 4}, kind="notebook"),
        Cap("a", {"gpus": 6}, user="ann"),
        Cap("a", {"gpus": 1}, kind="notebook", user="bob"),
        Cap("a", {"gpus": 9}),
    ]
    tree = Tree([Quota("a", nominal={"gpus": 20})], caps)
    charge(tree, "a", 3, "notebook", "ann")
    assert tree.missing("a", "notebook", "ann", gpus(tree, 2)) == {"gpus": 1}
    assert tree.missing("a", "train", "ann", gpus(tree, 4)) == {"gpus": 1}
    assert tree.missing("a", "notebook", "bob", gpus(tree, 2)) == {"gpus": 1}
    assert tree.fits("a", "notebook", "bob", gpus(tree, 1))
    assert tree.fits("a", "train", "bob", gpus(tree, 6))
    assert not tree.fits("a", "train", "bob", gpus(tree, 7))
    assert tree.never("a", "notebook", "bob", gpus(tree, 5)) == {"gpus": 4}
    tree.discharge("a", "notebook", "ann", gpus(tree, 3))
    assert tree.fits("a", "notebook", "ann", gpus(tree, 4))


def test_a_cap_counts_work_without_kind_or_user_once() -> None:
    tree = Tree([], [Cap("a", {"gpus": 4})])
    charge(tree, "a", 2, "", "")
    assert tree.fits("a", "", "", gpus(tree, 2))
    assert not tree.fits("a", "", "", gpus(tree, 3))


def test_work_without_gpus_is_not_held_up_by_overdrawn_gpus() -> None:
    tree = Tree([Quota("a", nominal={"gpus": 1, "cpus": 5})], [])
    tree.charge("a", "", "", gpus(tree, 3))  # runs since before the quota was cut
    assert tree.fits("a", "", "", tree.amounts({"cpus": 5}))
    assert tree.missing("a", "", "", tree.amounts({"cpus": 5})) == {}


def test_what_stays_home_is_there_even_when_the_cohort_is_overdrawn() -> None:
    tree = Tree([Quota("c"), Quota("a", "c", {"gpus": 5}, lend={"gpus": 2}), Quota("b", "c")], [])
    tree.charge("b", "", "", gpus(tree, 50))
    assert tree.available("a") == {"gpus": 3}
    assert tree.fits("a", "", "", gpus(tree, 3))


def test_giving_back_more_than_was_charged_is_noticed() -> None:
    tree = Tree([Quota("a", nominal={"gpus": 8})], [])
    charge(tree, "a", 2)
    with pytest.raises(AssertionError):
        tree.discharge("a", "train", "ann", gpus(tree, 3))


def test_share_is_the_borrowed_part_over_what_the_cohort_could_lend_by_weight() -> None:
    quotas = [
        Quota("c"),
        Quota("a", "c", {"gpus": 10, "cpus": 100}),
        Quota("b", "c", {"gpus": 30, "cpus": 100}, weight_milli=2000),
    ]
    tree = Tree(quotas, [])
    amounts = tree.amounts({"gpus": 10, "cpus": 100})
    assert tree.share("a", amounts) == 0
    tree.charge("a", "", "", amounts)
    assert tree.share("a") == 0
    assert tree.share("a", tree.amounts({"gpus": 4, "cpus": 30})) == 30 * WHOLE // 200
    assert tree.share("b", tree.amounts({"gpus": 34})) == 4 * WHOLE // 40 // 2


def test_share_without_quotas_is_the_dominant_share_of_the_cluster() -> None:
    tree = Tree([Quota("heavy", weight_milli=3000)], [])
    tree.capacity({"cpus": 9, "gpus": 0, "memory": 18})
    for tenant in ("a", "heavy"):
        tree.charge(tenant, "", "", tree.amounts({"cpus": 3, "memory": 3}))
    assert tree.share("a") == WHOLE // 3
    assert tree.share("heavy") == WHOLE // 9
    assert tree.share("a", tree.amounts({"memory": 9})) == WHOLE * 2 // 3
    assert tree.share("nobody") == 0


def test_whoever_borrows_a_trifle_comes_after_who_borrows_nothing() -> None:
    tree = Tree([Quota("c", nominal={"memory": 2**50}), Quota("a", "c")], [])
    assert tree.share("a", tree.amounts({"memory": 1})) == 1


def test_who_has_no_weight_borrows_last() -> None:
    tree = Tree([Quota("c", nominal={"gpus": 4}), Quota("a", "c", weight_milli=0)], [])
    assert tree.share("a", gpus(tree, 1)) >= WHOLE
    assert tree.share("a", tree.amounts({"gpus": 1 << 60})) == NEVER


def test_taking_from_a_borrower_stops_at_what_it_owns() -> None:
    tree = Tree([Quota("c", nominal={"gpus": 9}), Quota("a", "c", {"gpus": 4, "cpus": 4})], [])
    tree.charge("a", "", "", tree.amounts({"gpus": 6, "cpus": 4}))
    both, gpus_alone = tree.amounts({"gpus": 2, "cpus": 4}), tree.amounts({"gpus": 1})
    assert not tree.stays_at_nominal("a", both)  # all of its CPUs are its own
    assert tree.stays_at_nominal("a", both, wanted=gpus_alone)
    assert not tree.stays_at_nominal("a", tree.amounts({"gpus": 3}))


@pytest.mark.parametrize(
    ("quotas", "caps", "complaint"),
    [
        ([Quota("a", "nowhere")], [], r"quotas\[0\]\.parent: there is no 'nowhere'"),
        ([Quota("a"), Quota("a")], [], r"quotas\[1\]\.name: 'a'"),
        ([Quota("a", "b"), Quota("b", "a")], [], r"quotas\[0\]\.parent: 'a' is its own ancestor"),
        ([Quota("a", "a")], [], r"quotas\[0\]\.parent: 'a' is its own ancestor"),
        (
            [Quota("x", "a"), Quota("a", "b"), Quota("b", "a")],
            [],
            r"quotas\[0\]\.parent: .*circle",
        ),
        ([Quota("a", nominal={"gpus": -1})], [], r"quotas\[0\]\.nominal\[gpus\]: -1 is negative"),
        ([Quota("a", borrow={"cpus": -1})], [], r"quotas\[0\]\.borrow\[cpus\]: -1"),
        ([Quota("a", lend={"memory": -1})], [], r"quotas\[0\]\.lend\[memory\]: -1"),
        ([Quota("a", weight_milli=-1)], [], r"quotas\[0\]\.weight_milli: -1"),
        ([Quota("a", nominal={"gpu": 1})], [], r"quotas\[0\]\.nominal\[gpu\]: no resource"),
        ([], [Cap("a", {"gpus": -2})], r"caps\[0\]\.limits\[gpus\]: -2"),
        ([], [Cap("a", {}), Cap("a", {})], r"caps\[1\]: a second one"),
        (
            [Quota("1"), Quota("2", "1"), Quota("3", "2"), Quota("4", "3"), Quota("5", "4")],
            [],
            r"quotas\[4\]\.parent: deeper than 4",
        ),
    ],
)
def test_what_makes_no_tree_is_refused_with_the_field(
    quotas: list[Quota], caps: list[Cap], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        Tree(quotas, caps)


# Random trees


@dataclass
class Book:
    """What was charged, kept apart from the tree: the truth to compare it with."""

    quotas: list[Quota]
    caps: list[Cap]
    held: list[tuple[str, str, str, Mapping[str, int]]]

    def used(self, tenant: str, name: str, kind: str = "", user: str = "") -> int:
        return sum(
            of.get(name, 0)
            for who, what, by, of in self.held
            if who == tenant and kind in ("", what) and user in ("", by)
        )

    def children(self, name: str) -> list[Quota]:
        return [quota for quota in self.quotas if quota.parent == name]

    def below(self, name: str) -> list[Quota]:
        found = self.children(name)
        return found + [deeper for child in found for deeper in self.below(child.name)]

    def root(self, name: str) -> str:
        quota = next(quota for quota in self.quotas if quota.name == name)
        return self.root(quota.parent) if quota.parent else name

    def metered(self, name: str) -> set[str]:
        root = next(quota for quota in self.quotas if quota.name == self.root(name))
        tree = [root, *self.below(root.name)]
        return {what for quota in tree for what in {**quota.nominal, **quota.borrow, **quota.lend}}

    def owned(self, quota: Quota, what: str) -> int:
        """Its own, and all that those below it lend."""
        return quota.nominal.get(what, 0) + sum(
            min(child.lend.get(what, NEVER), self.owned(child, what))
            for child in self.children(quota.name)
        )

    def drawn(self, quota: Quota, what: str) -> int:
        """What it and those below draw, beyond what these keep at home."""
        return self.used(quota.name, what) + sum(
            max(0, self.drawn(child, what) - self.kept(child, what))
            for child in self.children(quota.name)
        )

    def kept(self, quota: Quota, what: str) -> int:
        owned = self.owned(quota, what)
        return owned - min(quota.lend.get(what, NEVER), owned)


small = st.integers(0, 12)
some = st.dictionaries(st.sampled_from(RESOURCES), small, max_size=3)


@st.composite
def books(draw: st.DrawFn) -> Book:
    quotas: list[Quota] = []
    depth: dict[str, int] = {}
    for number in range(draw(st.integers(1, 7))):
        above = draw(st.sampled_from(["", *[name for name in depth if depth[name] < 3]]))
        name = f"t{number}"
        depth[name] = depth[above] + 1 if above else 0
        weight = draw(st.sampled_from([500, 1000, 3000]))
        quotas.append(Quota(name, above, draw(some), draw(some), draw(some), weight))
    quotas = draw(st.permutations(quotas))
    names = st.sampled_from([*depth, "stranger"])
    caps = draw(
        st.lists(
            st.builds(
                Cap, names, some, kind=st.sampled_from(["", "k"]), user=st.sampled_from(["", "u"])
            ),
            max_size=3,
            unique_by=lambda cap: (cap.tenant, cap.kind, cap.user),
        )
    )
    return Book(quotas, caps, [])


steps = st.lists(
    st.tuples(
        st.integers(0, 7),
        st.sampled_from(["k", "other", ""]),
        st.sampled_from(["u", "other", ""]),
        some,
        st.integers(0, 3),
    ),
    max_size=40,
)


def walk(tree: Tree, book: Book, moves: list[tuple[int, str, str, dict[str, int], int]]) -> None:
    """Charge what fits, and give back what was charged, as the moves say."""
    inner = {quota.parent for quota in book.quotas}
    tenants = [quota.name for quota in book.quotas if quota.name not in inner] + ["stranger"]
    for number, kind, user, of, choice in moves:
        if choice == 0 and book.held:
            tenant, kind, user, gone = book.held.pop(number % len(book.held))
            tree.discharge(tenant, kind, user, tree.amounts(gone))
            continue
        tenant = tenants[number % len(tenants)]
        amounts = tree.amounts(of)
        if tree.fits(tenant, kind, user, amounts):
            tree.charge(tenant, kind, user, amounts)
            book.held.append((tenant, kind, user, of))


@settings(max_examples=300, deadline=None)
@given(book=books(), moves=steps)
def test_no_one_uses_more_than_it_owns_and_others_lend(
    book: Book, moves: list[tuple[int, str, str, dict[str, int], int]]
) -> None:
    tree = Tree(book.quotas, book.caps)
    walk(tree, book, moves)
    for quota in book.quotas:
        for what in book.metered(quota.name):
            owned, drawn = book.owned(quota, what), book.drawn(quota, what)
            borrowed = max(0, drawn - owned)
            # U <= N + B, of a tenant and of a whole branch.
            if quota.parent:
                assert drawn <= owned + quota.borrow.get(what, NEVER)
            # Of a whole tree: no more than is owned in it.
            else:
                tenants = [quota, *book.below(quota.name)]
                used = sum(book.used(each.name, what) for each in tenants)
                assert used <= sum(each.nominal.get(what, 0) for each in tenants)
                assert borrowed == 0
            # Borrowed is lent: by those beside it, by the cohort itself, or by those beside that.
            lent, above = 0, quota
            while above.parent:
                beside = [each for each in book.children(above.parent) if each.name != above.name]
                lent += sum(
                    max(
                        0,
                        book.owned(each, what)
                        - max(book.drawn(each, what), book.kept(each, what)),
                    )
                    for each in beside
                )
                above = next(each for each in book.quotas if each.name == above.parent)
                lent += above.nominal.get(what, 0)
            assert borrowed <= lent
            # What is not lent stays home: it is there whatever others do.
            tenant = quota.name
            if not book.children(tenant):
                left = book.kept(quota, what) - book.used(tenant, what)
                assert tree.available(tenant)[what] >= left
                assert tree.usage(tenant)[what] == book.used(tenant, what)
                assert tree.nominal(tenant)[what] == quota.nominal.get(what, 0)
    for cap in book.caps:
        for what, most in cap.limits.items():
            assert book.used(cap.tenant, what, cap.kind, cap.user) <= most


@settings(max_examples=150, deadline=None)
@given(book=books(), moves=steps)
def test_giving_all_back_leaves_the_tree_as_it_was(
    book: Book, moves: list[tuple[int, str, str, dict[str, int], int]]
) -> None:
    tree, fresh = Tree(book.quotas, book.caps), Tree(book.quotas, book.caps)
    walk(tree, book, moves)
    for tenant, kind, user, of in book.held:
        tree.discharge(tenant, kind, user, tree.amounts(of))
    for quota in book.quotas:
        assert tree.available(quota.name) == fresh.available(quota.name)
        assert tree.usage(quota.name) == fresh.usage(quota.name)
        assert tree.share(quota.name) == 0


@settings(max_examples=150, deadline=None)
@given(book=books(), moves=steps, extra=st.lists(st.tuples(small, some), max_size=5))
def test_the_order_of_charges_does_not_matter_even_past_the_quota(
    book: Book,
    moves: list[tuple[int, str, str, dict[str, int], int]],
    extra: list[tuple[int, dict[str, int]]],
) -> None:
    tree = Tree(book.quotas, book.caps)
    walk(tree, book, moves)
    for number, of in extra:  # cohorts too, and without asking
        tenant = book.quotas[number % len(book.quotas)].name
        tree.charge(tenant, "", "", tree.amounts(of))
        book.held.append((tenant, "", "", of))
    again = Tree(book.quotas, book.caps)
    for tenant, kind, user, held in reversed(book.held):
        again.charge(tenant, kind, user, again.amounts(held))
    for quota in book.quotas:
        assert tree.available(quota.name) == again.available(quota.name)
        for what in book.metered(quota.name):
            assert tree.usage(quota.name)[what] == book.drawn(quota, what)


@settings(max_examples=200, deadline=None)
@given(book=books(), moves=steps, of=some, kind=st.sampled_from(["k", ""]), more=some)
def test_missing_fits_available_and_never_agree(
    book: Book,
    moves: list[tuple[int, str, str, dict[str, int], int]],
    of: dict[str, int],
    kind: str,
    more: dict[str, int],
) -> None:
    tree = Tree(book.quotas, book.caps)
    walk(tree, book, moves)
    amounts = tree.amounts(of)
    larger = tree.amounts({name: of.get(name, 0) + more.get(name, 0) for name in RESOURCES})
    for tenant in tree.tenants():
        fits = tree.fits(tenant, kind, "u", amounts)
        missing = tree.missing(tenant, kind, "u", amounts)
        assert fits == (missing == {})
        if tree.never(tenant, kind, "u", amounts):
            assert not fits
        if not fits:  # more never fits where less does not, and lacks no less
            assert not tree.fits(tenant, kind, "u", larger)
            wider = tree.missing(tenant, kind, "u", larger)
            assert all(wider[name] >= lack for name, lack in missing.items())
        if not any(cap.tenant == tenant for cap in book.caps):
            available = tree.available(tenant)
            assert fits == all(
                not of.get(name) or of[name] <= left for name, left in available.items()
            )
            assert tree.fits(tenant, kind, "u", tree.amounts(available))
        assert tree.share(tenant, larger) >= tree.share(tenant, amounts) >= tree.share(tenant)
        if tenant != "stranger" and book.metered(tenant):
            assert (tree.share(tenant, amounts) == 0) == tree.within_nominal(tenant, amounts)
            assert (tree.share(tenant) > 0) == tree.over_nominal(tenant)


@settings(max_examples=100, deadline=None)
@given(nominal=some, held=some, of=some)
def test_a_lone_tenant_fits_once_it_owns_what_was_missing(
    nominal: dict[str, int], held: dict[str, int], of: dict[str, int]
) -> None:
    quota = Quota("a", nominal=nominal)
    tree = Tree([quota], [])
    tree.charge("a", "", "", tree.amounts(held))
    missing = tree.missing("a", "", "", tree.amounts(of))
    grown = {name: amount + missing.get(name, 0) for name, amount in nominal.items()}
    enough = Tree([replace(quota, nominal=grown)], [])
    enough.charge("a", "", "", enough.amounts(held))
    assert enough.fits("a", "", "", enough.amounts(of))
    for name in missing:  # and not with one less
        short = Tree([replace(quota, nominal={**grown, name: grown[name] - 1})], [])
        short.charge("a", "", "", short.amounts(held))
        assert short.missing("a", "", "", short.amounts(of)) == {name: 1}


@settings(max_examples=150, deadline=None)
@given(book=books(), moves=steps)
def test_with_borrowers_gone_everyone_gets_what_it_owns(
    book: Book, moves: list[tuple[int, str, str, dict[str, int], int]]
) -> None:
    """The promise behind reclaiming: what is within nominal fits once nobody is over it."""
    book.caps = []
    tree = Tree(book.quotas, [])
    walk(tree, book, moves)
    for tenant, kind, user, of in reversed(book.held):
        if tree.over_nominal(tenant):
            tree.discharge(tenant, kind, user, tree.amounts(of))
    for tenant in tree.tenants():
        used = tree.usage(tenant)
        rest = {name: own - used[name] for name, own in tree.nominal(tenant).items()}
        amounts = tree.amounts(rest)
        assert tree.within_nominal(tenant, amounts)
        assert tree.fits(tenant, "", "", amounts)
