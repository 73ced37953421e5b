"""A folder too full to look through, a circle of imports, or a class or function that is too large is found here."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.judging import failures

PACKAGE = Path(__file__).parents[1] / "pulsar_spark"
MOST_FILES = 20
LARGEST_PART = 1 / 3
MOST_METHODS, MOST_LINES = 20, 50
LARGE = {
    "admin/policies.py::Policies": 28,
    "cli/messages/messages.py::produce": 66,
    "client/compat.py::Context": 28,
    "client/model/message.py::Message": 26,
    "client/sending/producing.py::create_producer": 87,
    "client/subscribing/subscribing.py::subscribe": 135,
    "frames/consuming/consumer.py::consume": 116,
    "frames/letters/reprocess.py::reprocess_dead_letters": 81,
    "frames/publishing/producer.py::publish": 116,
    "storage/store/object_path.py::ObjectPath": 25,
}
"""Classes with more methods, functions with more lines: copies of the API of Pulsar, or of pathlib.Path. Add none."""


def folders() -> list[Path]:
    return sorted(file.parent for file in PACKAGE.rglob("__init__.py"))


def name(path: Path) -> str:
    return path.relative_to(PACKAGE.parent).as_posix()


def subfolders(folder: Path) -> list[Path]:
    return [file.parent for file in folder.glob("*/__init__.py")]


def lines(folder: Path) -> int:
    """Lines of all modules in a folder and below it."""
    return sum(file.read_text(encoding="utf-8").count("\n") for file in folder.rglob("*.py"))


def test_folders_can_be_looked_through():
    assert failures(_has_few_files, folders(), name) == {}


def _has_few_files(folder: Path) -> None:
    files = len(list(folder.glob("*.py")))
    assert files <= MOST_FILES, f"{files} files: move those of one subject into a folder of their own"


def test_no_folder_is_most_of_its_package():
    leaves = [leaf for folder in folders() for leaf in subfolders(folder) if not subfolders(leaf)]
    assert len(leaves) > 50 and failures(_is_a_small_part, leaves, name) == {}


def _is_a_small_part(leaf: Path) -> None:
    part = lines(leaf) / lines(leaf.parent)
    assert part <= LARGEST_PART, f"{part:.0%} of the lines of {name(leaf.parent)}: give it folders of its own"


def test_each_package_says_what_belongs_in_it():
    assert failures(_says_what_belongs_in_it, folders(), name) == {}


def _says_what_belongs_in_it(folder: Path) -> None:
    tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    assert len((ast.get_docstring(tree) or "").split()) >= 4


def test_no_modules_import_each_other_in_a_circle():
    """Imports for types, and those within functions, count too."""
    assert [*circles(imports_of(PACKAGE))] == []


def imports_of(package: Path) -> dict[str, set[str]]:
    """What each module of a package imports of it, by dotted names."""
    names = {_dotted(file, package): file for file in sorted(package.rglob("*.py"))}
    return {module: set(_imported(file, names)) - {module} for module, file in names.items()}


def _dotted(file: Path, package: Path) -> str:
    return ".".join(file.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")


def _imported(file: Path, known: dict[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            wholes = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (whole if whole in known else node.module for whole in wholes)


def circles(imports: dict[str, set[str]]) -> Iterator[list[str]]:
    """Modules that can reach each other, a list for each circle.

    >>> [*circles({"a": {"b"}, "b": {"c"}, "c": {"b"}})]
    [['b', 'c']]
    """
    reached = {module: _reached(module, imports) for module in imports}
    seen: set[str] = set()
    for module in sorted(imports):
        if module in reached[module] and module not in seen:
            circle = [other for other in sorted(reached[module]) if module in reached[other]]
            seen.update(circle)
            yield circle


def _reached(module: str, imports: dict[str, set[str]]) -> set[str]:
    """Every module that is imported by a module or by one that it imports."""
    found: set[str] = set()
    ahead = [*imports[module]]
    while ahead:
        if (each := ahead.pop()) not in found:
            found.add(each)
            ahead += imports[each]
    return found


def test_a_circle_for_a_type_alone_is_seen(tmp_path):
    package = tmp_path / "house"
    (package / "rooms").mkdir(parents=True)
    for file in (package / "__init__.py", package / "rooms" / "__init__.py"):
        file.touch()
    (package / "rooms" / "door.py").write_text("if TYPE_CHECKING:\n    from house.rooms.wall import Wall")
    (package / "rooms" / "wall.py").write_text("def opened():\n    from house.rooms import door")
    assert [*circles(imports_of(package))] == [["house.rooms.door", "house.rooms.wall"]]


def test_no_array_of_whole_numbers_is_hashed():
    """``np.unique`` and what NumPy makes of it take 200 times as long as sorting a million of them, if they ascend."""
    hashing = re.compile(r"np\.(unique\((?!.*(return_|axis=))|(union|intersect|setdiff|setxor)1d)")
    files = (file for file in PACKAGE.rglob("*.py") if file.parent.name != "demo")
    found = [file.name for file in files if hashing.search(file.read_text(encoding="utf-8").replace("``np", ""))]
    assert found == [], "use positions.distinct"


def test_classes_and_functions_are_small():
    found = {f"{file.relative_to(PACKAGE).as_posix()}::{name}": size for file, name, size in too_large(PACKAGE)}
    assert {name: size for name, size in found.items() if size > LARGE.get(name, 0)} == {}
    assert sorted(LARGE.keys() - found.keys()) == [], "these are small now: take them off the list"


def too_large(package: Path) -> Iterator[tuple[Path, str, int]]:
    """Classes with too many methods and functions with too many lines: file, name, size."""
    for file in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                methods = sum(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body)
                if methods > MOST_METHODS:
                    yield file, node.name, methods
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                if size > MOST_LINES:
                    yield file, node.name, size


def test_a_large_class_and_a_long_function_are_seen(tmp_path):
    methods = "".join(f"    def step_{number}(self): ...\n" for number in range(MOST_METHODS + 1))
    (tmp_path / "a.py").write_text(f"class Large:\n{methods}")
    (tmp_path / "b.py").write_text("def long():\n" + "    pass\n" * MOST_LINES)
    assert [(name, size) for _, name, size in too_large(tmp_path)] == [("Large", 21), ("long", 51)]
