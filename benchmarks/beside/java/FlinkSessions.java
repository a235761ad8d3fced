import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.internals.RecordHeaders;

/** Sessions with a gap of 10 s and watermarks 5 s behind, read and written as JSON, as Dovecote's job does. */
final class FlinkSessions {
  static final Duration GAP = Duration.ofSeconds(10), GRACE = Duration.ofSeconds(5);
  static final TypeInformation<long[]> LONGS = PrimitiveArrayTypeInfo.LONG_PRIMITIVE_ARRAY_TYPE_INFO;
  /** Key, start, time of the last record, and ids. */
  static final TypeInformation<Tuple4<String, Long, Long, long[]>> SESSION = Types.TUPLE(Types.STRING, Types.LONG, Types.LONG, LONGS);

  private FlinkSessions() {}

  static void build(StreamExecutionEnvironment flink, String bootstrap, String input, String output) {
    var late = WatermarkStrategy.<Tuple2<String, Long>>forBoundedOutOfOrderness(GRACE);
    flink
        .fromSource(FlinkJob.source(bootstrap, input, output, new Read()), late, "clicks")
        .keyBy(click -> click.f0, Types.STRING)
        .window(EventTimeSessionWindows.withGap(GAP))
        .aggregate(new Listing(), new Closing(), LONGS, LONGS, SESSION)
        .sinkTo(FlinkJob.sink(bootstrap, output, new Write(output)));
  }

  /** A record as its key and id. All of the value is parsed: one that is no JSON would be found out. */
  static final class Read implements KafkaRecordDeserializationSchema<Tuple2<String, Long>> {
    private transient JsonFactory json;

    @Override
    public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<Tuple2<String, Long>> out) throws IOException {
      if (json == null) json = new JsonFactory();
      long id = -1;
      try (JsonParser parser = json.createParser(record.value())) {
        parser.nextToken();
        String name;
        while ((name = parser.nextFieldName()) != null) {
          parser.nextToken();
          if (name.equals("id")) id = parser.getLongValue();
          else parser.skipChildren();
        }
      }
      out.collect(Tuple2.of(new String(record.key(), StandardCharsets.UTF_8), id));
    }

    @Override
    public TypeInformation<Tuple2<String, Long>> getProducedType() {
      return Types.TUPLE(Types.STRING, Types.LONG);
    }
  }

  static final class Listing implements AggregateFunction<Tuple2<String, Long>, long[], long[]> {
    @Override
    public long[] createAccumulator() {
      return new long[0];
    }

    @Override
    public long[] add(Tuple2<String, Long> click, long[] ids) {
      FlinkJob.TAKEN.increment();
      long[] more = Arrays.copyOf(ids, ids.length + 1);
      more[ids.length] = click.f1;
      return more;
    }

    @Override
    public long[] getResult(long[] ids) {
      return ids;
    }

    @Override
    public long[] merge(long[] one, long[] other) {
      long[] both = Arrays.copyOf(one, one.length + other.length);
      System.arraycopy(other, 0, both, one.length, other.length);
      return both;
    }
  }

  static final class Closing extends ProcessWindowFunction<long[], Tuple4<String, Long, Long, long[]>, String, TimeWindow> {
    @Override
    public void process(String key, Context context, Iterable<long[]> found, Collector<Tuple4<String, Long, Long, long[]>> out) {
      TimeWindow window = context.window();
      out.collect(Tuple4.of(key, window.getStart(), window.getEnd() - GAP.toMillis(), found.iterator().next()));
    }
  }

  /** A session as Dovecote writes it: a JSON object, and the headers of a CloudEvent. */
  static final class Write implements KafkaRecordSerializationSchema<Tuple4<String, Long, Long, long[]>> {
    private static final byte[] VERSION = ascii("1.0"), TYPE = ascii("session"), SOURCE = ascii("/flink"), JSON = ascii("application/json");
    private final String topic;

    Write(String topic) {
      this.topic = topic;
    }

    private static byte[] ascii(String text) {
      return text.getBytes(StandardCharsets.US_ASCII);
    }

    @Override
    public ProducerRecord<byte[], byte[]> serialize(Tuple4<String, Long, Long, long[]> session, KafkaSinkContext context, Long time) {
      StringBuilder json = new StringBuilder(96 + 10 * session.f3.length);
      json.append("{\"kind\":\"result\",\"key\":\"").append(session.f0);
      json.append("\",\"start\":").append(session.f1).append(",\"end\":").append(session.f2).append(",\"value\":[");
      for (int i = 0; i < session.f3.length; i++) {
        if (i > 0) json.append(',');
        json.append(session.f3[i]);
      }
      json.append("],\"revision\":").append(session.f3.length).append('}');
      RecordHeaders headers = new RecordHeaders();
      headers.add("ce_id", ascii(session.f0 + "@" + session.f1));
      headers.add("ce_specversion", VERSION).add("ce_type", TYPE).add("ce_source", SOURCE).add("content-type", JSON);
      return new ProducerRecord<>(topic, null, time, session.f0.getBytes(StandardCharsets.UTF_8), json.toString().getBytes(StandardCharsets.UTF_8), headers);
    }
  }
}
