"""Alembic installs the outbox, and leaves it alone otherwise."""

import asyncio
import io
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import psycopg
import pytest
import sqlalchemy
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from outbox import alembic, schema
from outbox.schema.capture import use_wal
from tests.support.migrating import NEWEST, installed, put, shape
from tests.support.writers import url

ENV = """
from alembic import context
from outbox.alembic import leave_alone
from sqlalchemy import MetaData, create_engine
from sqlalchemy.pool import NullPool

url = context.config.get_main_option("sqlalchemy.url")
options = {"target_metadata": MetaData(), "include_schemas": True}
options["include_name"] = leave_alone(["shop"])
options["version_table_schema"] = context.config.get_main_option("tenant")
if context.is_offline_mode():
    context.configure(url=url, literal_binds=True, dialect_opts={"paramstyle": "named"}, **options)
    with context.begin_transaction():
        context.run_migrations()
else:
    with create_engine(url, poolclass=NullPool).connect() as connection:
        context.configure(connection=connection, **options)
        with context.begin_transaction():
            context.run_migrations()
"""


REVISION = f"""
from outbox import alembic

revision, down_revision = "0042", None


def upgrade() -> None:
    alembic.install({NEWEST}, "shop")


def downgrade() -> None:
    alembic.uninstall("shop")
"""


TEMPLATE = """revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
def upgrade():
    ${upgrades if upgrades else "pass"}
def downgrade():
    ${downgrades if downgrades else "pass"}
"""


@pytest.fixture
def project(database: str, tmp_path: Path) -> Config:
    """An Alembic project with one revision, on this test's own database."""
    (tmp_path / "versions").mkdir()
    (tmp_path / "env.py").write_text(ENV)
    (tmp_path / "script.py.mako").write_text(TEMPLATE)
    (tmp_path / "versions/0042_outbox.py").write_text(REVISION)
    config = Config()
    config.set_main_option("script_location", str(tmp_path))
    config.set_main_option("path_separator", "os")
    address = url(database, "psycopg").render_as_string(hide_password=False)
    config.set_main_option("sqlalchemy.url", address.replace("%", "%%"))
    return config


def test_an_alembic_revision_installs_the_outbox_and_takes_it_away(
    project: Config, database: str
) -> None:
    command.upgrade(project, "head")
    assert installed(database, "shop") == NEWEST
    with psycopg.connect(database) as conn:
        schema.install(conn, "by_init")
    assert shape(database, "shop") == shape(database, "by_init")
    put(database, "shop")
    with pytest.raises(sqlalchemy.exc.DBAPIError, match="may not be published yet"):
        command.downgrade(project, "base")
    with psycopg.connect(database) as conn:
        conn.execute("TRUNCATE shop.events")
    command.downgrade(project, "base")
    assert installed(database, "shop") == 0


def test_no_outbox_is_taken_away_whose_events_may_be_in_the_log(
    project: Config, database: str
) -> None:
    command.upgrade(project, "head")
    (slot,) = use_wal(database, "shop")
    put(database, "shop")
    for refused in ("wal", "leaving", "table"):
        with psycopg.connect(database) as conn:
            # As when the relays have left the log, and one could not drop its slot yet.
            conn.execute("UPDATE shop.reading SET state = %s", [refused])
        with pytest.raises(sqlalchemy.exc.DBAPIError, match=f"in the write-ahead log.*{slot}"):
            command.downgrade(project, "base")
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("SELECT pg_drop_replication_slot(%s)", [slot])
        command.downgrade(project, "base")
        assert conn.execute("SELECT count(*) FROM pg_publication").fetchone() == (0,)
    assert installed(database, "shop") == 0


def test_the_outbox_stays_until_the_last_of_several_tenants_has_gone_back(
    project: Config, database: str, tmp_path: Path
) -> None:
    later = 'revision, down_revision = "0043", "0042"\ndef upgrade(): ...\ndef downgrade(): ...'
    (tmp_path / "versions/0043_later.py").write_text(later)
    with psycopg.connect(database, autocommit=True) as conn:
        for tenant, reached in (("a", "0042"), ("b", "head"), ("c", "base")):
            conn.execute(f"CREATE SCHEMA {tenant}".encode())
            project.set_main_option("tenant", tenant)
            command.upgrade(project, reached)
    for tenant, left in (("a", NEWEST), ("b", 0)):
        project.set_main_option("tenant", tenant)
        command.downgrade(project, "base")
        assert installed(database, "shop") == left


