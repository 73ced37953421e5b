"""``python -m tests.mutants``: break the product in one stated way at a time, in a copy of the checkout, and run the
tests that ought to see it. Ends with 1 where one survives, or cannot be judged."""

import argparse
import json
import shlex
import sys
import time
from pathlib import Path

from tests.mutants.checkout import NO_END, Checkout
from tests.mutants.mutant import PROJECT, Mutant
from tests.mutants.report import Judged, row, written
from tests.mutants.table import MUTANTS


def main() -> int:
    given = arguments()
    chosen = [mutant for mutant in MUTANTS if not given.only or mutant.name in given.only]
    if unknown := set(given.only) - {mutant.name for mutant in MUTANTS}:
        print(f"no mutant is called {', '.join(map(repr, sorted(unknown)))}: --list shows them", file=sys.stderr)
        return 2
    if given.list:
        print("\n".join(f"{mutant.name}: {mutant.broken} ({mutant.file}): {mutant.tests}" for mutant in chosen))
        return 0
    judged = judge(chosen, given)
    survivors = [each.mutant.name for each in judged if not each.is_killed]
    if given.json:
        print(json.dumps([each.as_dict() for each in judged], indent=1))
    elif given.write:
        page = PROJECT / "CONTRIBUTING.md"
        page.write_text(written(page.read_text(encoding="utf-8"), judged), encoding="utf-8")
    else:
        print("\n".join(row(each) for each in judged))
    print(f"{len(judged) - len(survivors)} of {len(judged)} killed", *survivors, sep="\n", file=sys.stderr)
    return 1 if survivors else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these mutants, by name")
    parser.add_argument("--list", action="store_true", help="say which there are, and run nothing")
    parser.add_argument("--json", action="store_true", help="what became of them as JSON, on standard output")
    parser.add_argument(
        "--write", action="store_true", help="write the table into CONTRIBUTING.md, with the mutants that were run"
    )
    parser.add_argument(
        "--then",
        default="",
        metavar="ARGUMENTS",
        help="where a mutant's own tests pass, run pytest with these: '-m \"not long\"' is the default suite, "
        "'-m everything' the whole one",
    )
    parser.add_argument("--no-jvm", action="store_true", help="leave out tests that start a JVM")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds after which a run counts as failed")
    return parser.parse_args()


def judge(mutants: list[Mutant], given: argparse.Namespace) -> list[Judged]:
    """Each mutant with the test that kills it, and a line on standard error. Tests that fail where nothing is broken
    kill nothing."""
    filters, found_out = ["-m", "not spark"] if given.no_jvm else [], []
    with Checkout.copied(given.timeout) as checkout:
        for number, mutant in enumerate(mutants, 1):
            began = time.monotonic()
            found = checkout.killer(mutant, [*mutant.tests.split(), *filters])
            if given.then and not found.test and not found.problem:
                found = checkout.killer(mutant, [*shlex.split(given.then), *filters])
            found_out.append(Judged(mutant, found.test, found.problem, time.monotonic() - began))
            print(f"{number}/{len(mutants)} {found_out[-1].line()}", file=sys.stderr, flush=True)
        killers = sorted({each.killed for each in found_out if each.killed} - {NO_END})
        unsound, default = checkout.unsound(killers), checkout.of_default_suite(killers)
    return [each.without(unsound)._replace(is_default=each.killed in default) for each in found_out]


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    sys.exit(main())
