import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;

/**
 * Kafka Streams on the work of spark_sessions: BOOTSTRAP APPLICATION INPUT OUTPUT WARM_UP RECORDS GUARANTEE THREADS STATE.
 *
 * <p>The clock runs from the WARM_UPth record that is aggregated to the last. No JSON is parsed: of the value {"id":N,…} only
 * the digits are read, and aggregates are written as plain bytes; both are in its favour.
 */
public class StreamsSessions {
  static final long GAP_S = 10, GRACE_S = 5;
  static final int DIGITS_AT = "{\"id\":".length();

  static long id(byte[] value) {
    long found = 0;
    for (int i = DIGITS_AT; value[i] >= '0' && value[i] <= '9'; i++) found = found * 10 + value[i] - '0';
    return found;
  }

  static Serde<long[]> longs() {
    return Serdes.serdeFrom(
        (topic, ids) -> {
          if (ids == null) return null;
          ByteBuffer bytes = ByteBuffer.allocate(8 * ids.length);
          bytes.asLongBuffer().put(ids);
          return bytes.array();
        },
        (topic, bytes) -> {
          if (bytes == null) return null;
          long[] ids = new long[bytes.length / 8];
          ByteBuffer.wrap(bytes).asLongBuffer().get(ids);
          return ids;
        });
  }

  static long cpu() {
    var system = (com.sun.management.OperatingSystemMXBean) java.lang.management.ManagementFactory.getOperatingSystemMXBean();
    return system.getProcessCpuTime();
  }

  public static void main(String[] args) throws Exception {
    long warmUp = Long.parseLong(args[4]), last = warmUp + Long.parseLong(args[5]);
    AtomicLong seen = new AtomicLong(), began = new AtomicLong(), cpuBefore = new AtomicLong();
    CountDownLatch done = new CountDownLatch(1);
    StreamsBuilder builder = new StreamsBuilder();
    builder.stream(args[2], Consumed.with(Serdes.String(), Serdes.ByteArray()))
        .groupByKey()
        .windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(GAP_S), Duration.ofSeconds(GRACE_S)))
        .aggregate(
            () -> new long[0],
            (key, value, ids) -> {
              long number = seen.incrementAndGet();
              if (number == warmUp + 1) {
                cpuBefore.set(cpu());
                began.set(System.nanoTime());
              }
              long[] more = Arrays.copyOf(ids, ids.length + 1);
              more[ids.length] = id(value);
              if (number == last) done.countDown();
              return more;
            },
            (key, one, other) -> {
              long[] both = Arrays.copyOf(one, one.length + other.length);
              System.arraycopy(other, 0, both, one.length, other.length);
              return both;
            },
            Materialized.with(Serdes.String(), longs()))
        .toStream((key, value) -> key.key() + "@" + key.window().start())
        .to(args[3], Produced.with(Serdes.String(), longs()));
    Properties properties = new Properties();
    properties.putAll(
        Map.of(
            StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0],
            StreamsConfig.APPLICATION_ID_CONFIG, args[1],
            StreamsConfig.PROCESSING_GUARANTEE_CONFIG, args[6],
            StreamsConfig.NUM_STREAM_THREADS_CONFIG, args[7],
            StreamsConfig.STATE_DIR_CONFIG, args[8],
            StreamsConfig.REPLICATION_FACTOR_CONFIG, "1",
            "auto.offset.reset", "earliest"));
    KafkaStreams streams = new KafkaStreams(builder.build(), properties);
    streams.start();
    boolean finished = done.await(300, TimeUnit.SECONDS);
    double seconds = (System.nanoTime() - began.get()) / 1e9, cpuSeconds = (cpu() - cpuBefore.get()) / 1e9;
    if (!finished) {
      System.err.println("Kafka Streams has aggregated " + seen.get() + " of " + last + " records in 300 s");
      Runtime.getRuntime().halt(1);
    }
    long before = System.nanoTime();
    streams.close(Duration.ofSeconds(30));
    double closing = (System.nanoTime() - before) / 1e9;
    System.out.printf(
        Locale.ROOT, "{\"seconds\":%.3f,\"closing_seconds\":%.3f,\"cpu_seconds\":%.2f}%n", seconds, closing, cpuSeconds);
    System.exit(0);
  }
}
