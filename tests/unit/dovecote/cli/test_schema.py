"""`dovecote schema` prints what editors and other checks need."""

import json

from typer.testing import CliRunner

from dovecote.cli.main import app
from spark_jobs.operators.aggregation.config import json_schema


def test_the_schema_of_an_aggregation_is_printed() -> None:
    done = CliRunner().invoke(app, ["schema", "aggregation"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output) == json_schema()


def test_another_schema_is_bad_usage() -> None:
    assert CliRunner().invoke(app, ["schema", "nothing"]).exit_code == 2
