"""The command line: `iceberg-compact-sql quickstart | run | tables | report | serve | docs | jar | <procedure>`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iceberg_compact_sql.call.declaration import Kind, Parameter, Procedure
from iceberg_compact_sql.errors import IcebergCompactError, did_you_mean
from iceberg_compact_sql.procedures.registry import names, procedures
from iceberg_compact_sql.redaction import mask_remembered, redact, remember_secrets
from iceberg_compact_sql.report.documents import TOPICS, print_markdown, read_topic
from iceberg_compact_sql.report.render import FORMATS, console_for_people, render, render_rows
from iceberg_compact_sql.service.commands import jobs, serve, submit
from iceberg_compact_sql.units import format_bytes
from iceberg_compact_sql.version import VERSION

if TYPE_CHECKING:
    from iceberg_compact_sql.doors.command_session import CommandSession
    from iceberg_compact_sql.doors.results import Answer

_MASTER = re.compile(r"local(-cluster)?(\[.*\])?|\w+://.+|yarn(-client)?")
# The tour is short: a fast start of the JVM matters more than its peak speed.
_QUICK_START = ("spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1",)


class _Failed(click.ClickException):
    """A failed procedure: prints only the message and exits with code 1."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        click.echo(self.message, err=True)


def _check_master(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse an invalid Spark master before a JVM is started."""
    if value is not None and _MASTER.fullmatch(value) is None:
        raise click.BadParameter(f"{value!r} is not a Spark master: local[*], spark://host:port, yarn or k8s://...")
    return value


_LOCAL_MASTER = "local[*]"
_MASTER_OPTION = click.option(
    "--master",
    default=None,
    callback=_check_master,
    help="Spark master; starts Spark at once. Without it, Spark starts only when the work needs it (local[*]).",
)


def _session_options(command: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        click.option("--catalog", help="The Iceberg catalog to use when a name has none."),
        click.option("--warehouse", type=click.Path(), help="Folder of the embedded catalog 'local'."),
        click.option("--conf", "settings", multiple=True, metavar="K=V", help="A Spark setting; may be repeated."),
        _MASTER_OPTION,
        click.option("--format", "style", type=click.Choice(FORMATS), default="table", show_default=True),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.version_option(VERSION, prog_name="iceberg-compact-sql")
def main() -> None:
    """Iceberg table maintenance: compact, score, expire and clean tables."""


@main.command()
@click.argument("statement", required=False)
@click.option(
    "-f",
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="A file of statements; - for standard input.",
)
@_session_options
def run(statement: str | None, path: str | None, **session: Any) -> None:
    """Run a statement, or several from a file, separated by semicolons; stop at the first that fails."""
    if (statement is None) == (path is None):
        raise click.UsageError("give either a statement or -f FILE")
    text = statement if statement is not None else _script(path or "")
    from iceberg_compact_sql.call.statements import split_statements

    statements = split_statements(text)
    if not statements:
        raise click.UsageError("there is no statement to run")
    _report_errors(lambda: _run_statements(session, statements))


def _run_statements(options: dict[str, Any], statements: list[str]) -> None:
    session = _command_session(options)
    # A script is one session: if one statement needs Spark, all run there.
    if session.needs_spark(statements):
        for statement in statements:
            render(session.spark().sql(statement), options["style"])
        return
    for statement in statements:
        _render_answer(session, session.statement(statement), options["style"])


def _render_answer(session: CommandSession, answer: Answer, style: str) -> None:
    from iceberg_compact_sql.doors.command_session import shown_rows

    names = [column.name for column in answer.columns]
    render_rows(names, shown_rows(answer, session.view.time_zone), style)


def _script(path: str) -> str:
    try:
        with click.open_file(path, encoding="utf-8-sig") as file:
            return str(file.read())
    except UnicodeDecodeError:
        raise click.UsageError(f"{path} is not UTF-8 text") from None


@main.command()
@click.option("--warehouse", type=click.Path(), default="./lake", show_default=True, help="Folder of the demo tables.")
@_MASTER_OPTION
def quickstart(warehouse: str, master: str | None) -> None:
    """Make a fragmented demo table and take it through score, dry run, compaction and expiry."""
    session = {"warehouse": warehouse, "master": master, "settings": _QUICK_START, "catalog": None}
    _report_errors(lambda: _tour(session, Path(warehouse)))


def _tour(session: dict[str, Any], warehouse: Path) -> None:
    from iceberg_compact_sql.doors.start_spark import require_java

    require_java()
    from iceberg_compact_sql.demo.tour import prepare_folder, take_tour

    prepare_folder(warehouse)
    with console_for_people().status("starting Spark"):
        spark = _spark(session)
    take_tour(spark, warehouse)


@main.command()
def jar() -> None:
    """Print the path of the jar for `spark-sql --jars`."""
    from iceberg_compact_sql.jvm import jar_path

    click.echo(jar_path())


@main.command()
@click.argument("table")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    default="report.html",
    show_default=True,
    help="The file to write.",
)
@click.option("--queries", metavar="PATH", help="A Spark event log, or a folder of them: shows what queries read.")
@_session_options
def report(table: str, output: str, queries: str | None, **session: Any) -> None:
    """Write one HTML file about TABLE: file sizes, history, partitions, deletes, clustering and advice."""

    def write() -> None:
        # Imported late for start-up time: help and documents need no session.
        from iceberg_compact_sql.doors.report_file import write_report

        path = Path(output)
        size_bytes = write_report(_command_session(session), table, path, queries)
        click.echo(f"wrote {path} ({format_bytes(size_bytes)})")

    _report_errors(write)


@main.command()
@click.argument("topic", required=False)
def docs(topic: str | None) -> None:
    """Show a document or explain a procedure; without TOPIC, list the topics."""
    if topic is None:
        lines = [f"{name:<12}{read_topic(name).summary}" for name in TOPICS]
        click.echo("\n".join([*lines, "", "iceberg-compact-sql docs TOPIC shows one; a procedure is a topic too."]))
        return
    wanted = topic.strip().lower().removesuffix(".md")
    if wanted in TOPICS:
        print_markdown(read_topic(wanted).text)
        return
    procedure = names().get(wanted.replace("-", "_"))
    if procedure is None:
        known = (*TOPICS, *names())
        hint = did_you_mean(wanted, known) or f"Topics: {', '.join(TOPICS)}."
        raise click.BadParameter(f"there is no document about {topic!r}. {hint}", param_hint="TOPIC")
    # Imported late: it reads every document.
    from iceberg_compact_sql.procedures.readme_tables import procedure_section

    print_markdown(f"# {procedure.name}\n\n{procedure_section(procedure)}")


def procedure_command(procedure: Procedure, name: str | None = None) -> click.Command:
    """The subcommand of a procedure, with a flag for each of its parameters; `name` is another name for it."""

    def call(style: str, catalog: Any, warehouse: Any, settings: Any, master: str | None, **values: Any) -> None:
        options = {"catalog": catalog, "warehouse": warehouse, "settings": settings, "master": master}
        given = {name: _call_value(procedure, name, value) for name, value in values.items() if value not in (None, ())}
        _report_errors(lambda: _run_procedure(options, procedure, given, style))

    # The first parameter is an argument without a flag: `compact-table db.t`, `help compact_table`.
    first, *others = procedure.parameters
    parameters = [click.Argument([first.name], required=first.required), *map(_flag, others)]
    name = name or procedure.name.replace("_", "-")
    command = click.Command(name, callback=call, params=parameters, help=procedure.summary)
    command.callback = _session_options(call)
    command.params = [*parameters, *reversed(getattr(command.callback, "__click_params__", []))]
    return command


def _flag(parameter: Parameter) -> click.Parameter:
    flag = "--" + parameter.name.replace("_", "-")
    help_text = f"{parameter.shown_meaning} (default {parameter.shown_default})"
    if parameter.kind is Kind.BOOLEAN:
        return click.Option([f"{flag}/--no-{flag[2:]}", parameter.name], default=None, help=help_text)
    if parameter.kind is Kind.MAP:
        return click.Option([_map_flag(parameter), parameter.name], multiple=True, metavar="K=V", help=help_text)
    repeated = parameter.kind in (Kind.LONGS, Kind.STRINGS)
    return click.Option([flag, parameter.name], multiple=repeated, metavar=_metavar(parameter), help=help_text)


def _metavar(parameter: Parameter) -> str:
    if parameter.kind is Kind.CHOICE:
        return f"[{'|'.join(parameter.choices)}]"
    return str(parameter.kind.value.removeprefix("array of ").upper())


def _map_flag(parameter: Parameter) -> str:
    """The flag of a map parameter, which is given once for each entry: `--option` for `options`."""
    return "--option" if parameter.name == "options" else "--" + parameter.name.replace("_", "-")


def _call_value(procedure: Procedure, name: str, value: Any) -> Any:
    parameter = procedure.parameter(name)
    if parameter is not None and parameter.kind is Kind.MAP:
        return dict(_key_value(entry, _map_flag(parameter)) for entry in value)
    return list(value) if isinstance(value, tuple) else value


def _key_value(text: str, flag: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise click.UsageError(f"{flag} takes key=value, not {redact(text)!r}")
    return key, value


def _run_procedure(options: dict[str, Any], procedure: Procedure, values: dict[str, Any], style: str) -> None:
    session = _command_session(options)
    if session.needs_spark():
        from iceberg_compact_sql.doors.session import call_procedure

        render(call_procedure(session.spark(), procedure.name, **values), style)
        return
    _render_answer(session, session.call(procedure, values), style)


def _command_session(options: dict[str, Any]) -> CommandSession:
    # Imported late for start-up time: help and documents need no session.
    from iceberg_compact_sql.doors.command_session import CommandSession

    settings = _settings(options)
    return CommandSession(
        settings,
        warehouse=options["warehouse"],
        start=lambda: _spark(options),
        spark_first=options["master"] is not None,
    )


def _settings(options: dict[str, Any]) -> dict[str, str]:
    settings = dict(_key_value(entry, "--conf") for entry in options["settings"])
    # Errors may repeat settings, also before a catalog is opened.
    remember_secrets(settings)
    if options["catalog"]:
        settings["spark.iceberg_compact_sql.catalog"] = options["catalog"]
    return settings


def _spark(options: dict[str, Any]) -> Any:
    from iceberg_compact_sql import register
    from iceberg_compact_sql.doors.start_spark import start_session

    master = options["master"] or _settings(options).get("spark.master", _LOCAL_MASTER)
    return register(start_session(master, _settings(options)), warehouse=options["warehouse"])


def _report_errors(work: Callable[[], None]) -> None:
    try:
        work()
    except IcebergCompactError as error:
        raise _Failed(mask_remembered(str(error))) from None
    except (click.ClickException, BrokenPipeError):
        # click ends without a message when the reader has closed the pipe (`| head -1`).
        raise
    except KeyboardInterrupt as interrupt:
        # An interrupt during a commit says in its text what is in the table.
        raise _Failed(mask_remembered(f"cancelled {interrupt}".strip())) from None
    except Exception as error:
        # An error of Spark without its Java stack trace.
        raise _Failed(redact(error).strip().split("\n\nJVM stacktrace")[0]) from None


for _procedure in procedures().values():
    main.add_command(procedure_command(_procedure))
main.add_command(procedure_command(procedures()["score_tables"], "tables"))
for _command in (serve, jobs, submit):
    main.add_command(_command)

if __name__ == "__main__":
    sys.exit(main())
