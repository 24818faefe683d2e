"""The README says what the code says."""

from __future__ import annotations

import json
import re
import shlex

from iceberg_compact_sql.call.binding import bind
from iceberg_compact_sql.call.grammar import parse_call
from iceberg_compact_sql.cli import main
from iceberg_compact_sql.procedures.maintenance_steps import STEPS
from iceberg_compact_sql.procedures.readme_tables import with_current_sections
from iceberg_compact_sql.procedures.registry import names, procedures
from tests.benchmarks.readme import RESULTS, WORK, with_current_figures
from tests.support.readme import ROOT, TEXT, blocks, shell_lines

SETUP = "python3 -m venv .venv && .venv/bin/pip install -q -e '.[test]' && "
# Run by other tests: the documentation by the one below, the jar by test_jar.
OWN_TOOLS = {
    "python -m iceberg_compact_sql.procedures.readme_tables README.md",
    "python -m iceberg_compact_sql.jvm.build",
}


def test_the_tables_are_the_declarations() -> None:
    assert with_current_sections(TEXT, procedures()) == TEXT, next(iter(sorted(OWN_TOOLS, reverse=True)))
    described = re.findall(r"<!-- procedure: (\w+) -->", TEXT)
    assert sorted(described) == sorted(procedures())


def test_the_figures_are_those_that_were_measured() -> None:
    document = json.loads(RESULTS.read_text())
    assert with_current_figures(TEXT, document) == TEXT, "python -m tests.benchmarks.readme README.md"
    measured = {row["case"] for row in document["measurements"]}
    assert measured <= WORK.keys()


def test_the_two_commands() -> None:
    commands = [line for line in shell_lines() if line.startswith("python3 -m venv")]
    assert [command.removeprefix(SETUP) for command in commands] == [
        ".venv/bin/iceberg-compact-sql quickstart",
        ".venv/bin/python -m pytest -n 2 --dist loadfile",
    ]
    assert (ROOT / ".ci" / "run").read_text().rstrip().splitlines()[-1] == commands[1]


def test_every_other_command_is_one_that_tests_run() -> None:
    others = {line for line in shell_lines() if not line.startswith("python3 -m venv")}
    own = {line for line in others if line.startswith("iceberg-compact-sql ")}
    assert others - own == OWN_TOOLS
    for line in own:
        _, command, *arguments = shlex.split(line)
        main.commands[command].make_context(command, arguments)


def test_only_languages_that_are_run_or_shown() -> None:
    assert {language for language, _ in blocks()} == {"bash", "sql", "python", "text", "properties"}


def test_every_call_can_be_read_and_bound() -> None:
    calls = [text for _, text in blocks("sql") if text.startswith("CALL")]
    assert len(calls) > len(procedures())
    for text in calls:
        call = parse_call(text, now_ms=0)
        assert call is not None
        bind(names()[call.procedure], call.arguments, now_ms=0, time_zone=lambda: "UTC", called_as=call.procedure)


def test_properties_and_settings_are_the_ones_in_the_code() -> None:
    properties = {key for step in STEPS for key in step.properties} | {"steps"}
    section = TEXT.split("| table property |")[1].split("\n\n")[0]
    cells = [row.split("|")[1] for row in section.split("\n")[2:]]
    told = {name for cell in cells for name in re.findall(r"`(?:iceberg-compact)?\.([a-z\-.]+)`", cell)}
    assert told == properties
    files = (path for kind in ("*.py", "*.java") for path in (ROOT / "iceberg_compact_sql").rglob(kind))
    sources = "\n".join(path.read_text() for path in files)
    for setting in set(re.findall(r"`spark\.iceberg_compact_sql\.([\w.]+)`", TEXT)):
        spellings = (f'"{setting.rpartition(".")[2]}"', f"}}{setting}", f'"spark.iceberg_compact_sql.{setting}"')
        assert any(spelling in sources for spelling in spellings), setting
