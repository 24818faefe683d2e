"""The README and the documents say what the code says; every link, command and name in them works."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, LongType, NestedField, StringType, TimestamptzType

from iceberg_compact_sql.call.binding import bind
from iceberg_compact_sql.call.grammar import parse_call
from iceberg_compact_sql.cli import main
from iceberg_compact_sql.plan.filters.parse import parse_where
from iceberg_compact_sql.procedures.maintenance.maintenance_steps import STEPS
from iceberg_compact_sql.procedures.readme_tables import with_current_sections
from iceberg_compact_sql.procedures.registry import names, procedures
from iceberg_compact_sql.report.documents import TOPICS, read_topic
from iceberg_compact_sql.version import VERSION
from tests.benchmarks.figures import RESULTS, WORK, with_current_figures
from tests.support.documents import (
    DOCS,
    DOCUMENTS,
    EXAMPLES,
    README,
    ROOT,
    anchors,
    blocks,
    document,
    links,
    shell_lines,
)

# Iceberg's pages, an address of nobody, and the name space of SVG.
KNOWN_HOSTS = {"iceberg.apache.org", "catalog.example.com", "www.w3.org"}
SETUP = "python3 -m venv .venv && .venv/bin/pip install -q -e "
QUICKSTART = f"{SETUP}. && .venv/bin/iceberg-compact-sql quickstart"
TESTS = f"{SETUP}'.[test]' && .venv/bin/python -m pytest -n 2 --dist loadfile"
# Words of pictures and inverted clauses that readers with English as a second language stumble over.
HARD_TO_READ = re.compile(
    r"\b(so many|anew|puts? up with|for the sake of|\w+'s sake|nobody can tell|let expect|is no \w+ that|a row a)\b",
    re.IGNORECASE,
)
FILES = [*DOCUMENTS, *EXAMPLES]
IDS = [str(path.relative_to(ROOT)) for path in FILES]


def test_the_generated_parts_are_the_declarations() -> None:
    for path, text in DOCUMENTS.items():
        current = with_current_sections(text, procedures())
        assert current == text, f"{path.name}: python -m iceberg_compact_sql.procedures.readme_tables"
    described = re.findall(r"<!-- procedure: (\w+) -->", document("procedures"))
    assert described == re.findall(r"^## (\w+)$", document("procedures"), re.MULTILINE) == list(procedures())


def test_the_figures_are_those_that_were_measured() -> None:
    results = json.loads(RESULTS.read_text())
    text = document("figures")
    assert with_current_figures(text, results) == text, "python -m tests.benchmarks.figures"
    measured = {row["case"] for row in results["measurements"]}
    assert measured <= WORK.keys()


def test_the_readme_is_short_and_names_every_topic_and_procedure() -> None:
    text = DOCUMENTS[README]
    assert 8_000 <= len(text.encode()) <= 10_240
    assert set(TOPICS) == {path.stem for path in DOCS.glob("*.md")}
    targets = set(links(text))
    assert {f"iceberg_compact_sql/docs/{topic}.md" for topic in TOPICS} <= targets
    assert {f"iceberg_compact_sql/docs/procedures.md#{name}" for name in procedures()} <= targets


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_every_link_works(path: Path) -> None:
    for target in links(path.read_text(encoding="utf-8")):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        linked = (path.parent / name).resolve() if name else path
        assert linked.exists(), target
        # Documents are installed with the package: a link must not leave it.
        assert path.parent != DOCS or linked.is_relative_to(ROOT / "iceberg_compact_sql"), target
        if anchor:
            assert anchor in anchors(linked.read_text(encoding="utf-8")), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=[path.stem for path in DOCUMENTS])
def test_every_path_and_module_that_is_named_exists(path: Path) -> None:
    text = DOCUMENTS[path]
    for name in re.findall(r"`((?:tests|sql_examples|iceberg_compact_sql)/[\w./<>]*)`", text):
        if "<" not in name:
            assert (ROOT / name).exists(), name
    for name in re.findall(r"`((?:\w+/)+(?:\w+\.(?:py|md))?|\w+\.py)`", document("develop")):
        # Rooms and modules are named as seen from the package.
        assert (ROOT / "iceberg_compact_sql" / name).exists() or name == "procedures/my_procedure.py", name
    for module in re.findall(r"python -m ((?:tests|iceberg_compact_sql)[\w.]*)", text):
        assert importlib.util.find_spec(module) is not None, module


def test_the_two_commands() -> None:
    assert [line for line in shell_lines() if line.startswith("python3 -m venv")] == [QUICKSTART, TESTS]
    assert (ROOT / ".ci" / "run").read_text().rstrip().splitlines()[-1] == TESTS


def test_every_command_of_ours_can_be_read() -> None:
    own = [line for line in shell_lines() if line.startswith("iceberg-compact-sql ")]
    assert len(own) >= 5
    for line in own:
        _, command, *arguments = shlex.split(line)
        main.commands[command].make_context(command, arguments)


def test_other_commands_are_modules_and_tools_of_the_repository() -> None:
    for line in shell_lines():
        if line.startswith(("python3 -m venv", "iceberg-compact-sql ")):
            continue
        words = [word for word in shlex.split(line) if "=" not in word or word.startswith("-")]
        assert words[:2] == ["python", "-m"] or words[0] in ("pytest", "pip", ".ci/run"), line


def test_only_languages_that_are_run_or_shown() -> None:
    assert {language for language, _ in blocks()} <= {"bash", "sql", "python", "text", "properties", "yaml"}


def test_every_call_can_be_read_and_bound() -> None:
    calls = [text for _, text in blocks("sql") if text.startswith("CALL")]
    assert len(calls) > len(procedures())
    for text in calls:
        call = parse_call(text, now_ms=0)
        assert call is not None
        bind(names()[call.procedure], call.arguments, now_ms=0, time_zone=lambda: "UTC", called_as=call.procedure)


def test_every_filter_that_is_named_is_read() -> None:
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "kind", StringType()),
        NestedField(3, "day", DateType()),
        NestedField(4, "ts", TimestamptzType()),
    )
    table = document("filters").split("| expression | example |")[1].split("\n\n")[0]
    examples = [text for text in re.findall(r"`([^`]+)`", table) if text not in ("AND", "OR", "NOT")]
    assert len(examples) >= 10
    for text in [*examples, f"NOT ({examples[0]} OR {examples[1]})"]:
        assert isinstance(parse_where(text, schema, time_zone="UTC"), BooleanExpression), text


def test_properties_and_settings_are_the_ones_in_the_code() -> None:
    properties = {key for step in STEPS for key in step.properties} | {"steps"}
    settings = document("settings")
    section = settings.split("| table property |")[1].split("\n\n")[0]
    cells = [row.split("|")[1] for row in section.strip().split("\n")[2:]]
    described = {name for cell in cells for name in re.findall(r"`(?:iceberg-compact)?\.([a-z\-.]+)`", cell)}
    assert described == properties
    files = (path for kind in ("*.py", "*.java") for path in (ROOT / "iceberg_compact_sql").rglob(kind))
    sources = "\n".join(path.read_text() for path in files)
    for text in DOCUMENTS.values():
        for setting in set(re.findall(r"`spark\.iceberg_compact_sql\.([\w.]+)`", text)):
            spellings = (f'"{setting.rpartition(".")[2]}"', f"}}{setting}", f'"spark.iceberg_compact_sql.{setting}"')
            assert any(spelling in sources for spelling in spellings), setting
    read = re.findall(r'"spark\.iceberg_compact_sql\.([\w.]*\w)"', sources)
    read += re.findall(r'f"\{SETTING_PREFIX\}([\w.]*\w)"', sources)
    assert {name for name in read if f"`spark.iceberg_compact_sql.{name}`" not in settings} == set()


def test_plain_english() -> None:
    for path, text in DOCUMENTS.items():
        assert HARD_TO_READ.findall(text) == [], path
    for procedure in procedures().values():
        meanings = [procedure.summary, *(parameter.meaning for parameter in procedure.parameters)]
        assert [text for text in meanings if HARD_TO_READ.search(text)] == [], procedure.name


def test_only_hosts_that_readers_need_and_no_home_folder() -> None:
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        assert set(re.findall(r"https?://([\w.-]+)", text)) <= KNOWN_HOSTS, path
        assert re.findall(r"(?<![\w.<])/(?:root|home)/\w+", text) == [], path


def test_the_changelog_has_this_version() -> None:
    assert f"## {VERSION}\n" in document("changelog")


def test_docs_lists_the_topics() -> None:
    done = CliRunner().invoke(main, ["docs"])
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.output.split("\n\n")[0].splitlines()] == list(TOPICS)
    assert all(read_topic(topic).summary in done.output for topic in TOPICS)


@pytest.mark.parametrize("topic", TOPICS)
def test_docs_shows_a_topic_as_plain_text_in_a_pipe(topic: str) -> None:
    done = CliRunner().invoke(main, ["docs", topic])
    assert done.exit_code == 0
    assert done.output == read_topic(topic).text
    assert done.output.startswith("# ") and "<!--" not in done.output and "\x1b" not in done.output


def test_docs_explains_a_procedure() -> None:
    for name in ("compact_table", "compact-table", "rewrite_data_files", " Compact_Table "):
        done = CliRunner().invoke(main, ["docs", name])
        assert done.exit_code == 0
        assert done.output.startswith("# compact_table\n") and "| `target` | size |" in done.output


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        ("limitz", "Did you mean 'limits'?"),
        ("compact_tabel", "Did you mean 'compact_table'?"),
        ("zzz", f"Topics: {', '.join(TOPICS)}."),
    ],
)
def test_docs_of_an_unknown_topic_is_wrong_usage(topic: str, message: str) -> None:
    done = CliRunner().invoke(main, ["docs", topic])
    assert done.exit_code == 2
    shown = " ".join(done.output.split())
    assert f"there is no document about '{topic}'." in shown and message in shown