@pytest.mark.parametrize("options", ['dialect_opts={"paramstyle": "named"}, ', ""])
def test_alembic_prints_the_sql_that_it_would_run(
    project: Config, database: str, tmp_path: Path, options: str
) -> None:
    env = tmp_path / "env.py"
    env.write_text(env.read_text().replace('dialect_opts={"paramstyle": "named"}, ', options))
    printed = said(project, lambda: command.upgrade(project, "head", sql=True))
    assert installed(database, "shop") == 0
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(printed.encode())
        schema.install(conn, "by_init")
    assert shape(database, "shop") == shape(database, "by_init")
    put(database, "shop")
    printed = said(project, lambda: command.downgrade(project, "0042:base", sql=True))
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("TRUNCATE shop.events")
        conn.execute(printed.encode())
    assert installed(database, "shop") == 0


def said(project: Config, run: Callable[[], None]) -> str:
    printed = io.StringIO()
    project.output_buffer = printed
    with redirect_stdout(printed):
        run()
    return printed.getvalue()


def test_autogenerate_leaves_the_outbox_alone(project: Config, tmp_path: Path) -> None:
    command.upgrade(project, "head")
    command.check(project)
    made = command.revision(project, "next", autogenerate=True, rev_id="0043")
    assert made is not None
    assert "drop" not in next((tmp_path / "versions").glob("0043*")).read_text()


def test_autogenerate_leaves_an_outbox_in_the_default_schema_alone(
    project: Config, database: str, tmp_path: Path
) -> None:
    project.set_main_option("tenant", "public")
    command.upgrade(project, "head")
    with psycopg.connect(database) as conn:
        conn.execute("CREATE TABLE shop.orders (id int); CREATE TABLE public.gone (id int)")
    models = "Table('orders', options['target_metadata'], Column('total', Integer))"
    env = tmp_path / "env.py"
    env.write_text(
        env.read_text()
        .replace("import MetaData,", "import Column, Integer, MetaData, Table,")
        .replace("if context", f"{models}\nif context", 1)
        .replace("NullPool)", "NullPool, connect_args={'options': '-csearch_path=shop'})")
    )
    command.revision(project, "next", autogenerate=True, rev_id="0043")
    made = next((tmp_path / "versions").glob("0043*")).read_text()
    upgrade = made[made.index("def upgrade") : made.index("def downgrade")]
    # The service's own tables are compared, in whatever schema they are.
    assert set(re.findall(r"op\.(\w+\('\w+')", upgrade)) == {
        "add_column('orders'",
        "drop_column('orders'",
        "drop_table('gone'",
    }


def test_the_outbox_in_the_default_schema_is_known_by_its_names_without_an_environment(
    database: str,
) -> None:
    with psycopg.connect(database) as conn:
        schema.install(conn)
        conn.execute("CREATE TABLE outbox.orders (id int)")
    on_path = {"options": "-c search_path=outbox,public"}
    address = url(database, "psycopg")
    engine = sqlalchemy.create_engine(address, poolclass=NullPool, connect_args=on_path)
    for everywhere in (False, True):
        options = {"include_schemas": everywhere, "include_name": alembic.leave_alone()}
        with engine.connect() as conn:
            context = MigrationContext.configure(conn, opts=options)
            differences = compare_metadata(context, sqlalchemy.MetaData())
        assert [(kind, table.name) for kind, table in differences] == [("remove_table", "orders")]


# The type of a column of the outbox, which SQLAlchemy reflects here and nowhere else.
@pytest.mark.filterwarnings("ignore:Did not recognize type:sqlalchemy.exc.SAWarning")
def test_autogenerate_would_drop_the_outbox_if_it_were_not_told(database: str) -> None:
    with psycopg.connect(database) as conn:
        schema.install(conn)
    engine = sqlalchemy.create_engine(url(database, "psycopg"), poolclass=NullPool)

    def found(include_name: alembic.IncludeName | None) -> list[str]:
        options = {"include_schemas": True, "include_name": include_name}
        with engine.connect() as conn:
            context = MigrationContext.configure(conn, opts=options)
            differences = compare_metadata(context, sqlalchemy.MetaData())
        return [difference[0] for difference in differences]

    assert "remove_table" in found(None)
    assert found(alembic.leave_alone()) == []
    assert "remove_table" in found(alembic.leave_alone(["other"]))
    assert found(alembic.leave_alone([], and_ask=lambda name, *_: name is None)) == []


def test_alembic_over_asyncpg_installs_the_outbox_too(database: str) -> None:
    def upgrade(conn: sqlalchemy.Connection) -> None:
        with Operations.context(MigrationContext.configure(conn)):
            alembic.install(version=NEWEST)

    async def run() -> None:
        engine = create_async_engine(url(database, "asyncpg"), poolclass=NullPool)
        async with engine.begin() as conn:
            await conn.run_sync(upgrade)

    asyncio.run(run())
    put(database)
