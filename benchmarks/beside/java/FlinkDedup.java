import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;

/** The first record of each key in each round of so many events, of those with value.amount >= 0; it is written as it came. */
final class FlinkDedup {
  static final TypeInformation<byte[]> BYTES = PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO;
  /** Key, number of the event, value, and headers in one array: that costs Flink less than a list. */
  static final TypeInformation<Tuple4<String, Long, byte[], byte[]>> ORDER = Types.TUPLE(Types.STRING, Types.LONG, BYTES, BYTES);

  private FlinkDedup() {}

  static void build(StreamExecutionEnvironment flink, String bootstrap, String input, String output, long round) {
    flink
        .fromSource(FlinkJob.source(bootstrap, input, output, new Read()), WatermarkStrategy.noWatermarks(), "orders")
        .keyBy(order -> order.f0, Types.STRING)
        .process(new First(round))
        .returns(ORDER)
        .sinkTo(FlinkJob.sink(bootstrap, output, new Write(output)));
  }

  /** The value is parsed as far as the amount. */
  static final class Read implements KafkaRecordDeserializationSchema<Tuple4<String, Long, byte[], byte[]>> {
    private transient JsonFactory json;

    @Override
    public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<Tuple4<String, Long, byte[], byte[]>> out) throws IOException {
      if (json == null) json = new JsonFactory();
      long number = -1, amount = -1;
      boolean found = false;
      try (JsonParser parser = json.createParser(record.value())) {
        parser.nextToken();
        String name;
        while (!found && (name = parser.nextFieldName()) != null) {
          parser.nextToken();
          if (name.equals("order")) number = Long.parseLong(parser.getText());
          else if (name.equals("amount")) {
            amount = parser.getLongValue();
            found = true;
          } else parser.skipChildren();
        }
      }
      if (amount >= 0) out.collect(Tuple4.of(new String(record.key(), StandardCharsets.UTF_8), number, record.value(), packed(record)));
    }

    private static byte[] packed(ConsumerRecord<byte[], byte[]> record) {
      int size = 0;
      for (Header each : record.headers()) size += 8 + each.key().length() + each.value().length;
      ByteBuffer into = ByteBuffer.allocate(size);
      for (Header each : record.headers()) {
        byte[] name = each.key().getBytes(StandardCharsets.US_ASCII);
        into.putInt(name.length).put(name).putInt(each.value().length).put(each.value());
      }
      return into.array();
    }

    @Override
    public TypeInformation<Tuple4<String, Long, byte[], byte[]>> getProducedType() {
      return ORDER;
    }
  }

  static final class First extends KeyedProcessFunction<String, Tuple4<String, Long, byte[], byte[]>, Tuple4<String, Long, byte[], byte[]>> {
    private final long round;
    private transient ValueState<Long> latest;

    First(long round) {
      this.round = round;
    }

    @Override
    public void open(OpenContext context) {
      latest = getRuntimeContext().getState(new ValueStateDescriptor<>("latest", Types.LONG));
    }

    @Override
    public void processElement(Tuple4<String, Long, byte[], byte[]> order, Context context, Collector<Tuple4<String, Long, byte[], byte[]>> out)
        throws Exception {
      FlinkJob.TAKEN.increment();
      long its = order.f1 / round;
      Long before = latest.value();
      if (before != null && before >= its) return;
      latest.update(its);
      out.collect(order);
    }
  }

  static final class Write implements KafkaRecordSerializationSchema<Tuple4<String, Long, byte[], byte[]>> {
    private final String topic;

    Write(String topic) {
      this.topic = topic;
    }

    @Override
    public ProducerRecord<byte[], byte[]> serialize(Tuple4<String, Long, byte[], byte[]> order, KafkaSinkContext context, Long time) {
      RecordHeaders headers = new RecordHeaders();
      ByteBuffer packed = ByteBuffer.wrap(order.f3);
      while (packed.hasRemaining()) headers.add(new String(next(packed), StandardCharsets.US_ASCII), next(packed));
      return new ProducerRecord<>(topic, null, time, order.f0.getBytes(StandardCharsets.UTF_8), order.f2, headers);
    }

    private static byte[] next(ByteBuffer packed) {
      byte[] found = new byte[packed.getInt()];
      packed.get(found);
      return found;
    }
  }
}
