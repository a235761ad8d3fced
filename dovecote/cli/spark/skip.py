"""`dovecote spark skip`: let a job step over a batch that cannot be read."""

import os

from dovecote.cli.consume.skip import ByOption, PlaceArgument, WhyOption, parsed, say, who
from dovecote.cli.options import JsonOption, RequiredConfigOption
from dovecote.cli.spark.environment import require_spark
from outbox.errors import BadSettings


def skip(
    place: PlaceArgument,
    *,
    config: RequiredConfigOption,
    why: WhyOption,
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """
    Step over a batch that a job cannot read.

    All records of the batch are lost to the job, and to no other. A record that can be read is
    never stepped over. The topic `dovecote.skips` keeps what was stepped over, by whom, when and
    why. Start the job again afterwards.

    Example: dovecote spark skip orders/0/42 --why "a test of the shop" --config orders.toml
    """
    require_spark()
    from dedup.unread.probing import skip as noted
    from spark_jobs.jobs.files import all_jobs, load_all
    from spark_jobs.sink import kafka_options
    from spark_jobs.sink.group import name
    from spark_jobs.source.topics import belongs

    found = parsed(place)
    jobs = all_jobs(load_all([config], environ=os.environ))
    reading = [each for each in jobs if belongs(found.topic, each.source.topics)]
    if not reading:
        msg = f"the job does not read topic {found.topic!r}, as its settings say"
        raise BadSettings(msg)
    for each in reading:
        kafka = {**kafka_options.client(each.kafka), **each.source.options}
        note = noted(kafka, name(each.spark.query), found, by=by or who(), why=why)
        say(note, as_json=as_json)
